// Which node of a session is expanded next.
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
  const Trial* parent = nullptr;  // into the nodes given; nullptr for a seed
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  // `nodes`: of the session so far, oldest first. Deterministic.
  virtual Step Choose(const std::vector<Trial>& nodes) const = 0;
};

// A candidate that failed is repaired, from itself, in at most two rounds in a row; a new seed is
// written where no kernel is correct. Else
//   "best-first"  the fastest correct kernel is optimised
//   "last-first"  the last correct kernel is, slower than the fastest or not
// kInvalidArgument for another name, with the known ones.
Result<std::unique_ptr<Strategy>> MakeStrategy(std::string_view name);

// Their names, the usual one first.
std::vector<std::string> StrategyNames();

}  // namespace cudaforge
