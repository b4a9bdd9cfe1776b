// The JSON of LaunchRequest and TimingPlan in the worker protocol.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "worker/launch.h"
#include "worker/timing_plan.h"

namespace cudaforge {

// {"inputs":[[mapping, offset], ...],"outputs":[],"scratch":[],"split":"served","seed":n,
//  "threads":n}
Json LaunchRequestToJson(const LaunchRequest& launch);
// kInvalidArgument names the bad field.
Result<LaunchRequest> LaunchRequestFromJson(const Json& json);

// {"samples":n,"least":n,"total_ns":x,"abandon_ns":x}; infinity is written as 1e18.
Json TimingPlanToJson(const TimingPlan& plan);
Result<TimingPlan> TimingPlanFromJson(const Json& json);

}  // namespace cudaforge
