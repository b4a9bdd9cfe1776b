#include "forge/region_text.h"

namespace cudaforge {

std::string DescribeRegion(const OpSignature& signature) {
  return signature.Describe() + "\n" + signature.Canonical() + "\n";
}

std::string RegionKind(const OpSignature& signature) { return "other"; }

}  // namespace cudaforge
