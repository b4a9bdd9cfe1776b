#include "forge/agent/strategy.h"

#include <algorithm>
#include <string>

namespace cudaforge {
namespace {

constexpr int kMaxRepairs = 2;

// The last node, if it failed after fewer than kMaxRepairs repairs in a row.
const Trial* ToRepair(const std::vector<Trial>& nodes) {
  const Trial* last = nullptr;
  int repairs = 0;  // consecutive repairs up to the last node
  for (const Trial& node : nodes) {
    if (!node.judged()) continue;
    last = &node;
    repairs = node.kind == StepKind::kRepair ? repairs + 1 : 0;
  }
  return last != nullptr && !last->correct() && repairs < kMaxRepairs ? last : nullptr;
}

Step OptimizeOrSeed(const Trial* node) {
  return node != nullptr ? Step{StepKind::kOptimize, node} : Step{StepKind::kSeed, nullptr};
}

class BestFirst : public Strategy {
 public:
  Step Choose(const std::vector<Trial>& nodes) const override {
    if (const Trial* failed = ToRepair(nodes)) return {StepKind::kRepair, failed};
    return OptimizeOrSeed(BestTrial(nodes));
  }
};

class LastFirst : public Strategy {
 public:
  Step Choose(const std::vector<Trial>& nodes) const override {
    if (const Trial* failed = ToRepair(nodes)) return {StepKind::kRepair, failed};
    const auto right = std::find_if(nodes.rbegin(), nodes.rend(),
                                    [](const Trial& node) { return node.correct(); });
    return OptimizeOrSeed(right != nodes.rend() ? &*right : nullptr);
  }
};

struct Known {
  std::string_view name;
  std::unique_ptr<Strategy> (*make)();
};
constexpr Known kStrategies[] = {
    {"best-first", [] { return std::unique_ptr<Strategy>(std::make_unique<BestFirst>()); }},
    {"last-first", [] { return std::unique_ptr<Strategy>(std::make_unique<LastFirst>()); }},
};

}  // namespace

Result<std::unique_ptr<Strategy>> MakeStrategy(std::string_view name) {
  std::string known;
  for (const Known& strategy : kStrategies) {
    if (strategy.name == name) return strategy.make();
    known += (known.empty() ? "" : ", ") + std::string(strategy.name);
  }
  return Status::InvalidArgument("unknown strategy \"" + std::string(name) + "\"; known are " +
                                 known);
}

std::vector<std::string> StrategyNames() {
  std::vector<std::string> names;
  for (const Known& strategy : kStrategies) names.emplace_back(strategy.name);
  return names;
}

}  // namespace cudaforge
