// DeviceArch: the target that a kernel is built for, and the facts of the device at hand.
#pragma once

#include <string>

#include "base/json.h"

namespace cudaforge {

struct DeviceArch {
  // The full target string, part of every cache key: "cuda:sm_90a", "cpu:x86-64-v4+1f0c93ab" (the
  // digits stand for the processor's exact instruction set).
  std::string target;
  // Read from the device, never from a table: name, multiprocessors, clocks, L2, shared memory,
  // driver, toolkit; for a CPU: model name, cores, cache sizes, compiler. For people; some of them
  // decide which schedules are tried on a GPU (generators/emit_cuda_schedules.cc).
  Json properties = Json::object();

  bool is_cuda() const { return target.starts_with("cuda:"); }
};

}  // namespace cudaforge
