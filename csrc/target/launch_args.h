// A launch plan's arguments, evaluated once for one signature, for both targets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernel/candidate.h"
#include "signature/op_signature.h"

namespace cudaforge {

inline constexpr size_t kMaxLaunchArgs = 256;  // the limit of Candidate::FromJson

struct BufferRef {
  LaunchArg::Kind kind = LaunchArg::Kind::kInput;  // kInput, kOutput or kScratch
  size_t index = 0;
};

// A launch gets its prepared buffers behind its scratch buffers, in one list.
// REQUIRES: `arg` is a buffer with a valid index.
BufferRef BufferOf(const LaunchArg& arg, const LaunchPlan& plan);

struct EvaluatedArg {
  bool is_buffer = false;
  bool is_float = false;
  bool is_tensor_map = false;
  BufferRef buffer;
  size_t tensor_map = 0;  // index in LaunchPlan::tensor_maps
  int64_t integer = 0;
  double number = 0;
};
using EvaluatedArgs = std::vector<EvaluatedArg>;

// kInvalidArgument: more than kMaxLaunchArgs arguments, a negative index, an expression that fails,
// a tensor map that the plan does not have, or a kind that Candidate::Validate refuses.
Result<EvaluatedArgs> EvaluateArgs(const Launch& launch, const LaunchPlan& plan,
                                   const OpSignature& signature);

// The scratch buffers to zero before the launches.
std::vector<size_t> ZeroedScratch(const LaunchPlan& plan);

// Bytes of each scratch buffer, then of each prepared buffer; kInvalidArgument if negative.
Result<std::vector<int64_t>> EvaluateScratch(const LaunchPlan& plan, const OpSignature& signature);

// The number of buffers of each kind that the launches use. Makes a short span an error, not a
// stray read.
class BufferNeeds {
 public:
  void Include(const BufferRef& ref) {
    size_t& need = ref.kind == LaunchArg::Kind::kInput    ? inputs_
                   : ref.kind == LaunchArg::Kind::kOutput ? outputs_
                                                          : scratch_;
    need = std::max(need, ref.index + 1);
  }
  void Include(const std::vector<BufferRef>& refs) {
    for (const BufferRef& ref : refs) Include(ref);
  }
  void IncludeScratch(size_t buffers) { scratch_ = std::max(scratch_, buffers); }
  Status Check(std::span<void* const> inputs, std::span<void* const> outputs,
               std::span<void* const> scratch) const {
    if (inputs.size() >= inputs_ && outputs.size() >= outputs_ && scratch.size() >= scratch_)
      return Status::Ok();
    return Status::InvalidArgument("a launch got fewer buffers than its plan names");
  }

 private:
  size_t inputs_ = 0;
  size_t outputs_ = 0;
  size_t scratch_ = 0;
};

inline void* Resolve(const BufferRef& ref, std::span<void* const> inputs,
                     std::span<void* const> outputs, std::span<void* const> scratch) {
  if (ref.kind == LaunchArg::Kind::kInput) return inputs[ref.index];
  if (ref.kind == LaunchArg::Kind::kOutput) return outputs[ref.index];
  return scratch[ref.index];
}

}  // namespace cudaforge
