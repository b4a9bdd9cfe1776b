#include "forge/agent/strategy.h"

namespace cudaforge {
namespace {

constexpr int kMaxRepairs = 2;

class BestFirst : public Strategy {
 public:
  Step Choose(const std::vector<AgentNode>& nodes) const override {
    const AgentNode* last = nullptr;  // that there is something to say about
    int repairs = 0;                  // that ended with it, in a row
    for (const AgentNode& node : nodes) {
      if (!node.answered || !node.evaluated) continue;
      last = &node;
      repairs = node.kind == StepKind::kRepair ? repairs + 1 : 0;
    }
    if (last != nullptr && !last->correct() && repairs < kMaxRepairs) {
      return {StepKind::kRepair, last};
    }
    const AgentNode* best = BestNode(nodes);
    return best != nullptr ? Step{StepKind::kOptimize, best} : Step{StepKind::kSeed, nullptr};
  }
};

}  // namespace

std::unique_ptr<Strategy> MakeBestFirst() { return std::make_unique<BestFirst>(); }

const AgentNode* BestNode(const std::vector<AgentNode>& nodes) {
  const AgentNode* best = nullptr;
  for (const AgentNode& node : nodes) {
    if (node.correct() && (best == nullptr || *node.ns < *best->ns)) best = &node;
  }
  return best;
}

}  // namespace cudaforge
