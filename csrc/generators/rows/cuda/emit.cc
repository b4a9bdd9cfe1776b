#include "generators/rows/emit.h"

#include <algorithm>
#include <string>

#include "generators/rows/cuda/kernel.h"
#include "generators/rows/cuda/prelude.h"

namespace cudaforge::rows {
Result<Candidate> EmitCuda(const Program& program, const OpSignature& signature,
                           const std::vector<Schedule>& schedules) {
  CF_CHECK(schedules.size() == program.stages.size()) << "one schedule per stage";
  CF_RETURN_IF_ERROR(program.Validate(signature));
  Candidate candidate;
  candidate.author = "generator:rows";
  candidate.source.language = Language::kCuda;
  candidate.source.code = std::string(CudaPrelude());
  Json stages = Json::array();
  for (size_t s = 0; s < program.stages.size(); ++s) {
    CF_ASSIGN_OR_RETURN(const CudaPlan plan, MakeCudaPlan(program.stages[s], schedules[s]));
    const CudaKernelText kernel = WriteCudaKernel(plan, "rows_stage" + std::to_string(s));
    candidate.source.code += "\n" + kernel.text;
    Launch launch;
    launch.kernel = "rows_stage" + std::to_string(s);
    launch.grid[0] = plan.blocks();
    launch.block[0] = plan.threads;
    launch.dynamic_shared_bytes = plan.shared_bytes();
    for (const BufferRef& buffer : kernel.buffers) launch.args.push_back(ArgOf(buffer));
    candidate.plan.launches.push_back(std::move(launch));
    stages.push_back(schedules[s].ToJson(DeviceType::kCuda));
  }
  for (int64_t bytes : program.scratch_bytes) candidate.plan.scratch_bytes.push_back(bytes);
  candidate.params = {{"stages", std::move(stages)}};
  return candidate;
}

}  // namespace cudaforge::rows
