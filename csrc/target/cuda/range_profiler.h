// Hardware counters of work on the GPU, by CUPTI's range profiler: one range around all launches of
// one call, which the caller repeats once per pass. Use it in a separate process: CUPTI allows one
// profiler per process, and torch.profiler is another.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "target/cuda/cuda_context.h"
#include "target/cuda/cupti_api.h"
#include "target/cuda/metric_schedule.h"

namespace cudaforge {

// Not thread-safe.
class RangeProfiler {
 public:
  using Work = std::function<Status()>;

  struct Counters {
    Json metrics = Json::object();  // CUPTI's name -> finite number; empty if refused
    size_t passes = 0;
    std::string note;  // what was refused, and why; empty: nothing was
  };

  // Prepares CUPTI for the context's device. kUnavailable: it is missing or refuses this device.
  static Result<std::unique_ptr<RangeProfiler>> Create(
      CudaContextPtr context, const std::vector<std::string>& search_paths);
  RangeProfiler(const RangeProfiler&) = delete;
  RangeProfiler& operator=(const RangeProfiler&) = delete;
  ~RangeProfiler();

  // Calls prepare() and enqueue() once per pass, and counts only the work of `enqueue` and the wait
  // for its end. For work of microseconds that wait and the launches dominate the metrics in per
  // cent of elapsed time (pct_of_peak_sustained_elapsed) and gpu__time_duration; bytes and
  // instructions are exact. Errors are those of the work or the device; refusals of CUPTI are a
  // note. Leaves the device in its normal state.
  Result<Counters> Collect(int tier, const Work& prepare, const Work& enqueue);

  const std::string& chip() const { return chip_; }

 private:
  class Session;

  explicit RangeProfiler(CudaContextPtr context) : context_(std::move(context)) {}
  Status Init(const std::vector<std::string>& search_paths);
  Result<const MetricSchedule*> ScheduleOf(int tier);
  Status Replay(Session& session, const MetricSchedule& schedule, const Work& prepare,
                const Work& enqueue, Status* refused);

  CudaContextPtr context_;
  cupti::CuptiApi api_;
  bool initialized_ = false;
  std::string chip_;
  std::vector<uint8_t> availability_;
  std::map<int, MetricSchedule> schedules_;  // by tier; made from api_
  Status refusal_;                           // permanent in this process
};

}  // namespace cudaforge
