#include "target/cpu/cpu_info.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/sha256.h"
#include "base/text.h"

namespace cudaforge {
namespace {

std::string FirstLine(const std::string& path) {
  const Result<std::string> text = ReadFile(path);
  return text.ok() ? text->substr(0, text->find('\n')) : "";
}

// The first processor in /proc/cpuinfo. Read once: the file is long with many processors.
const std::string& FirstProcessor() {
  static const auto* const text = [] {
    const Result<std::string> all = ReadFile("/proc/cpuinfo");
    return new std::string(all.ok() ? all->substr(0, all->find("\n\n")) : "");
  }();
  return *text;
}

// The value of "KEY :" there.
std::string CpuInfo(const std::string& key) {
  for (const std::string_view line : Split(FirstProcessor(), '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    const size_t begin = line.find_first_not_of(' ', colon + 1);
    return begin == std::string_view::npos ? "" : std::string(line.substr(begin));
  }
  return "";
}

std::string Level() {
#if defined(__x86_64__)
  // The features that distinguish the psABI levels. Every processor has the rest of a level with
  // them.
  __builtin_cpu_init();
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return v4 ? "x86-64-v4" : v3 ? "x86-64-v3" : v2 ? "x86-64-v2" : "x86-64";
#else
  struct utsname name {};
  return uname(&name) == 0 ? name.machine : "unknown";
#endif
}

std::string ExactIsa() {
  const std::string text = CpuInfo("flags").empty() ? CpuInfo("Features") : CpuInfo("flags");
  const std::vector<std::string_view> words = Split(text, ' ');
  std::set<std::string_view> flags(words.begin(), words.end());
  flags.erase("");
  std::string sorted;
  for (const std::string_view flag : flags) sorted += std::string(flag) + " ";
  return CpuInfo("vendor_id") + " family " + CpuInfo("cpu family") + " model " + CpuInfo("model") +
         " flags " + Sha256Hex(sorted).substr(0, 16);
}

// The number after KEY in a line "KEY 17 kB" or "KEY 17".
std::optional<int64_t> NumberOf(const std::string& path, std::string_view key) {
  const Result<std::string> text = ReadFile(path);
  if (!text.ok()) return std::nullopt;
  for (std::string_view line : Split(*text, '\n')) {
    if (!line.starts_with(key)) continue;
    line.remove_prefix(std::min(line.find_first_not_of(' ', key.size()), line.size()));
    return ParseInteger<int64_t>(line.substr(0, line.find(' ')));
  }
  return std::nullopt;
}

// The file names of a memory cgroup in one version of the interface.
struct CgroupFiles {
  const char* folder;
  const char* limit;
  const char* usage;
  const char* reclaimable;  // the line of memory.stat
};

// The memory that the cgroup at `path` has left; nullopt without a limit.
std::optional<int64_t> LeftInCgroup(const std::string& path, const CgroupFiles& files) {
  const auto limit = NumberOf(path + "/" + files.limit, "");
  const auto usage = NumberOf(path + "/" + files.usage, "");
  if (!limit.has_value() || !usage.has_value()) return std::nullopt;
  const int64_t cached = NumberOf(path + "/memory.stat", files.reclaimable).value_or(0);
  return std::max<int64_t>(*limit - std::max<int64_t>(*usage - cached, 0), 0);
}

int64_t CacheBytes(int name) { return std::max<int64_t>(sysconf(name), 0); }

}  // namespace

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

int PhysicalCores() {
  std::set<std::pair<std::string, std::string>> cores;
  const std::vector<int> cpus = AllowedCpus();
  for (const int cpu : cpus) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const std::string core = FirstLine(folder + "core_id");
    if (core.empty()) return static_cast<int>(std::max<size_t>(cpus.size(), 1));
    cores.emplace(FirstLine(folder + "physical_package_id"), core);
  }
  return static_cast<int>(std::max<size_t>(cores.size(), 1));
}

int64_t LastLevelCacheBytes() {
  for (const int name : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const int64_t bytes = CacheBytes(name); bytes > 0) return bytes;
  }
  return int64_t{32} << 20;
}

Result<int64_t> FreeMemoryBytes(const std::string& root) {
  const auto available = NumberOf(root + "/proc/meminfo", "MemAvailable:");
  if (!available.has_value()) {
    return Status::Unavailable("Linux does not report how much memory is available");
  }
  int64_t left = *available * 1024;
  const Result<std::string> cgroups = ReadFile(root + "/proc/self/cgroup");
  if (!cgroups.ok()) return left;
  for (const std::string_view line : Split(*cgroups, '\n')) {  // "0::/a/b" or "4:memory:/a/b"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controller = line.substr(first + 1, second - first - 1);
    if (!controller.empty() && controller != "memory") continue;
    static constexpr CgroupFiles kSecond{"/sys/fs/cgroup", "memory.max", "memory.current",
                                         "inactive_file "};
    static constexpr CgroupFiles kFirst{"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                        "memory.usage_in_bytes", "total_inactive_file "};
    const CgroupFiles& files = controller.empty() ? kSecond : kFirst;
    // In a container the path may be the host's; then only the root exists.
    for (std::string path(line.substr(second + 1));; path.resize(path.rfind('/'))) {
      if (path == "/") path.clear();
      left = std::min(left, LeftInCgroup(root + files.folder + path, files).value_or(left));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return left;
}

DeviceArch DescribeCpu() {
  DeviceArch arch;
  // -march=native code may use any feature of this processor, so the exact set is part of the name.
  // On another processor of the same level the binary could crash with an illegal instruction.
  arch.target = "cpu:" + Level() + "+" + Sha256Hex(ExactIsa()).substr(0, 8);
  arch.name = CpuInfo("model name");
  arch.isa = ExactIsa();
  arch.cores = PhysicalCores();
  arch.logical_cpus = std::ssize(AllowedCpus());
  arch.l1d_bytes = CacheBytes(_SC_LEVEL1_DCACHE_SIZE);
  arch.l2_bytes = CacheBytes(_SC_LEVEL2_CACHE_SIZE);
  arch.l3_bytes = CacheBytes(_SC_LEVEL3_CACHE_SIZE);
  return arch;
}

}  // namespace cudaforge
