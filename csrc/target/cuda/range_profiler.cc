#include "target/cuda/range_profiler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "target/target.h"

namespace cudaforge {
namespace {

// Refusals that a retry does not change.
bool IsFinalRefusal(cupti::Result result) {
  static constexpr cupti::Result kFinal[] = {cupti::kNotSupported,
                                             cupti::kVirtualDevice,
                                             cupti::kInsufficientPrivileges,
                                             cupti::kOldProfilerInitialized,
                                             cupti::kLegacyProfiler,
                                             cupti::kVirtualDevicePrivileges,
                                             cupti::kConfidentialComputing,
                                             cupti::kCmpDevice,
                                             cupti::kMigDevice,
                                             cupti::kSliDevice,
                                             cupti::kWslDevice,
                                             cupti::kInvalidChipName};
  return std::find(std::begin(kFinal), std::end(kFinal), result) != std::end(kFinal);
}

}  // namespace

// The profiler enabled on the context. Its destructor restores the device in any state.
class RangeProfiler::Session {
 public:
  explicit Session(const cupti::CuptiApi& api) : api_(api) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    if (pushed_) static_cast<void>(Pop());
    if (started_) {
      bool done = false;
      static_cast<void>(Stop(&done));
    }
    if (range_ == nullptr) return;
    cupti::RangeParams params;
    params.range = range_;
    api_.RangeDisable(&params);
  }

  // Errors of this and the following functions are CUPTI's refusals.
  Status Open(cu::Context context, const MetricSchedule& schedule) {
    cupti::RangeEnableParams enable;
    enable.context = context;
    CF_RETURN_IF_ERROR(Check(api_.RangeEnable(&enable), "cuptiRangeProfilerEnable"));
    range_ = enable.range;
    std::vector<const char*> names = schedule.names();
    cupti::CounterDataSizeParams size;
    size.range = range_;
    size.names = names.data();
    size.count = names.size();
    CF_RETURN_IF_ERROR(
        Check(api_.RangeGetCounterDataSize(&size), "cuptiRangeProfilerGetCounterDataSize"));
    counter_data_.resize(size.bytes);
    cupti::CounterDataInitializeParams initialize;
    initialize.range = range_;
    initialize.bytes = counter_data_.size();
    initialize.image = counter_data_.data();
    CF_RETURN_IF_ERROR(Check(api_.RangeCounterDataInitialize(&initialize),
                             "cuptiRangeProfilerCounterDataImageInitialize"));
    cupti::SetConfigParams config;
    config.range = range_;
    config.config = schedule.config().data();
    config.config_bytes = schedule.config().size();
    config.counter_data = counter_data_.data();
    config.counter_data_bytes = counter_data_.size();
    return Check(api_.RangeSetConfig(&config), "cuptiRangeProfilerSetConfig");
  }

  // Begin and End enclose one pass.
  Status Begin() {
    cupti::RangeParams start;
    start.range = range_;
    CF_RETURN_IF_ERROR(Check(api_.RangeStart(&start), "cuptiRangeProfilerStart"));
    started_ = true;
    cupti::PushRangeParams push;
    push.range = range_;
    push.name = "candidate";
    CF_RETURN_IF_ERROR(Check(api_.RangePush(&push), "cuptiRangeProfilerPushRange"));
    pushed_ = true;
    return Status::Ok();
  }
  // `*last`: this was the last pass.
  Status End(bool* last) {
    CF_RETURN_IF_ERROR(Pop());
    return Stop(last);
  }

  Result<std::span<const uint8_t>> Decode() {
    cupti::DecodeParams decode;
    decode.range = range_;
    CF_RETURN_IF_ERROR(Check(api_.RangeDecodeData(&decode), "cuptiRangeProfilerDecodeData"));
    cupti::CounterDataInfoParams info;
    info.image = counter_data_.data();
    info.bytes = counter_data_.size();
    CF_RETURN_IF_ERROR(
        Check(api_.RangeGetCounterDataInfo(&info), "cuptiRangeProfilerGetCounterDataInfo"));
    if (info.ranges != 1 || decode.dropped != 0) {
      return Status::Unavailable("CUPTI returned counters of " + std::to_string(info.ranges) +
                                 " ranges instead of one, and dropped " +
                                 std::to_string(decode.dropped));
    }
    return std::span<const uint8_t>(counter_data_);
  }

  cupti::Result last_error() const { return last_error_; }

 private:
  Status Check(cupti::Result result, const char* what) {
    last_error_ = result;
    return api_.Check(result, what);
  }
  Status Pop() {
    pushed_ = false;
    cupti::RangeParams params;
    params.range = range_;
    return Check(api_.RangePop(&params), "cuptiRangeProfilerPopRange");
  }
  Status Stop(bool* last) {
    started_ = false;
    cupti::RangeStopParams params;
    params.range = range_;
    const Status status = Check(api_.RangeStop(&params), "cuptiRangeProfilerStop");
    *last = params.all_passes_submitted != 0;
    return status;
  }

  const cupti::CuptiApi& api_;
  cupti::RangeObject range_ = nullptr;
  bool started_ = false;
  bool pushed_ = false;
  cupti::Result last_error_ = 0;
  std::vector<uint8_t> counter_data_;
};

Result<std::unique_ptr<RangeProfiler>> RangeProfiler::Create(
    CudaContextPtr context, const std::vector<std::string>& search_paths) {
  CF_RETURN_IF_ERROR(context->MakeCurrent());
  std::unique_ptr<RangeProfiler> profiler(new RangeProfiler(std::move(context)));
  CF_RETURN_IF_ERROR(profiler->Init(search_paths));
  return profiler;
}

Status RangeProfiler::Init(const std::vector<std::string>& search_paths) {
  CF_ASSIGN_OR_RETURN(api_, cupti::CuptiApi::Open(search_paths));
  cupti::InitializeParams initialize;
  CF_RETURN_IF_ERROR(api_.Check(api_.ProfilerInitialize(&initialize), "cuptiProfilerInitialize"));
  initialized_ = true;
  cupti::DeviceSupportedParams device;
  device.device = context_->device();
  CF_RETURN_IF_ERROR(api_.Check(api_.DeviceSupported(&device), "cuptiProfilerDeviceSupported"));
  if (device.supported != cupti::kSupported) {
    const char* const why = device.architecture != cupti::kSupported           ? "its architecture"
                            : device.vgpu != cupti::kSupported                 ? "a virtual GPU"
                            : device.confidential_compute != cupti::kSupported ? "confidential "
                                                                                 "computing"
                            : device.wsl != cupti::kSupported                  ? "WSL"
                                                              : "its configuration";
    return Status::Unavailable(std::string("CUPTI does not profile this device: ") + why);
  }
  cupti::ChipNameParams chip;
  chip.device_index = static_cast<size_t>(context_->device());
  CF_RETURN_IF_ERROR(api_.Check(api_.DeviceGetChipName(&chip), "cuptiDeviceGetChipName"));
  chip_ = chip.chip;
  // Fails while another process profiles this device. Not needed for chips that CUPTI knows.
  cupti::CounterAvailabilityParams availability;
  availability.context = context_->handle();
  if (api_.GetCounterAvailability(&availability) != 0) return Status::Ok();
  availability_.resize(availability.image_bytes);
  availability.image = availability_.data();
  if (api_.GetCounterAvailability(&availability) != 0) availability_.clear();
  return Status::Ok();
}

RangeProfiler::~RangeProfiler() {
  schedules_.clear();
  if (!initialized_ || !context_->MakeCurrent().ok()) return;
  cupti::InitializeParams params;
  api_.ProfilerDeInitialize(&params);
}

Result<const MetricSchedule*> RangeProfiler::ScheduleOf(int tier) {
  const auto found = schedules_.find(tier);
  if (found != schedules_.end()) return &found->second;
  CF_ASSIGN_OR_RETURN(MetricSchedule made,
                      MetricSchedule::Make(api_, chip_, availability_, TierMetrics(chip_, tier)));
  return &schedules_.emplace(tier, std::move(made)).first->second;
}

// Returns the work's error; CUPTI's goes to `*refused`.
Status RangeProfiler::Replay(Session& session, const MetricSchedule& schedule, const Work& prepare,
                             const Work& enqueue, Status* refused) {
  bool last = false;
  // Allows a few passes more than reported, but no infinite loop.
  for (size_t pass = 0; !last; ++pass) {
    if (pass > 2 * schedule.passes() + 8) {
      *refused = Status::Unavailable("CUPTI needs more passes than it reported");
      return Status::Ok();
    }
    CF_RETURN_IF_ERROR(prepare());
    *refused = session.Begin();
    if (!refused->ok()) return Status::Ok();
    Status work = enqueue();
    // Inside the range: otherwise it would end before work that still runs.
    if (work.ok()) {
      work = context_->Check(context_->api().ContextSynchronize(), "running the profiled work");
    }
    CF_RETURN_IF_ERROR(work);
    *refused = session.End(&last);
    if (!refused->ok()) return Status::Ok();
  }
  return Status::Ok();
}

Result<RangeProfiler::Counters> RangeProfiler::Collect(int tier, const Work& prepare,
                                                       const Work& enqueue) {
  Counters counters;
  const auto refuse = [&](const Status& status) {
    counters.note = status.message();
    return counters;
  };
  CF_RETURN_IF_ERROR(context_->MakeCurrent());
  if (!refusal_.ok()) return refuse(refusal_);
  const Result<const MetricSchedule*> schedule = ScheduleOf(std::min(tier, kMaxProfileTier));
  if (!schedule.ok()) return refuse(schedule.status());
  Session session(api_);
  Status refused = session.Open(context_->handle(), **schedule);
  if (refused.ok()) {
    CF_RETURN_IF_ERROR(Replay(session, **schedule, prepare, enqueue, &refused));
  }
  if (!refused.ok()) {
    if (IsFinalRefusal(session.last_error())) refusal_ = refused;
    return refuse(refused);
  }
  const Result<std::span<const uint8_t>> data = session.Decode();
  if (!data.ok()) return refuse(data.status());
  const Result<std::vector<double>> values = (*schedule)->Evaluate(*data, 0);
  if (!values.ok()) return refuse(values.status());
  for (size_t i = 0; i < values->size(); ++i) {
    if (std::isfinite((*values)[i])) counters.metrics[(*schedule)->metrics()[i]] = (*values)[i];
  }
  counters.passes = (*schedule)->passes();
  for (const std::string& name : (*schedule)->refused()) {
    counters.note += (counters.note.empty() ? "this chip has no " : ", ") + name;
  }
  return counters;
}

}  // namespace cudaforge
