// Hardware counters of work on the GPU, by CUPTI's range profiler: one range around all launches of
// one call, replayed by the caller's own function once per pass. Belongs into a process of its own,
// as CUPTI serves one profiler per process, and torch.profiler is another.
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
    Json metrics = Json::object();  // CUPTI's name -> finite number; empty when it refused
    size_t passes = 0;
    std::string note;  // what was refused, and why; empty: nothing
  };

  // Prepares CUPTI for the context's device. kUnavailable: it is missing or refuses this device.
  static Result<std::unique_ptr<RangeProfiler>> Create(
      CudaContextPtr context, const std::vector<std::string>& search_paths);
  RangeProfiler(const RangeProfiler&) = delete;
  RangeProfiler& operator=(const RangeProfiler&) = delete;
  ~RangeProfiler();

  // Calls prepare() and enqueue() once per pass; only what `enqueue` queues is counted, with the
  // wait for its end. Metrics in per cent of the time elapsed (pct_of_peak_sustained_elapsed) and
  // gpu__time_duration include that wait and the launches: of work of microseconds they say little,
  // bytes and instructions are exact. An error is that of the work or of the device; what CUPTI
  // refuses is a note. The device is at its ordinary state afterwards.
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
  Status refusal_;                           // one that will not change while this process lives
};

}  // namespace cudaforge
