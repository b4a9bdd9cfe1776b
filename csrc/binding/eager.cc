#include "dispatch/eager.h"

#include <pthread.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/own_work.h"
#include "binding/errors.h"
#include "binding/json_py.h"
#include "binding/module.h"
#include "binding/runtime.h"
#include "dispatch/resolver.h"
#include "signature/aten_schema.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

// Puts regions that nothing is known of on the wanted list: those of a short while in one write,
// by a thread of its own, as a write takes longer than thousands of calls.
class Recorder {
 public:
  static Recorder& Get() {
    static auto* const recorder = new Recorder;
    return *recorder;
  }

  void Add(const RegionEntry& region, const std::string& text) {
    Runtime& runtime = Runtime::Get();
    const Target* target =
        ValueOrThrow(runtime.TargetFor(region.signature.device, region.device_index));
    const std::string& arch = target->arch().target;
    if (runtime.store()->Get(region.key, arch) != nullptr) return;
    const std::lock_guard lock(mutex_);
    if (process_ != getpid()) return;  // a forked child writes nothing
    waiting_.push_back({region.key, arch, Json::parse(text)});
    if (!writer_.joinable()) writer_ = std::thread([this] { Work(); });
  }

  // Waits until all that was added is written. Not beside itself.
  void Flush() {
    std::thread writer;
    {
      const std::lock_guard lock(mutex_);
      if (process_ != getpid()) return;
      hurry_ = true;
      writer = std::move(writer_);
    }
    hurried_.notify_all();
    if (writer.joinable()) writer.join();
    const std::lock_guard lock(mutex_);
    hurry_ = false;
  }

 private:
  static constexpr auto kWhile = std::chrono::milliseconds(500);

  Recorder() {
    static std::mutex* mutex = &mutex_;
    pthread_atfork([] { mutex->lock(); }, [] { mutex->unlock(); }, [] { mutex->unlock(); });
  }

  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      hurried_.wait_for(lock, kWhile, [this] { return hurry_; });
      const std::vector<WantedRegion> regions = std::exchange(waiting_, {});
      if (regions.empty()) {
        if (hurry_) return;
        continue;
      }
      lock.unlock();
      const Status added = Runtime::Get().store()->AddWanted(regions);
      if (!added.ok()) {
        Resolver::Get().WarnOnce("the cache takes no writes, what is missing is not recorded: " +
                                 added.message());
      }
      lock.lock();
    }
  }

  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::condition_variable hurried_;
  bool hurry_ = false;
  std::vector<WantedRegion> waiting_;
  std::thread writer_;
};

// The callback outlives the interpreter: it is called no more then, and never freed.
void SetOnMiss(bool record, std::optional<py::function> told) {
  auto* const kept = told.has_value() ? new py::function(*std::move(told)) : nullptr;
  EagerInterceptor::OnMiss on_miss = [record, kept](const RegionEntry& region,
                                                    const std::string& text) {
    if (record) Recorder::Get().Add(region, text);
    if (kept == nullptr || !Py_IsInitialized()) return;
    const py::gil_scoped_acquire acquire;
    try {
      (*kept)(text, region.device_index);
    } catch (py::error_already_set& error) {
      const std::string why = error.what();
      throw std::runtime_error(why.substr(0, why.find('\n')));
    }
  };
  py::gil_scoped_release release;
  EagerInterceptor::Get().SetOnMiss(std::move(on_miss));
}

// OwnWork as a context manager, for the thread that enters it.
class OwnWorkScope {
 public:
  void Enter() { own_work_.emplace(); }
  void Exit(const py::args& /*error*/) { own_work_.reset(); }

 private:
  std::optional<OwnWork> own_work_;
};

}  // namespace

void BindEager(py::module_& m) {
  m.def(
      "can_intercept",
      [](const std::string& op) -> std::optional<std::string> {
        const Status status = EagerInterceptor::CanIntercept(op);
        if (status.ok()) return std::nullopt;
        return status.message();
      },
      py::arg("op"));
  m.def(
      "out_variant_of",
      [](const std::string& op) -> std::optional<std::string> {
        const auto variant = OutVariantOf(ValueOrThrow(FindAtenOp(op)));
        if (!variant) return std::nullopt;
        return c10::toString(variant->operator_name());
      },
      py::arg("op"));
  m.def(
      "intercept",
      [](const std::vector<std::string>& ops) {
        py::gil_scoped_release release;
        ThrowIfError(EagerInterceptor::Get().SetOps(ops));
      },
      py::arg("ops"));
  m.def("intercepted", [] { return EagerInterceptor::Get().ops(); });
  m.def("on_eager_miss", &SetOnMiss, py::arg("record"), py::arg("told"));
  m.def("flush_eager_misses", [] {
    py::gil_scoped_release release;
    Recorder::Get().Flush();
  });
  m.def("eager_stats", [] { return ToPython(EagerInterceptor::Get().Stats()); });
  m.def("reset_eager_stats", [] { EagerInterceptor::Get().ResetStats(); });
  py::class_<OwnWorkScope>(m, "OwnWork")
      .def(py::init<>())
      .def("__enter__", &OwnWorkScope::Enter)
      .def("__exit__", &OwnWorkScope::Exit);
}

}  // namespace cudaforge::binding
