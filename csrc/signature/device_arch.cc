#include "signature/device_arch.h"

namespace cudaforge {
namespace {

using Arch = DeviceArch;

constexpr struct {
  const char* name;
  Arch::Number Arch::*value;
} kNumbers[] = {
    {"multiprocessors", &Arch::multiprocessors},
    {"max_threads_per_multiprocessor", &Arch::max_threads_per_multiprocessor},
    {"shared_bytes_per_block_optin", &Arch::shared_bytes_per_block_optin},
    {"max_threads_per_block", &Arch::max_threads_per_block},
    {"max_blocks_per_multiprocessor", &Arch::max_blocks_per_multiprocessor},
    {"warp_size", &Arch::warp_size},
    {"cluster_launch", &Arch::cluster_launch},
    {"registers_per_block", &Arch::registers_per_block},
    {"registers_per_multiprocessor", &Arch::registers_per_multiprocessor},
    {"shared_bytes_per_block", &Arch::shared_bytes_per_block},
    {"shared_bytes_per_multiprocessor", &Arch::shared_bytes_per_multiprocessor},
    {"clock_khz", &Arch::clock_khz},
    {"memory_clock_khz", &Arch::memory_clock_khz},
    {"memory_bus_bits", &Arch::memory_bus_bits},
    {"memory_bytes", &Arch::memory_bytes},
    {"cores", &Arch::cores},
    {"logical_cpus", &Arch::logical_cpus},
    {"threads", &Arch::threads},
    {"l1d_bytes", &Arch::l1d_bytes},
    {"l2_bytes", &Arch::l2_bytes},
    {"l3_bytes", &Arch::l3_bytes},
};

constexpr struct {
  const char* name;
  std::string Arch::*value;
} kTexts[] = {
    {"name", &Arch::name},
    {"compute_capability", &Arch::compute_capability},
    {"driver_cuda_version", &Arch::driver_cuda_version},
    {"isa", &Arch::isa},
    {"compiler", &Arch::compiler},
};

}  // namespace

Json DeviceArch::Facts() const {
  Json facts = Json::object();
  for (const auto& [key, value] : kNumbers) {
    if (this->*value) facts[key] = *(this->*value);
  }
  for (const auto& [key, value] : kTexts) {
    if (!(this->*value).empty()) facts[key] = this->*value;
  }
  return facts;
}

}  // namespace cudaforge
