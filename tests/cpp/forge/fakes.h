// A search, a worker and a checker made of tables: candidate number i compiles, runs and takes as
// long as row i says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "forge/forge.h"
#include "forge/walk.h"
#include "verify/checker.h"
#include "verify/local_evaluator.h"
#include "worker/worker_client.h"

namespace cudaforge {

struct Row {
  double ns = 1000;
  bool compiles = true;
  int wrong_case = -1;  // the input set whose answer is wrong; -1: none
  VerdictKind run = VerdictKind::kAccepted;
};

inline OpSignature Relu(std::vector<int64_t> sizes, std::vector<int64_t> strides) {
  OpSignature signature;
  TensorSpec spec{DType::kFloat32, std::move(sizes), std::move(strides), 16};
  signature.inputs = {spec};
  Node node;
  node.op = "aten::relu";
  node.args = Json::array({Json{{"in", 0}}});
  node.outputs = {spec};
  signature.nodes = {node};
  signature.outputs = {OutputRef{0, 0}};
  return signature;
}

inline OpSignature ReluOfEight() { return Relu({8}, {1}); }

class TableSearch : public CandidateSearch {
 public:
  explicit TableSearch(size_t rows) : rows_(rows) {}
  std::optional<Candidate> Next() override {
    if (next_ == rows_) return std::nullopt;
    Candidate candidate;
    candidate.source.code = std::to_string(next_++);
    candidate.author = "table";
    candidate.params = {{"row", candidate.source.code}};
    Launch launch;
    launch.kernel = "k";
    launch.range = 8;
    candidate.plan.launches.push_back(launch);
    return candidate;
  }
  void Tell(size_t nth, const SearchFeedback& feedback) override {
    if (log == nullptr) return;
    log->resize(std::max(log->size(), nth + 1));
    (*log)[nth] = feedback;
  }
  std::vector<SearchFeedback>* log = nullptr;  // what it is told, by candidate

 private:
  size_t rows_;
  size_t next_ = 0;
};

class TableRunner : public CandidateRunner {
 public:
  explicit TableRunner(std::vector<Row> rows) : rows_(std::move(rows)) {}
  Result<CompileResult> Compile(const Candidate& candidate) override {
    ++compiles;
    CompileResult result;
    result.ok = At(candidate).compiles;
    result.binary = "binary " + candidate.source.code;
    result.resources = {{"k", {{"registers", 8}}}};
    if (!result.ok) result.log = std::string("error: \xff expected ';'") + std::string(9000, 'x');
    return result;
  }
  Result<RunOutput> Run(const std::string& binary, const Candidate& candidate, const OpSignature&,
                        const InputSet& inputs, const RunPlan& plan) override {
    if (!fault.ok()) return fault;
    runs.push_back(inputs.name + " " + std::to_string(plan.poison));
    EXPECT_EQ(binary, "binary " + candidate.source.code);
    RunOutput output;
    output.verdict.kind = At(candidate).run;
    const bool wrong = inputs.name == "set" + std::to_string(At(candidate).wrong_case);
    output.outputs = {wrong ? "wrong" : "right"};
    return output;
  }
  Result<double> Time(const std::string&, const Candidate& candidate, const OpSignature&,
                      const InputSet&, const TimingPlan& plan) override {
    abandon_ns.push_back(plan.abandon_ns);
    ++timings;
    if (fail_timing_after >= 0 && timings > fail_timing_after) return Status::IoError("gone");
    return At(candidate).ns;
  }
  Status fault;
  int fail_timing_after = -1;
  int compiles = 0, timings = 0;
  std::vector<std::string> runs;
  std::vector<double> abandon_ns;  // of each timing

 private:
  const Row& At(const Candidate& candidate) const {
    return rows_.at(std::stoul(candidate.source.code));
  }
  std::vector<Row> rows_;
};

class TableChecker : public RegionChecker {
 public:
  explicit TableChecker(int cases) {
    for (int i = 0; i < cases; ++i) sets_.push_back({"set" + std::to_string(i), {}, {}});
  }
  size_t case_count() const override { return sets_.size(); }
  const InputSet& inputs(size_t i) const override { return sets_[i]; }
  Verdict Check(size_t, std::span<const std::string> outputs) const override {
    Verdict verdict;
    if (outputs[0] != "right") verdict = {VerdictKind::kWrongValues, "output 0 is wrong", {}};
    return verdict;
  }
  Json Report() const override { return {{"checked", true}}; }

 private:
  std::vector<InputSet> sets_;
};

}  // namespace cudaforge
