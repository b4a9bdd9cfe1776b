#include "binding/versions.h"

#include <torch/version.h>

#include "binding/runtime.h"
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

bool Stands(const CacheRecord& record) {
  return JudgedByThisBuild(record) && (record.doubtful == 0 || Runtime::Get().HasDoubted(record));
}

}  // namespace cudaforge::binding
