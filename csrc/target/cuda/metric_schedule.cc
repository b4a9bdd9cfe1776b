#include "target/cuda/metric_schedule.h"

namespace cudaforge {
namespace {

// GeForce Blackwell does not separate memory reads from writes.
constexpr std::string_view kWithoutReadsAndWrites = "GB20";
constexpr std::string_view kHopper = "GH1";

std::vector<const char*> AsNames(const std::vector<std::string>& metrics) {
  std::vector<const char*> names;
  for (const std::string& metric : metrics) names.push_back(metric.c_str());
  return names;
}

}  // namespace

std::vector<std::string> TierMetrics(std::string_view chip, int tier) {
  std::vector<std::string> names;
  const auto add = [&](std::initializer_list<const char*> more) {
    names.insert(names.end(), more.begin(), more.end());
  };
  if (tier >= 1) {
    add({"gpu__time_duration.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed",
         "sm__warps_active.avg.pct_of_peak_sustained_active",
         "smsp__issue_active.avg.pct_of_peak_sustained_active"});
    if (chip.starts_with(kWithoutReadsAndWrites)) {
      add({"dram__bytes.sum"});
    } else {
      add({"dram__bytes_read.sum", "dram__bytes_write.sum"});
    }
  }
  if (tier >= 2) {
    add({"sm__inst_executed_pipe_tensor.sum", "l1tex__t_sector_hit_rate.pct",
         "lts__t_sector_hit_rate.pct"});
  }
  if (tier >= 3) {
    add({"smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct",
         "smsp__warp_issue_stalled_short_scoreboard_per_warp_active.pct",
         "smsp__warp_issue_stalled_barrier_per_warp_active.pct",
         "smsp__warp_issue_stalled_mio_throttle_per_warp_active.pct",
         "smsp__warp_issue_stalled_lg_throttle_per_warp_active.pct",
         "smsp__warp_issue_stalled_math_pipe_throttle_per_warp_active.pct",
         "smsp__warp_issue_stalled_wait_per_warp_active.pct"});
  }
  if (tier >= 4) {
    add({"sm__throughput.avg.pct_of_peak_sustained_elapsed",
         "l1tex__throughput.avg.pct_of_peak_sustained_active",
         "lts__throughput.avg.pct_of_peak_sustained_elapsed"});
    if (chip.starts_with(kHopper)) {  // wgmma and its waits, the tensor memory accelerator
      add({"smsp__warp_issue_stalled_gmma_per_warp_active.pct",
           "sm__inst_executed_pipe_tensor_op_gmma.sum", "sm__inst_executed_pipe_tma.sum"});
    }
  }
  return names;
}

void MetricSchedule::HostDeleter::operator()(cupti::HostObject host) const {
  cupti::HostDeinitializeParams params;
  params.host = host;
  api->HostDeinitialize(&params);
}

Result<MetricSchedule::Host> MetricSchedule::MakeHost(const cupti::CuptiApi& api,
                                                      const std::string& chip,
                                                      std::span<const uint8_t> availability) {
  cupti::HostInitializeParams params;
  params.chip = chip.c_str();
  params.availability = availability.empty() ? nullptr : availability.data();
  CF_RETURN_IF_ERROR(
      api.Check(api.HostInitialize(&params), ("preparing metrics of chip " + chip).c_str()));
  return Host(params.host, HostDeleter(&api));
}

cupti::Result MetricSchedule::Add(const Host& host, const std::vector<std::string>& metrics) {
  std::vector<const char*> names = AsNames(metrics);
  cupti::AddMetricsParams params;
  params.host = host.get();
  params.names = names.data();
  params.count = names.size();
  return host.get_deleter().api->HostConfigAddMetrics(&params);
}

Result<MetricSchedule> MetricSchedule::Make(const cupti::CuptiApi& api, const std::string& chip,
                                            std::span<const uint8_t> availability,
                                            const std::vector<std::string>& metrics) {
  MetricSchedule schedule;
  CF_ASSIGN_OR_RETURN(schedule.host_, MakeHost(api, chip, availability));
  schedule.metrics_ = metrics;
  if (Add(schedule.host_, metrics) != 0) {
    // CUPTI does not report which name it refuses, and a refused name may leave a partial
    // configuration. So each is tried with an object of its own.
    schedule.metrics_.clear();
    for (const std::string& metric : metrics) {
      CF_ASSIGN_OR_RETURN(const Host trial, MakeHost(api, chip, availability));
      (Add(trial, {metric}) == 0 ? schedule.metrics_ : schedule.refused_).push_back(metric);
    }
    if (schedule.metrics_.empty()) {
      return Status::Unavailable("chip " + chip + " has none of the requested metrics");
    }
    CF_ASSIGN_OR_RETURN(schedule.host_, MakeHost(api, chip, availability));
    CF_RETURN_IF_ERROR(api.Check(Add(schedule.host_, schedule.metrics_), "scheduling metrics"));
  }
  CF_RETURN_IF_ERROR(schedule.ReadConfig());
  return schedule;
}

Status MetricSchedule::ReadConfig() {
  const cupti::CuptiApi& api = *host_.get_deleter().api;
  cupti::ConfigSizeParams size;
  size.host = host_.get();
  CF_RETURN_IF_ERROR(
      api.Check(api.HostGetConfigImageSize(&size), "cuptiProfilerHostGetConfigImageSize"));
  config_.resize(size.bytes);
  cupti::ConfigImageParams image;
  image.host = host_.get();
  image.bytes = config_.size();
  image.image = config_.data();
  CF_RETURN_IF_ERROR(api.Check(api.HostGetConfigImage(&image), "cuptiProfilerHostGetConfigImage"));
  cupti::PassesParams passes;
  passes.bytes = config_.size();
  passes.image = config_.data();
  CF_RETURN_IF_ERROR(api.Check(api.HostGetNumOfPasses(&passes), "cuptiProfilerHostGetNumOfPasses"));
  passes_ = passes.passes;
  return Status::Ok();
}

std::vector<const char*> MetricSchedule::names() const { return AsNames(metrics_); }

Result<std::vector<double>> MetricSchedule::Evaluate(std::span<const uint8_t> counter_data,
                                                     size_t index) const {
  const cupti::CuptiApi& api = *host_.get_deleter().api;
  std::vector<const char*> names = AsNames(metrics_);
  std::vector<double> values(names.size());
  cupti::EvaluateParams params;
  params.host = host_.get();
  params.counter_data = counter_data.data();
  params.counter_data_bytes = counter_data.size();
  params.range_index = index;
  params.names = names.data();
  params.count = names.size();
  params.values = values.data();
  CF_RETURN_IF_ERROR(
      api.Check(api.HostEvaluateToGpuValues(&params), "cuptiProfilerHostEvaluateToGpuValues"));
  return values;
}

Result<std::vector<std::string>> CuptiChips(const cupti::CuptiApi& api) {
  cupti::SupportedChipsParams params;
  CF_RETURN_IF_ERROR(
      api.Check(api.HostGetSupportedChips(&params), "cuptiProfilerHostGetSupportedChips"));
  return std::vector<std::string>(params.chips, params.chips + params.count);
}

}  // namespace cudaforge
