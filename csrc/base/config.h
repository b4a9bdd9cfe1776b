// Settings read once from the environment. Options given in code override them.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace cudaforge {

// The actions for a region that is not in the cache (docs/options.md).
inline constexpr const char* kOnMiss[] = {"fallback", "record", "background", "blocking"};

// The topics of CUDAFORGE_LOG, besides "all" (docs/options.md).
inline constexpr const char* kLogTopics[] = {"forge", "graph", "cache", "dispatch"};

// Every path is absolute, because the program may change its folder later. A program name without a
// slash is searched on PATH.
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
  int threads = 0;                    // OMP_NUM_THREADS, which ATen uses too; 0: not given
  std::vector<std::string> log;       // CUDAFORGE_LOG: kLogTopics and "all", separated by commas
  std::vector<std::string> warnings;  // one line for each value or name that is invalid
};

// Reads an environment, name to value. Relative paths start from the current folder. Never fails. A
// bad value gives its default and a warning. An unknown name with CUDAFORGE_ gives a warning with
// the known names.
Config ReadConfig(const std::map<std::string, std::string>& environment);

// The process's settings, read on first use. Thread-safe.
const Config& GlobalConfig();

}  // namespace cudaforge
