#include "forge/forge.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cudaforge {
namespace {

class Loop {
 public:
  Loop(Policy& policy, Evaluator& evaluator, Population* population)
      : policy_(policy), evaluator_(evaluator), population_(population) {}

  void Run() {
    while (true) {
      const int slots = evaluator_.slots() - static_cast<int>(open_.size());
      std::vector<Brief> briefs;
      if (slots > 0) briefs = policy_.Ask(*population_, slots);
      if (briefs.empty() && open_.empty()) return;
      for (Brief& brief : briefs) Begin(std::move(brief));
      if (!open_.empty()) Finish(evaluator_.Wait());
    }
  }

 private:
  struct Open {
    Trial trial;
    bool again = false;
  };

  void Begin(Brief brief) {
    if (brief.again.has_value()) {
      const Trial* trial = population_->Find(*brief.again);
      CF_CHECK(trial != nullptr && trial->candidate.has_value());
      Submit(brief, *trial);
      return;
    }
    Trial trial;
    trial.id = population_->next_id();
    if (!open_.empty()) trial.id = std::max(trial.id, open_.rbegin()->first + 1);
    trial.kind = brief.kind;
    trial.parents = brief.parents;
    trial.candidate = std::move(brief.candidate);
    if (brief.author != nullptr) trial.author = brief.author->name();
    policy_.Begin(&trial);
    if (brief.author != nullptr) {
      const Status written = brief.author->Write(brief, *population_, &trial);
      if (written.code() == StatusCode::kNotFound) {
        policy_.NothingMore(*brief.author);
        return;
      }
      if (!written.ok()) {
        if (policy_.Failed(&trial, written)) Conclude(std::move(trial), nullptr);
        return;
      }
    }
    if (!trial.candidate.has_value() || !policy_.MayEvaluate(&trial)) {
      Conclude(std::move(trial), nullptr);
    } else if (const Trial* tried = population_->FindTried(*trial.candidate)) {
      trial.duplicate_of = tried->id;
      trial.findings() = *tried;
      Conclude(std::move(trial), nullptr);
    } else {
      Submit(brief, std::move(trial));
    }
  }

  void Submit(const Brief& brief, Trial trial) {
    EvaluationRequest request{.id = trial.id,
                              .candidate = *trial.candidate,
                              .depth = brief.depth,
                              .end = brief.end,
                              .screen_end = brief.screen_end,
                              .screen_end_right = brief.screen_end_right};
    const Trial* best = population_->best();
    if (best != nullptr && !brief.again.has_value()) request.best_ns = best->ns;
    evaluator_.Submit(std::move(request));
    const int id = trial.id;
    open_.emplace(id, Open{std::move(trial), brief.again.has_value()});
  }

  void Finish(Evaluated done) {
    auto open = open_.extract(done.id);
    CF_CHECK(!open.empty()) << "a result that was not requested";
    auto& [trial, again] = open.mapped();
    if (!done.evaluation.ok()) {
      if (policy_.Failed(&trial, done.evaluation.status()) && !again) {
        Conclude(std::move(trial), nullptr);
      }
      return;
    }
    Evaluation& found = *done.evaluation;
    if (again) {
      policy_.TellAgain(population_, trial.id, &found);
      return;
    }
    trial.findings() = std::move(found.findings);
    trial.seconds = found.seconds;
    trial.device_seconds = found.device_seconds;
    Conclude(std::move(trial), found.kernel.has_value() ? &*found.kernel : nullptr);
  }

  void Conclude(Trial trial, ProvenKernel* kernel) {
    policy_.Tell(&trial, kernel);
    population_->Add(std::move(trial));
  }

  Policy& policy_;
  Evaluator& evaluator_;
  Population* const population_;
  std::map<int, Open> open_;  // being evaluated, by id
};

}  // namespace

void Forge(Policy& policy, Evaluator& evaluator, Population* population) {
  Loop(policy, evaluator, population).Run();
}

}  // namespace cudaforge
