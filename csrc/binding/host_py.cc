#include "binding/host_py.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <utility>

#include "binding/errors.h"
#include "binding/json_py.h"
#include "binding/signature_py.h"
#include "dispatch/kernel_on_trial.h"
#include "dispatch/resolver.h"
#include "measure/warm_inputs.h"
#include "runtime/runtime.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

// REQUIRES: the GIL.
Held Hold(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            const py::gil_scoped_acquire acquire;
            delete held;
          }};
}

// Ends the turn of host.take_turn().
class TurnPy : public ForgeHost::Turn {
 public:
  explicit TurnPy(Held turn) : turn_(std::move(turn)) {}
  ~TurnPy() override {
    const py::gil_scoped_acquire acquire;
    try {
      turn_->attr("end")();
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("a turn");
    }
  }

 private:
  const Held turn_;
};

}  // namespace

void HostPy::Tell(const Json& event) {
  const py::gil_scoped_acquire acquire;
  host_.attr("tell")(ToPython(event));
}

void HostPy::GoOn() {
  const py::gil_scoped_acquire acquire;
  host_.attr("go_on")();
}

std::unique_ptr<ForgeHost::Turn> HostPy::TakeTurn(bool race, double* left_s) {
  const py::gil_scoped_acquire acquire;
  py::object turn = host_.attr("take_turn")(race);
  if (turn.is_none()) return nullptr;
  *left_s = std::min(*left_s, turn.attr("left_s").cast<double>());
  return std::make_unique<TurnPy>(Hold(std::move(turn)));
}

Result<std::unique_ptr<ForgeHost::OnTrial>> HostPy::Try(const ProvenKernel& kernel) {
  return Runtime::Get().Try(region_, device_index_, kernel);
}

Status HostPy::MakeInputs(const OpSignature& region, int sets) {
  const py::gil_scoped_acquire acquire;
  inputs_->clear();  // before new ones are made: they may be large
  const auto signature = std::make_shared<Signature>(region);
  for (int seed = 0; seed < sets; ++seed) {
    inputs_->push_back(Make(signature, seed));
  }
  return Status::Ok();
}

HostPy::Inputs HostPy::Make(const std::shared_ptr<Signature>& region, int seed) {
  py::object all = host_.attr("inputs")(region, seed);
  py::list warm;
  std::vector<WarmBytes> bytes;
  for (const int index : WarmInputs(*region, target_->arch())) {
    const py::object tensor = all[py::int_(index)];
    const py::object storage = tensor.attr("untyped_storage")();
    bytes.push_back({reinterpret_cast<const void*>(storage.attr("data_ptr")().cast<uintptr_t>()),
                     storage.attr("nbytes")().cast<int64_t>()});
    warm.append(tensor);
  }
  return {Hold(std::move(all)), Hold(std::move(warm)), std::move(bytes)};
}

Contestant HostPy::OnInputs(const std::string& name, py::object call) {
  return {name, [inputs = inputs_, held = Hold(std::move(call))](int64_t sample) {
            const py::gil_scoped_acquire acquire;
            (*held)(*OfSample(*inputs, sample).all);
            return Status::Ok();
          }};
}

Contestant HostPy::Call(const char* name, const OpSignature& region) {
  const py::gil_scoped_acquire acquire;
  return OnInputs(name, host_.attr(name)(std::make_shared<Signature>(region)));
}

ForgeHost::Inductor HostPy::ByInductor(const OpSignature& region, const std::string& part,
                                       double left_s) {
  const py::gil_scoped_acquire acquire;
  const py::tuple made = host_.attr("inductor")(std::make_shared<Signature>(region), part, left_s);
  Inductor inductor;
  if (!made[0].is_none()) inductor.contestant = OnInputs("inductor", made[0]);
  inductor.in_time = made[1].cast<bool>();
  inductor.waited_s = made[2].cast<double>();
  return inductor;
}

// Holds the GIL from before the eviction until the clock has stopped, so that samples do not
// include waiting for it. Releases it between samples.
SampleClock HostPy::Clock() {
  const py::gil_scoped_acquire acquire;
  py::object clock = host_.attr("clock")();
  if (clock.is_none()) {
    load_.emplace();
    return
        [target = target_, inputs = inputs_](int64_t sample, const std::function<Status()>& work) {
          const py::gil_scoped_acquire acquire;
          return target->TimeWarm(work, OfSample(*inputs, sample).warm_bytes);
        };
  }
  return [held = Hold(std::move(clock)), inputs = inputs_](
             int64_t sample, const std::function<Status()>& work) -> Result<double> {
    const py::gil_scoped_acquire acquire;
    Status status;
    const py::cpp_function run([&work, &status] { status = work(); });
    const double ns = (*held)(run, *OfSample(*inputs, sample).warm).cast<double>();
    CF_RETURN_IF_ERROR(status);
    return ns;
  };
}

bool HostPy::ProgramIsBusy() {
  const py::gil_scoped_acquire acquire;
  return host_.attr("is_busy")().cast<bool>();
}

}  // namespace cudaforge::binding
