#include "worker/launch_json.h"

#include <algorithm>
#include <climits>
#include <string>

namespace cudaforge {
namespace {

constexpr double kNoLimitNs = 1e18;  // JSON has no infinity
constexpr int kMostSamples = 10'000;
constexpr int kMostThreads = 4096;

Json PlacesToJson(const std::vector<Placed>& places) {
  Json json = Json::array();
  for (const Placed& placed : places) json.push_back(Json::array({placed.mapping, placed.offset}));
  return json;
}

Result<std::vector<Placed>> PlacesFromJson(const Json& body, const char* field) {
  CF_ASSIGN_OR_RETURN(const Json json, JsonField(body, field));
  const Status bad = Status::InvalidArgument(std::string(field) + ": expected [mapping, offset]");
  if (!json.is_array()) return bad;
  std::vector<Placed> places;
  for (const Json& pair : json) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer() ||
        !pair[1].is_number_integer()) {
      return bad;
    }
    const auto mapping = pair[0].get<int64_t>();
    if (mapping < 0 || mapping > INT_MAX) return bad;
    places.push_back({static_cast<int>(mapping), pair[1].get<int64_t>()});
  }
  return places;
}

}  // namespace

Json LaunchRequestToJson(const LaunchRequest& launch) {
  return {{"inputs", PlacesToJson(launch.inputs)},    {"outputs", PlacesToJson(launch.outputs)},
          {"scratch", PlacesToJson(launch.scratch)},  {"prepare", launch.prepare},
          {"split", SplitName(launch.split)},         {"threads", launch.threads},
          {"seed", static_cast<int64_t>(launch.seed)}};
}

Result<LaunchRequest> LaunchRequestFromJson(const Json& json) {
  LaunchRequest launch;
  CF_ASSIGN_OR_RETURN(launch.inputs, PlacesFromJson(json, "inputs"));
  CF_ASSIGN_OR_RETURN(launch.outputs, PlacesFromJson(json, "outputs"));
  CF_ASSIGN_OR_RETURN(launch.scratch, PlacesFromJson(json, "scratch"));
  CF_ASSIGN_OR_RETURN(launch.prepare, JsonBool(json, "prepare"));
  CF_ASSIGN_OR_RETURN(const std::string split, JsonString(json, "split"));
  CF_ASSIGN_OR_RETURN(launch.split, ParseSplit(split));
  CF_ASSIGN_OR_RETURN(const int64_t seed, JsonInt(json, "seed"));
  launch.seed = static_cast<uint64_t>(seed);
  CF_ASSIGN_OR_RETURN(const int64_t threads, JsonInt(json, "threads"));
  if (threads < 0 || threads > kMostThreads) return Status::InvalidArgument("threads: 0 to 4096");
  launch.threads = static_cast<int>(threads);
  return launch;
}

Json TimingPlanToJson(const TimingPlan& plan) {
  return {{"samples", plan.samples},
          {"least", std::min(plan.least, plan.samples)},
          {"total_ns", std::min(plan.total_ns, kNoLimitNs)},
          {"abandon_ns", std::min(plan.abandon_ns, kNoLimitNs)}};
}

Result<TimingPlan> TimingPlanFromJson(const Json& json) {
  TimingPlan plan;
  CF_ASSIGN_OR_RETURN(const int64_t samples, JsonInt(json, "samples"));
  CF_ASSIGN_OR_RETURN(const int64_t least, JsonInt(json, "least"));
  if (samples < 1 || samples > kMostSamples) {
    return Status::InvalidArgument("samples: 1 to 10000");
  }
  if (least < 1 || least > samples) return Status::InvalidArgument("least: 1 to samples");
  plan.samples = static_cast<int>(samples);
  plan.least = static_cast<int>(least);
  CF_ASSIGN_OR_RETURN(plan.total_ns, JsonDouble(json, "total_ns"));
  CF_ASSIGN_OR_RETURN(plan.abandon_ns, JsonDouble(json, "abandon_ns"));
  return plan;
}

}  // namespace cudaforge
