// A ForgeHost with contestants and clock in Python: _ForgeHost in _C.pyi.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "forge/region.h"
#include "measure/machine_load.h"
#include "target/target.h"

namespace cudaforge::binding {

// A Python object that C++ may hold and release without the GIL.
using Held = std::shared_ptr<pybind11::object>;

// Constructed and destroyed with the GIL, used without it. Python exceptions pass through as
// error_already_set.
class HostPy : public ForgeHost {
 public:
  // `host` and `target` must outlive it.
  HostPy(const pybind11::object& host, Target* target, OpSignature region, int device_index)
      : host_(host), target_(target), region_(std::move(region)), device_index_(device_index) {}

  void Tell(const Json& event) override;
  void GoOn() override;
  std::unique_ptr<Turn> TakeTurn(bool race, double* left_s) override;
  Result<std::unique_ptr<OnTrial>> Try(const ProvenKernel& kernel) override;
  Status MakeInputs(const OpSignature& region, int sets) override;
  Contestant Winner(const OpSignature& region) override { return Call("winner", region); }
  Contestant Aten(const OpSignature& region) override { return Call("aten", region); }
  Inductor ByInductor(const OpSignature& region, const std::string& part, double left_s) override;
  SampleClock Clock() override;
  bool ProgramIsBusy() override;
  bool RaceWasDisturbed() override { return load_.has_value() && load_->WasDisturbed(); }

 private:
  Contestant Call(const char* name, const OpSignature& region);
  // The tensors of one set of inputs.
  struct Inputs {
    Held all;
    Held warm;                          // those named by WarmInputs
    std::vector<WarmBytes> warm_bytes;  // the same
  };
  using Sets = std::vector<Inputs>;
  static const Inputs& OfSample(const Sets& sets, int64_t sample) {
    return sets.at(static_cast<size_t>(sample) % sets.size());
  }
  Inputs Make(const std::shared_ptr<Signature>& region, int seed);
  // A contestant that calls `call` with the inputs for its sample.
  Contestant OnInputs(const std::string& name, pybind11::object call);

  const pybind11::object& host_;
  Target* const target_;
  const OpSignature region_;
  const int device_index_;
  std::optional<MachineLoad> load_;  // since Clock(), if that is the CPU's
  std::shared_ptr<Sets> inputs_ = std::make_shared<Sets>();
};

}  // namespace cudaforge::binding
