// Chooses which node of a session is expanded next.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "forge/trial.h"

namespace cudaforge {

struct Step {
  StepKind kind = StepKind::kSeed;
  const Trial* parent = nullptr;  // one of the nodes given; nullptr for a seed
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  // `nodes`: of the session so far, oldest first. Deterministic.
  virtual Step Choose(const std::vector<Trial>& nodes) const = 0;
};

// A failed candidate is repaired, in at most two rounds in a row. Without a correct kernel, a new
// seed is written. Otherwise
//   "best-first"  optimises the fastest correct kernel
//   "last-first"  optimises the last correct kernel
// kInvalidArgument for another name, with the known ones.
Result<std::unique_ptr<Strategy>> MakeStrategy(std::string_view name);

// All names, the default first.
std::vector<std::string> StrategyNames();

}  // namespace cudaforge
