#include "binding/versions.h"

#include <torch/version.h>

#include "cache/store_rules.h"

namespace cudaforge::binding {
namespace {

// To be raised with every change after which the verifier may refuse what it accepted, or after
// which kernels that generators made before should be made anew.
constexpr int kVerifierVersion = 2;

}  // namespace

Json Versions() {
  return {
      {"cudaforge", CUDAFORGE_VERSION}, {"torch", TORCH_VERSION}, {"verifier", kVerifierVersion}};
}

bool JudgedByThisBuild(const CacheRecord& record) {
  return JudgedAlike(record.versions, Versions());
}

}  // namespace cudaforge::binding
