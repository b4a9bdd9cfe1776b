// Settings read once from the environment. Options given in code win over these.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace cudaforge {

// What can be done about a region that the cache does not know (docs/options.md).
inline constexpr const char* kOnMiss[] = {"fallback", "record", "background", "blocking"};

// What CUDAFORGE_LOG can name beside "all" (docs/options.md).
inline constexpr const char* kLogTopics[] = {"forge", "graph", "cache", "dispatch"};

// Every path is absolute, as the program may change its folder later. A program's name without a
// slash is looked up on PATH.
struct Config {
  bool disabled = false;        // CUDAFORGE_DISABLE=1
  bool eager = false;           // CUDAFORGE_EAGER=1
  std::string on_miss;          // CUDAFORGE_ON_MISS, one of kOnMiss; empty: not given
  double region_budget_s = 30;  // CUDAFORGE_REGION_BUDGET_S, > 0
  double graph_budget_s = 60;   // CUDAFORGE_GRAPH_BUDGET_S, > 0
  // CUDAFORGE_CACHE_DIR, else $XDG_CACHE_HOME/cudaforge, else ~/.cache/cudaforge
  std::string cache_dir;
  std::string cxx;  // CUDAFORGE_CXX; empty: g++, else c++, else clang++
  // Folders with `lib` and `include` of CUDA: CUDAFORGE_CUDA_PATH; CUDA_HOME, then CUDA_PATH.
  std::vector<std::string> cuda_path, cuda_home;
  std::string worker;                 // CUDAFORGE_WORKER; empty: the one in the package
  int threads = 0;                    // OMP_NUM_THREADS, which ATen obeys; 0: not given
  std::vector<std::string> log;       // CUDAFORGE_LOG: kLogTopics and "all", separated by commas
  std::vector<std::string> warnings;  // one line for each value or name that could not be used
};

// Reads an environment, name to value. Relative paths start from the current folder. Never fails: a
// bad value gives its default and a warning that names it, an unknown name that begins with
// CUDAFORGE_ a warning that lists the known ones.
Config ReadConfig(const std::map<std::string, std::string>& environment);

// The process's settings, read on first use. Thread-safe.
const Config& GlobalConfig();

}  // namespace cudaforge
