// The ATen overloads whose eager calls may be intercepted, and the regions of their calls.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKey.h>

#include <array>
#include <string_view>

#include "base/status.h"
#include "dispatch/call_key.h"
#include "signature/from_aten_call.h"

namespace cudaforge {

// Where overloads are intercepted.
inline constexpr std::array kInterceptedKeys = {c10::DispatchKey::CPU, c10::DispatchKey::CUDA};

struct Interceptable {
  bool writes_out() const { return !(op == functional); }

  c10::OperatorHandle op;
  // What calls of `op` are looked up as: `op`, or what it is the out variant of. That one's
  // arguments are the first of `op`'s.
  c10::OperatorHandle functional;
};

// Whether calls that reach `key` run a kernel of the overload's own: not other operators that it is
// made of there, as aten::_fused_rms_norm is on a CPU.
bool HasKernel(const c10::OperatorHandle& op, c10::DispatchKey key);

// "aten::_softmax", "aten::sum.IntList_out". kUnsupported, with why: what this PyTorch does not
// have, what no region can hold (CheckPure: views, mutation, random numbers, shapes that depend on
// data), what returns lists, what has no kernel of its own for CPU or CUDA, also where it is an out
// variant that only calls its functional.
Result<Interceptable> FindInterceptable(std::string_view op);

// The region of a call of `op`, whose places are among `args`, the call's arguments; `results` is
// what it returned, `key` what was read of it before. That of an out variant is `functional`'s,
// which is called here for what its results are like: the out arguments must have been like them
// before the call too, and share memory with nothing else. Errors: ReadAtenCall's; kUnsupported:
// other out arguments, and where `functional` fails.
Result<AtenCall> ReadCall(const Interceptable& op, const CallKey& key,
                          c10::ArrayRef<c10::IValue> args, c10::ArrayRef<c10::IValue> results);

}  // namespace cudaforge
