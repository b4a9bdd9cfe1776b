#include "generators/rows/search.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <set>

#include "generators/rows/emit.h"
#include "generators/rows/rewrite/fuse.h"
#include "generators/rows/rewrite/split.h"
#include "generators/rows/row_program.h"

namespace cudaforge::rows {
namespace {

constexpr size_t kMostCandidatesCpu = 16;
// A compilation on the CPU takes half a second or more. The search ends after this many in a row
// without a useful gain.
constexpr int kPatienceCpu = 5;
constexpr double kGain = 0.98;
constexpr size_t kMostCandidatesCuda = 60;

// One form of the program, with the possible schedules of each stage.
struct Variant {
  Program program;
  std::vector<std::vector<Schedule>> schedules;  // by stage, best guess first
  std::vector<size_t> order;                     // stages by work, largest first
};

// A point of the search space: a variant, and a schedule for each stage.
struct Point {
  size_t variant = 0;
  std::vector<size_t> choice;
  auto operator<=>(const Point&) const = default;
};

int64_t Work(const Stage& stage) { return stage.rows() * stage.row_length(); }

// For stages with too few rows to occupy the device: chunk counts to try.
std::vector<int64_t> ChunkCounts(const Stage& stage, bool cuda) {
  constexpr int64_t kWorthSplitting = 32768;  // elements
  constexpr int64_t kShortestPart = 64;
  std::vector<int64_t> counts;
  if (Work(stage) < kWorthSplitting) return counts;
  const std::vector<int64_t> targets =
      cuda ? std::vector<int64_t>{4096, 1024, 32768, 256} : std::vector<int64_t>{16, 64};
  for (int64_t target : targets) {
    const int64_t count = std::min(target / stage.rows(), stage.row_length() / kShortestPart);
    const bool known = std::count(counts.begin(), counts.end(), count) > 0;
    if (count >= 2 && !known) counts.push_back(count);
  }
  return counts;
}

// Splits every stage with few long rows, by index `which` of its chunk counts.
Program SplitAll(const Program& program, bool cuda, size_t which) {
  Program result = program;
  for (size_t s = 0; s < result.stages.size(); ++s) {
    const std::vector<int64_t> counts = ChunkCounts(result.stages[s], cuda);
    if (counts.empty()) continue;
    Result<Program> split = SplitStage(result, s, counts[std::min(which, counts.size() - 1)]);
    if (!split.ok()) continue;
    result = *std::move(split);
    ++s;  // skips the combining stage
  }
  return result;
}

Program SeparateAll(const Program& program, bool cuda) {
  Program result = program;
  for (size_t s = 0; s < result.stages.size(); ++s) {
    if (ChunkCounts(result.stages[s], cuda).empty()) continue;
    const size_t before = result.stages.size();
    Result<Program> separate = SeparateSweeps(result, s);
    if (!separate.ok()) continue;
    result = *std::move(separate);
    s += result.stages.size() - before;
  }
  return result;
}

// The forms of the program, best guess first: fused row and column reads, split for few rows, then
// as lowered.
std::vector<Program> Variants(const Program& program, bool cuda) {
  std::vector<Program> variants;
  std::set<std::string> texts;
  auto add = [&](Program variant) {
    if (texts.insert(variant.ToString()).second) variants.push_back(std::move(variant));
  };
  // A run is a group of threads. Tries about as many runs as groups run at once, then one run per
  // block.
  const std::vector<int64_t> run_counts =  // CPU kernels have no run sums
      cuda ? std::vector<int64_t>{512, 2048, 256, 8192} : std::vector<int64_t>{};
  for (int64_t runs : run_counts) {
    Result<Program> fused = FuseColumnSums(program, runs);
    if (fused.ok()) add(*std::move(fused));
  }
  const Program separate = SeparateAll(program, cuda);
  constexpr size_t kTargets = 4;
  const bool lone = std::any_of(program.stages.begin(), program.stages.end(), [&](const Stage& s) {
    return s.rows() <= (cuda ? 64 : 2) && !ChunkCounts(s, cuda).empty();
  });
  if (!lone) add(program);
  for (size_t which = 0; which < kTargets; ++which) {
    add(SplitAll(separate, cuda, which));
    add(SplitAll(program, cuda, which));
  }
  add(program);
  return variants;
}

class RowSearch : public CandidateSearch {
 public:
  static Result<std::unique_ptr<CandidateSearch>> Create(const OpSignature& signature,
                                                         const DeviceArch& arch) {
    if (arch.is_cuda()) CF_RETURN_IF_ERROR(KnowsMultiprocessors(arch));
    CF_ASSIGN_OR_RETURN(const Program program, Lower(signature));
    auto search = std::unique_ptr<RowSearch>(new RowSearch(signature, arch.is_cuda()));
    for (Program& variant : Variants(program, arch.is_cuda()))
      search->AddVariant(std::move(variant), arch);
    while (!search->pending_.empty() && !search->first_) {
      search->first_ = search->Write(search->pending_.front());
      if (!search->first_) search->pending_.pop_front();
    }
    if (!search->first_) return search->failure_;
    return std::unique_ptr<CandidateSearch>(std::move(search));
  }

  std::optional<Candidate> Next() override {
    while (given_.size() < most_ &&
           (cuda_ || std::isinf(best_ns_) || without_gain_ < kPatienceCpu)) {
      if (pending_.empty() && !Refill()) return std::nullopt;
      if (pending_.empty()) continue;
      Point point = std::move(pending_.front());
      pending_.pop_front();
      std::optional<Candidate> candidate =
          first_ ? std::exchange(first_, std::nullopt) : Write(point);
      if (!candidate) continue;
      given_.push_back(std::move(point));
      return candidate;
    }
    return std::nullopt;
  }

  void Tell(size_t nth, const SearchFeedback& feedback) override {
    const bool gain = feedback.correct && feedback.ns && *feedback.ns < kGain * best_ns_;
    without_gain_ = gain ? 0 : without_gain_ + 1;
    if (!feedback.correct || !feedback.ns || *feedback.ns >= best_ns_) return;
    best_ns_ = *feedback.ns;
    const Point& point = given_.at(nth);
    if (best_ != point) improved_ = true;
    if (best_.variant != point.variant) stage_ = 0;
    best_ = point;
  }

 private:
  RowSearch(const OpSignature& signature, bool cuda)
      : signature_(signature),
        cuda_(cuda),
        most_(cuda ? kMostCandidatesCuda : kMostCandidatesCpu) {}

  void AddVariant(Program program, const DeviceArch& arch) {
    Variant variant;
    for (const Stage& stage : program.stages) {
      variant.schedules.push_back(cuda_ ? CudaSchedules(stage, arch) : CpuSchedules(stage, arch));
      if (variant.schedules.back().empty()) {
        failure_ = Status::Unsupported("a stage has no schedule");
        return;
      }
    }
    variant.order.resize(program.stages.size());
    std::iota(variant.order.begin(), variant.order.end(), size_t{0});
    std::stable_sort(variant.order.begin(), variant.order.end(), [&](size_t a, size_t b) {
      return Work(program.stages[a]) > Work(program.stages[b]);
    });
    variant.program = std::move(program);
    Point point{variants_.size(), std::vector<size_t>(variant.schedules.size(), 0)};
    if (variants_.empty()) best_ = point;
    variants_.push_back(std::move(variant));
    seen_.insert(point);
    pending_.push_back(std::move(point));
  }

  // Adds the neighbours of the best point along its next stage. Returns false after a whole round
  // without a gain.
  bool Refill() {
    const Variant& variant = variants_[best_.variant];
    if (stage_ == variant.order.size()) {
      if (!improved_) return false;
      improved_ = false;
      stage_ = 0;
    }
    const size_t s = variant.order[stage_++];
    for (size_t k = 0; k < variant.schedules[s].size(); ++k) {
      Point point = best_;
      point.choice[s] = k;
      if (seen_.insert(point).second) pending_.push_back(std::move(point));
    }
    return true;
  }

  // The candidate of a point; nothing if it cannot be written, or equals an earlier one.
  std::optional<Candidate> Write(const Point& point) {
    const Variant& variant = variants_[point.variant];
    std::vector<Schedule> schedules;
    for (size_t s = 0; s < point.choice.size(); ++s) {
      schedules.push_back(variant.schedules[s][point.choice[s]]);
    }
    Result<Candidate> candidate = cuda_ ? EmitCuda(variant.program, signature_, schedules)
                                        : EmitCpu(variant.program, signature_, schedules);
    if (!candidate.ok()) {
      failure_ = candidate.status();
      return std::nullopt;
    }
    Json text = candidate->ToJson();
    text.erase("params");
    if (!texts_.insert(text.dump()).second) return std::nullopt;
    return *std::move(candidate);
  }

  const OpSignature signature_;
  const bool cuda_;
  const size_t most_;
  std::vector<Variant> variants_;
  std::deque<Point> pending_;
  std::set<Point> seen_;
  std::set<std::string> texts_;
  std::optional<Candidate> first_;  // of pending_.front(), written by the constructor
  Status failure_ = Status::Unsupported("no candidate could be written");
  std::vector<Point> given_;  // by Next, in order
  Point best_;
  double best_ns_ = std::numeric_limits<double>::infinity();
  bool improved_ = false;
  size_t stage_ = 0;
  int without_gain_ = 0;
};

}  // namespace

Result<std::unique_ptr<CandidateSearch>> MakeRowSearch(const OpSignature& signature,
                                                       const DeviceArch& arch) {
  return RowSearch::Create(signature, arch);
}

}  // namespace cudaforge::rows
