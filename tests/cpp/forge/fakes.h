// A search, a worker and a verifier made of tables: row i has candidate i's compilation, verdict
// and time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "forge/forge.h"
#include "forge/walk.h"
#include "verify/local_evaluator.h"
#include "verify/region_verifier.h"
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
  std::vector<SearchFeedback>* log = nullptr;  // the feedback for each candidate

 private:
  size_t rows_;
  size_t next_ = 0;
};

class TableRunner : public CandidateRunner, public RegionVerifier {
 public:
  explicit TableRunner(std::vector<Row> rows, size_t sets = 4)
      : rows_(std::move(rows)), sets_(sets) {}
  Result<CompileResult> Compile(const Candidate& candidate) override {
    ++compiles;
    CompileResult result;
    result.ok = At(candidate).compiles;
    result.binary = "binary " + candidate.source.code;
    result.resources = {{"k", {{"registers", 8}}}};
    if (!result.ok) result.log = std::string("error: \xff expected ';'") + std::string(9000, 'x');
    return result;
  }
  size_t set_count() const override { return sets_; }
  std::string set_name(size_t set) const override { return "set" + std::to_string(set); }
  Result<Verdict> Load(const std::string& binary, const Candidate& candidate) override {
    EXPECT_EQ(binary, "binary " + candidate.source.code);
    loaded = candidate;
    return Verdict();
  }
  Result<Verdict> Run(size_t set) override {
    if (!fault.ok()) return fault;
    runs.push_back(set_name(set));
    const Row& row = At(loaded);
    if (row.run != VerdictKind::kAccepted) return Verdict{row.run, "", Json::object()};
    if (row.wrong_case != static_cast<int>(set)) return Verdict();
    return Verdict{VerdictKind::kWrongValues, "output 0 is wrong", Json::object()};
  }
  Result<Timed> Time(const TimingPlan& plan) override {
    abandon_ns.push_back(plan.abandon_ns);
    ++timings;
    if (fail_timing_after >= 0 && timings > fail_timing_after) return Status::IoError("gone");
    return Timed{{}, At(loaded).ns};
  }
  Result<Json> Profile(int tier) override { return RegionVerifier::Profile(tier); }
  Json Report() const override { return {{"checked", true}}; }

  Status fault;
  int fail_timing_after = -1;
  int compiles = 0, timings = 0;
  std::vector<std::string> runs;
  std::vector<double> abandon_ns;  // of each timing
  Candidate loaded;

 private:
  const Row& At(const Candidate& candidate) const {
    return rows_.at(std::stoul(candidate.source.code));
  }
  std::vector<Row> rows_;
  size_t sets_;
};

}  // namespace cudaforge
