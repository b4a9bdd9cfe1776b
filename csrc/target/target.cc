#include "target/target.h"

namespace cudaforge {

Result<Json> Target::Profile(const Executable& executable, const std::function<Status()>&, int) {
  CF_ASSIGN_OR_RETURN(Json kernels, executable.LaunchFacts());
  return Json{{"tier", 0},
              {"passes", 0},
              {"note", "this target has no counters"},
              {"kernels", std::move(kernels)},
              {"metrics", Json::object()}};
}

Result<DeviceBuffer> Target::AllocateFenced(int64_t) {
  return Status::Unsupported("this target has no fences");
}

Result<Json> Target::Facts() { return Status::Unsupported("this target measures nothing"); }

}  // namespace cudaforge
