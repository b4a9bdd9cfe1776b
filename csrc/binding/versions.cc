#include "binding/versions.h"

#include <torch/version.h>

#include "verify/checker.h"

namespace cudaforge::binding {

const Json& Versions() {
  static const auto* versions = new Json{
      {"cudaforge", CUDAFORGE_VERSION}, {"torch", TORCH_VERSION}, {"verifier", kVerifierVersion}};
  return *versions;
}

bool JudgedByThisBuild(const CacheRecord& record) {
  return JudgedAlike(record.versions, Versions());
}

bool IsSettled(const CacheRecord& record) {
  return !record.provisional && JudgedByThisBuild(record);
}

}  // namespace cudaforge::binding
