// Regions and winners for the tests and the benchmark of dispatch: y = -x over contiguous float32,
// on the CPU.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/region_op.h"
#include "dispatch/resolver.h"
#include "signature/aten_numerics.h"
#include "signature/from_aten_region.h"

namespace cudaforge::testing {

struct Region {
  OpSignature signature;
  std::string text;
  int64_t id = 0;
};

inline Region Name(OpSignature signature) {
  Region region{std::move(signature), "", 0};
  region.text = region.signature.Canonical();
  region.id = RegionId(region.signature.Key());
  return region;
}

// neg(float32[sizes]) with the given alignment, contiguous.
inline Region NegRegion(std::vector<int64_t> sizes, int64_t alignment = 4) {
  TensorSpec spec{DType::kFloat32, sizes, ContiguousStrides(sizes), alignment};
  OpSignature signature;
  signature.inputs = {spec};
  spec.alignment = 1;
  signature.nodes = {{"aten::neg", Json::array({{{"in", 0}}}), Json::object(), {spec}}};
  signature.outputs = {{0, 0}};
  return Name(NormalizeAten(signature).value());
}

// neg of that tensor, as a signature of an eager call.
inline Region EagerNeg(std::vector<int64_t> sizes) {
  Region region = NegRegion(std::move(sizes), 16);
  region.signature.numerics = NumericsInForce({"aten::neg"});
  return Name(std::move(region.signature));
}

// A log of the fake launches, shared by all of one executable.
struct LaunchLog {
  std::atomic<int> launches{0};
  std::atomic<bool> scratch_ok{true};
  std::atomic<bool> fail{false};
};

// Negates `count` floats and adds `shift`, to distinguish it from ATen.
class NegExecutable : public Executable {
 public:
  NegExecutable(int64_t count, float shift, std::shared_ptr<LaunchLog> log,
                std::vector<int64_t> scratch = {})
      : count_(count), shift_(shift), log_(std::move(log)) {
    scratch_bytes_ = std::move(scratch);
  }

  Status Launch(std::span<void* const> inputs, std::span<void* const> outputs,
                std::span<void* const> scratch, const LaunchContext& context) const override {
    log_->launches.fetch_add(1, std::memory_order_relaxed);
    if (log_->fail.load(std::memory_order_relaxed)) return Status::Internal("the fake fails");
    for (size_t i = 0; i < scratch.size(); ++i) {
      if (reinterpret_cast<uintptr_t>(scratch[i]) % 256 != 0) log_->scratch_ok = false;
      std::fill_n(static_cast<char*>(scratch[i]), scratch_bytes_[i], static_cast<char>(i + 1));
    }
    for (size_t i = 0; i < scratch.size(); ++i) {
      const auto* bytes = static_cast<const char*>(scratch[i]);
      for (int64_t b = 0; b < scratch_bytes_[i]; ++b) {
        if (bytes[b] != static_cast<char>(i + 1)) log_->scratch_ok = false;
      }
    }
    struct Work {
      const float* in;
      float* out;
      float shift;
    } work{static_cast<const float*>(inputs[0]), static_cast<float*>(outputs[0]), shift_};
    context.parallel_for(
        count_, 32768,
        [](void* data, int64_t begin, int64_t end) {
          const auto* w = static_cast<const Work*>(data);
          for (int64_t i = begin; i < end; ++i) w->out[i] = -w->in[i] + w->shift;
        },
        &work);
    return Status::Ok();
  }

 private:
  const int64_t count_;
  const float shift_;
  const std::shared_ptr<LaunchLog> log_;
};

inline std::unique_ptr<Winner> NegWinner(int64_t count, float shift, std::shared_ptr<LaunchLog> log,
                                         std::vector<int64_t> scratch = {},
                                         std::vector<Constraint> constraints = {}) {
  auto winner = std::make_unique<Winner>();
  winner->executable =
      std::make_unique<NegExecutable>(count, shift, std::move(log), std::move(scratch));
  winner->constraints = std::move(constraints);
  return winner;
}

// One boxed call, as Python makes it.
inline std::vector<at::Tensor> CallRegion(const c10::OperatorHandle& op,
                                          const std::vector<at::Tensor>& inputs, int64_t id,
                                          const std::string& text) {
  torch::jit::Stack stack;
  stack.emplace_back(c10::List<at::Tensor>(inputs));
  stack.emplace_back(id);
  stack.emplace_back(text);
  op.callBoxed(stack);
  return stack.at(0).toTensorVector();
}

inline std::vector<at::Tensor> CallRegion(const Region& region,
                                          const std::vector<at::Tensor>& inputs) {
  return CallRegion(RegionOperator(), inputs, region.id, region.text);
}

}  // namespace cudaforge::testing
