// The forge loop with authors, a policy and an evaluator made of tables, and with a policy unlike
// the shipped ones.
#include "forge/forge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "tests/cpp/forge/fakes.h"

namespace cudaforge {
namespace {

// Writes candidates in the order of a table: row `n` is candidate n.
class TableAuthor : public Author {
 public:
  std::string name() const override { return "table"; }
  Status Write(const Brief& brief, const Population&, Trial* trial) override {
    if (written.size() == most) return Status::NotFound("all is written");
    written.push_back(brief.parents);
    trial->candidate = *search_.Next();
    return Status::Ok();
  }
  size_t most = 12;
  std::vector<std::vector<int>> written;  // the parents of each

 private:
  TableSearch search_{100};
};

// Candidate n takes the n-th of these times; negative ones are wrong. Results come in reverse
// order.
class TableEvaluator : public Evaluator {
 public:
  explicit TableEvaluator(std::vector<double> ns, int slots) : ns_(std::move(ns)), slots_(slots) {}
  void Begin(const EvaluatorSettings&) override {}
  int slots() const override { return slots_; }
  void Submit(EvaluationRequest request) override {
    under_way_.push_back(std::move(request));
    most_under_way = std::max(most_under_way, under_way_.size());
  }
  Evaluated Wait() override {
    const EvaluationRequest request = std::move(under_way_.back());
    under_way_.pop_back();
    const double ns = ns_.at(std::stoul(request.candidate.source.code));
    Evaluation found;
    if (ns < 0) return {request.id, Status::Unavailable("no worker")};
    found.findings.ns = ns;
    found.kernel = ProvenKernel{request.candidate, "binary", ns, {}};
    return {request.id, std::move(found)};
  }
  size_t most_under_way = 0;

 private:
  const std::vector<double> ns_;
  const int slots_;
  std::deque<EvaluationRequest> under_way_;
};

// A beam search: keeps the two fastest of each generation as parents of the next. Two evaluations
// run at once.
class BeamOfTwo : public Policy {
 public:
  BeamOfTwo(Author* author, int generations) : author_(author), left_(generations * 2) {}
  std::vector<Brief> Ask(const Population&, int slots) override {
    std::vector<Brief> briefs;
    if (under_way_ == 0 && generation_.size() == 2) parents_ = std::exchange(generation_, {});
    while (slots-- > 0 && left_ > 0 && under_way_ + generation_.size() < 2) {
      briefs.push_back({.kind = parents_.empty() ? StepKind::kSeed : StepKind::kOptimize,
                        .author = author_,
                        .parents = parents_});
      ++under_way_;
      --left_;
    }
    return briefs;
  }
  void Tell(Trial* trial, ProvenKernel* kernel) override {
    --under_way_;
    generation_.push_back(trial->id);
    if (kernel != nullptr && (!best || kernel->ns < best->ns)) best = *kernel;
  }
  bool Failed(Trial* trial, const Status& status) override {
    trial->verdict = {VerdictKind::kNotJudged, status.message(), {}};
    return true;
  }
  std::optional<ProvenKernel> best;

 private:
  Author* const author_;
  int left_;
  size_t under_way_ = 0;
  std::vector<int> parents_, generation_;
};

TEST(ForgeLoop, BeamOfTwoWithTwoConcurrentEvaluations) {
  TableAuthor author;
  TableEvaluator evaluator({900, 800, 500, 600, 300, 400}, 2);
  BeamOfTwo beam(&author, 3);
  Population population;
  Forge(beam, evaluator, &population);
  EXPECT_EQ(evaluator.most_under_way, 2u);
  EXPECT_EQ(beam.best->ns, 300);
  ASSERT_EQ(author.written.size(), 6u);
  EXPECT_EQ(author.written[2], author.written[3]);
  std::vector<int> parents = author.written[4];
  std::sort(parents.begin(), parents.end());
  EXPECT_EQ(parents, (std::vector<int>{2, 3}));
  EXPECT_EQ(population.trials().size(), 6u);
  EXPECT_EQ(population.best()->ns, 300);
}

TEST(ForgeLoop, PolicyKeepsUnjudgeableTrials) {
  TableAuthor author;
  TableEvaluator evaluator({-1, 700}, 1);
  BeamOfTwo beam(&author, 1);
  Population population;
  Forge(beam, evaluator, &population);
  ASSERT_EQ(population.trials().size(), 2u);
  EXPECT_EQ(population.trials()[0].verdict.kind, VerdictKind::kNotJudged);
  EXPECT_EQ(beam.best->ns, 700);
}

// Fills all slots, with every author that has more to write.
class AskAll : public Policy {
 public:
  explicit AskAll(std::vector<Author*> authors) : authors_(std::move(authors)) {}
  std::vector<Brief> Ask(const Population&, int slots) override {
    std::vector<Brief> briefs;
    for (; slots > 0 && !authors_.empty(); --slots) {
      briefs.push_back({.author = authors_[turn_++ % authors_.size()]});
    }
    return briefs;
  }
  void NothingMore(const Author& author) override { std::erase(authors_, &author); }
  void Tell(Trial* trial, ProvenKernel*) override {
    if (trial->duplicate_of.has_value()) ++duplicates;
  }
  int duplicates = 0;

 private:
  std::vector<Author*> authors_;
  size_t turn_ = 0;
};

TEST(ForgeLoop, DuplicateFromAnotherAuthorIsNotRun) {
  TableAuthor one, other;
  one.most = 2;
  other.most = 3;
  TableEvaluator evaluator({3, 2, 1}, 1);
  AskAll policy({&one, &other});
  Population population;
  Forge(policy, evaluator, &population);
  EXPECT_EQ(population.trials().size(), 5u);
  EXPECT_EQ(policy.duplicates, 2) << "both begin with the same two";
  EXPECT_EQ(population.best()->ns, 1);
}

TEST(LocalEvaluatorTest, CompiledCandidateIsNotRecompiled) {
  const OpSignature region = ReluOfEight();
  TableRunner runner(std::vector<Row>(2));
  LocalEvaluator evaluator(region, runner, runner);
  evaluator.Begin({});
  TableSearch search(2);
  EvaluationRequest request{.id = 0, .candidate = *search.Next(), .depth = Depth::kScreen};
  request.compiled = runner.Compile(request.candidate).value();
  evaluator.Submit(request);
  EXPECT_TRUE(evaluator.Wait().evaluation->findings.verdict.accepted());
  request.depth = Depth::kProof;
  request.compiled.reset();
  evaluator.Submit(request);
  EXPECT_TRUE(evaluator.Wait().evaluation->kernel.has_value());
  EXPECT_EQ(runner.compiles, 1) << "that of this test";
  EvaluationRequest wrong{.id = 1, .candidate = *search.Next()};
  wrong.compiled = CompileResult::Failure("error: \xff");
  evaluator.Submit(wrong);
  const Verdict verdict = evaluator.Wait().evaluation->findings.verdict;
  EXPECT_EQ(verdict.kind, VerdictKind::kCompileError);
  EXPECT_EQ(runner.compiles, 1);
}

}  // namespace
}  // namespace cudaforge
