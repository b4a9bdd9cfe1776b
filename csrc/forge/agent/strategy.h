// Which node of a session is expanded next.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "forge/agent/node.h"

namespace cudaforge {

struct Step {
  StepKind kind = StepKind::kSeed;
  const AgentNode* parent = nullptr;  // into the nodes given; nullptr for a seed
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  // `nodes`: of the session so far, oldest first. Deterministic.
  virtual Step Choose(const std::vector<AgentNode>& nodes) const = 0;
};

// Optimises the fastest correct kernel. A candidate that failed is repaired, from itself, in at
// most two rounds in a row; then the fastest correct one is optimised again, or a new seed written
// where there is none.
std::unique_ptr<Strategy> MakeBestFirst();

// The fastest correct node, the earliest of equals; nullptr where there is none.
const AgentNode* BestNode(const std::vector<AgentNode>& nodes);

}  // namespace cudaforge
