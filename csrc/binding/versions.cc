#include "binding/versions.h"

#include <torch/version.h>

#include "verify/checker.h"

namespace cudaforge::binding {

Json Versions() {
  return {
      {"cudaforge", CUDAFORGE_VERSION}, {"torch", TORCH_VERSION}, {"verifier", kVerifierVersion}};
}

bool JudgedByThisBuild(const CacheRecord& record) {
  return JudgedAlike(record.versions, Versions());
}

}  // namespace cudaforge::binding
