// DeviceArch: the target that a kernel is built for, and the properties of the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"

namespace cudaforge {

struct DeviceArch {
  // The full target string, part of every cache key: "cuda:sm_90a", "cpu:x86-64-v4+1f0c93ab". The
  // digits identify the processor's exact instruction set.
  std::string target;

  // Read from the device, never from a table. Empty if the device does not report it.
  using Number = std::optional<int64_t>;
  std::string name = {};
  // Of a GPU. Generators choose schedules by some of these.
  Number multiprocessors = {}, max_threads_per_multiprocessor = {},
         shared_bytes_per_block_optin = {};
  Number max_threads_per_block = {}, max_blocks_per_multiprocessor = {}, warp_size = {},
         cluster_launch = {};
  Number registers_per_block = {}, registers_per_multiprocessor = {};
  Number shared_bytes_per_block = {}, shared_bytes_per_multiprocessor = {};
  Number clock_khz = {}, memory_clock_khz = {}, memory_bus_bits = {}, memory_bytes = {};
  std::string compute_capability = {}, driver_cuda_version = {};
  // Of a processor. `isa`: its family, model and a hash of its feature flags.
  Number cores = {}, logical_cpus = {}, threads = {}, l1d_bytes = {}, l3_bytes = {};
  std::string isa = {}, compiler = {};
  Number l2_bytes = {};  // of CPUs and GPUs

  bool is_cuda() const { return target.starts_with("cuda:"); }
  // Returns all reported properties by the names above, for display, without `target`.
  Json Facts() const;
};

}  // namespace cudaforge
