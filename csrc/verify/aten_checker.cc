#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "signature/aten_pch.h"
#include "signature/from_aten_region.h"
#include "verify/aten_derive.h"
#include "verify/aten_reference.h"
#include "verify/checker.h"
#include "verify/compare.h"
#include "verify/decoys.h"
#include "verify/input_plan.h"
#include "verify/inputs.h"
#include "verify/match.h"

namespace cudaforge {
namespace {

// Random moves of the inputs by a rounding unit, for the conditioning of each element.
constexpr uint64_t kMoves = 4;
// More of them where so few elements are beyond their limits that four moves may have missed what
// other rounding does to just these (see yardstick.cc).
constexpr uint64_t kMoreMoves = 16;
// Values that show that an output depends on the inputs, although each of its rows is of one value.
constexpr size_t kRowValues = 3;
// Non-zero elements, over all sets, that must equal the oracle before ATen is called exact.
constexpr int64_t kEnoughForExact = 64;

struct Case {
  InputSet inputs;
  std::vector<OutputReference> outputs;
  uint64_t seed = 0;
  uint64_t moves = 0;  // of the inputs, made so far
  InputKind kind = InputKind::kNormal;
  int turn = 0;  // see MakeInputs
  enum { kNotAsked, kMade, kNone } typical = kNotAsked;
};

// ATen warns of inputs (a variance of one element) that nobody gave it but us.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

class AtenChecker : public RegionChecker {
 public:
  static Result<std::unique_ptr<RegionChecker>> Make(const OpSignature& signature, int device_index,
                                                     uint64_t seed, double seconds) {
    const double began = SteadySeconds();
    const at::NoGradGuard no_grad;
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard silent(&silence);
    CF_ASSIGN_OR_RETURN(auto program, RegionProgram::Create(signature));
    CF_ASSIGN_OR_RETURN(const auto roles, FindRoles(signature));
    int64_t elements = 0;
    for (size_t o = 0; o < signature.outputs.size(); ++o) {
      elements += signature.output_spec(o).numel();
    }
    if (elements == 0) return Status::Unsupported("no output elements: nothing to judge");

    const at::Device device =
        signature.device == DeviceType::kCuda
            ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device_index))
            : at::Device(at::kCPU);
    auto checker = std::make_unique<AtenChecker>(signature, roles, std::move(program), device);
    const InputPlan& plan = checker->plan_;
    std::map<InputKind, int> turns;
    std::vector<std::vector<OutputDraw>> ordinary;
    double first_s = 0, done = 0, left = 0;  // done, left: costs of sets, the first left out
    for (const InputKind kind : plan.kinds) left += plan.Cost(kind);
    for (size_t k = 0; k < plan.kinds.size(); ++k) {
      const InputKind kind = plan.kinds[k];
      const double spent_s = SteadySeconds() - began;
      double expected_s = spent_s;
      if (k == 1) {  // partly of loading libraries
        first_s = spent_s;
        expected_s = 2 * spent_s;
      } else if (k > 1) {
        expected_s += (spent_s - first_s) / done * left;
      }
      if (expected_s > seconds) {
        return Status::Timeout("its verification would take longer than the time allowed");
      }
      if (k > 0) done += plan.Cost(kind);
      left -= plan.Cost(kind);
      const int turn = turns[kind]++;
      auto make = [&](uint64_t from) -> Result<InputSet> {
        InputSet set = MakeInputs(signature, roles, kind, from, turn);
        CF_RETURN_IF_ERROR(DeriveInputs(signature, &set));
        return set;
      };
      Case made;
      made.kind = kind;
      made.turn = turn;
      CF_ASSIGN_OR_RETURN(made.inputs, make(seed));
      made.inputs.id = NextId();
      std::vector<std::vector<OutputDraw>> drawn(signature.outputs.size());
      // All but single elements are of the size of normal numbers, and so are ATen's errors.
      if (kind == InputKind::kOneSpecial) drawn = ordinary;
      const bool varies = InputPlan::Varies(kind);
      for (int64_t d = 0; varies && d < plan.draws; ++d) {
        CF_ASSIGN_OR_RETURN(const InputSet set,
                            make(SplitMix(seed + ~static_cast<uint64_t>(d)).Next()));
        CF_RETURN_IF_ERROR(checker->AddDraw(set, &drawn));
      }
      if (kind == InputKind::kNormal) ordinary = drawn;
      CF_RETURN_IF_ERROR(checker->AddCase(std::move(made), drawn, seed));
      if (plan.twice && varies) {
        Case again;
        again.kind = kind;
        again.turn = turn;
        CF_ASSIGN_OR_RETURN(again.inputs, make(~seed));
        again.inputs.id = NextId();
        again.inputs.name += ", again";
        CF_RETURN_IF_ERROR(checker->AddCase(std::move(again), drawn, ~seed));
      }
    }
    checker->ChooseMatches();
    CF_RETURN_IF_ERROR(checker->TryDecoys());
    return std::unique_ptr<RegionChecker>(std::move(checker));
  }

  AtenChecker(const OpSignature& signature, std::vector<InputRole> roles,
              std::unique_ptr<RegionProgram> program, at::Device device)
      : signature_(signature),
        roles_(std::move(roles)),
        plan_(PlanInputs(signature_, roles_)),
        program_(std::move(program)),
        reference_(*program_, device) {}

  size_t case_count() const override { return cases_.size(); }
  const InputSet& inputs(size_t i) const override { return cases_.at(i).inputs; }

  Verdict Check(size_t i, std::span<const std::string> outputs) const override {
    const Case& one = cases_.at(i);
    if (outputs.size() != one.outputs.size()) {
      return {VerdictKind::kWrongShape,
              std::to_string(outputs.size()) + " outputs where the region has " +
                  std::to_string(one.outputs.size()),
              Json::object()};
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      Verdict verdict = one.outputs[o].Check(outputs[o], Where(one, o));
      if (one.outputs[o].MovesMayClear(verdict) && LookCloser(i)) {
        verdict = one.outputs[o].Check(outputs[o], Where(one, o), /*closely=*/true);
      }
      if (one.outputs[o].SetsMayClear(verdict) && AskTypical(i)) {
        verdict = one.outputs[o].Check(outputs[o], Where(one, o), /*closely=*/true);
      }
      if (!verdict.accepted()) return verdict;
    }
    return {};
  }

  Json Report() const override {
    static constexpr const char* kRules[] = {"tolerance", "equal", "bitwise"};
    Json cases = Json::array();
    for (const Case& one : cases_) {
      for (size_t o = 0; o < one.outputs.size(); ++o) {
        Json entry = {{"case", one.inputs.name},
                      {"output", o},
                      {"rule", kRules[static_cast<int>(one.outputs[o].match())]},
                      {"elements", one.outputs[o].spec().numel()}};
        if (one.outputs[o].yardstick().has_value()) {
          entry.update(one.outputs[o].yardstick()->ToJson());
        }
        cases.push_back(std::move(entry));
      }
    }
    return {{"cases", cases}, {"aten_deterministic", deterministic_}};
  }

 private:
  static std::string Where(const Case& one, size_t output) {
    return "inputs \"" + one.inputs.name + "\", output " + std::to_string(output);
  }

  // ATen's answers and the oracle's on `set`, one more draw for each small output.
  Status AddDraw(const InputSet& set, std::vector<std::vector<OutputDraw>>* drawn) const {
    try {
      const std::vector<at::Tensor> inputs = reference_.Inputs(set);
      std::vector<std::string> aten = reference_.Aten(inputs);
      std::vector<std::vector<double>> oracle = reference_.Oracle(inputs);
      for (size_t o = 0; o < aten.size(); ++o) {
        if (!NeedsMoreDraws(signature_.output_spec(o))) continue;
        (*drawn)[o].push_back({std::move(aten[o]), std::move(oracle[o])});
      }
    } catch (const std::exception& error) {
      return Refused(set, error);
    }
    return Status::Ok();
  }

  static Status Refused(const InputSet& set, const std::exception& error) {
    const auto* of_aten = dynamic_cast<const c10::Error*>(&error);
    const bool no_memory = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                           dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    if (no_memory) {  // which says nothing of the region
      return Status::NoMemory(
          "the region cannot be judged here now, for want of memory: " +
          std::string(of_aten != nullptr ? of_aten->what_without_backtrace() : error.what()));
    }
    const bool has_result = dynamic_cast<const UnexpectedResult*>(&error) != nullptr;
    return Status::Unsupported(
        std::string(has_result ? "PyTorch's kernel gives something else than its trace says: "
                               : "PyTorch itself refuses this region's inputs: ") +
        std::string(of_aten != nullptr ? of_aten->what_without_backtrace() : error.what()) +
        " (input set \"" + set.name + "\")");
  }

  // The fp64 answers of a case after its next random move.
  std::vector<std::vector<double>> Move(Case* one, const std::vector<at::Tensor>& inputs) const {
    const uint64_t seed = one->seed + (one->moves++ << 32);
    return reference_.Oracle(reference_.PerturbedInputs(one->inputs, inputs, seed));
  }

  // Has the moves made that a case in doubt is given, once; false where they cannot be made.
  bool LookCloser(size_t i) const {
    Case& one = cases_[i];
    if (one.moves > kMoves) return one.moves == kMoves + kMoreMoves;
    const at::NoGradGuard no_grad;
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard silent(&silence);
    try {
      const std::vector<at::Tensor> inputs = reference_.Inputs(one.inputs);
      while (one.moves < kMoves + kMoreMoves) {
        const std::vector<std::vector<double>> moved = Move(&one, inputs);
        for (size_t o = 0; o < moved.size(); ++o) one.outputs[o].AddMove(moved[o]);
      }
    } catch (const std::exception&) {  // no memory: what stands, stands
      one.moves = kMoves + kMoreMoves + 1;
      return false;
    }
    return true;
  }

  // Has ATen's answers on more sets of a case's kind taken in, once; false where not all could be:
  // those that were stay.
  bool AskTypical(size_t i) const {
    Case& one = cases_[i];
    if (one.typical != Case::kNotAsked) return one.typical == Case::kMade;
    one.typical = Case::kNone;
    InputKind kind = one.kind;
    if (kind == InputKind::kOneSpecial) kind = InputKind::kNormal;  // see Make
    if (!InputPlan::Varies(kind)) return false;
    const at::NoGradGuard no_grad;
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard silent(&silence);
    try {
      for (int64_t n = 0; n < plan_.sets_in_doubt; ++n) {
        const uint64_t seed = SplitMix(one.seed + (static_cast<uint64_t>(n + 1) << 40)).Next();
        InputSet set = MakeInputs(signature_, roles_, kind, seed, one.turn);
        if (!DeriveInputs(signature_, &set).ok()) return false;
        const std::vector<at::Tensor> inputs = reference_.Inputs(set);
        std::vector<std::string> aten = reference_.Aten(inputs);
        std::vector<std::vector<double>> oracle = reference_.Oracle(inputs);
        for (size_t o = 0; o < aten.size(); ++o) {
          one.outputs[o].AddTypical({std::move(aten[o]), std::move(oracle[o])});
        }
      }
    } catch (const std::exception&) {  // no memory: what stands, stands
      return false;
    }
    one.typical = Case::kMade;
    return true;
  }

  Status AddCase(Case made, const std::vector<std::vector<OutputDraw>>& drawn, uint64_t seed) {
    made.seed = seed;
    std::vector<std::string> first, second;
    std::vector<std::vector<double>> oracle;
    std::vector<std::vector<std::vector<double>>> moves;  // by output, then by move
    try {
      const std::vector<at::Tensor> inputs = reference_.Inputs(made.inputs);
      first = reference_.Aten(inputs);
      second = reference_.Aten(inputs);
      oracle = reference_.Oracle(inputs);
      moves.resize(first.size());
      for (uint64_t move = 0; move < kMoves; ++move) {
        auto moved = Move(&made, inputs);
        for (size_t o = 0; o < moved.size(); ++o) moves[o].push_back(std::move(moved[o]));
      }
    } catch (const std::exception& error) {
      return Refused(made.inputs, error);
    }
    int64_t largest = 0;  // elements of an input: an output's element may be a sum of its share
    for (const TensorSpec& input : signature_.inputs) largest = std::max(largest, input.numel());
    for (size_t o = 0; o < first.size(); ++o) {
      const TensorSpec& spec = signature_.output_spec(o);
      deterministic_ = deterministic_ && first[o] == second[o];
      std::optional<Yardstick> yardstick;
      const bool same = first[o] == second[o];
      if (IsFloating(spec.dtype)) {
        const std::string* runs[] = {&first[o], &second[o]};
        yardstick.emplace(spec, std::span(runs, same ? 1 : 2), oracle[o], moves[o], drawn[o],
                          largest / std::max<int64_t>(spec.numel(), 1));
      } else if (!same) {
        return Status::Unsupported("ATen gives different integers on the same inputs");
      }
      made.outputs.emplace_back(spec, std::move(first[o]), std::move(oracle[o]),
                                std::move(yardstick));
    }
    cases_.push_back(std::move(made));
    return Status::Ok();
  }

  void ChooseMatches() {
    const Match by_ops = MatchForOps(signature_);
    for (size_t o = 0; o < signature_.outputs.size(); ++o) {
      const DType dtype = signature_.output_spec(o).dtype;
      Match match = Match::kBitwise;
      if (IsFloating(dtype) && !IsConstant(signature_, o)) {
        bool exact = dtype != DType::kFloat64;  // there the oracle is the same computation
        int64_t nonzero = 0;
        for (const Case& one : cases_) {
          exact = exact && one.outputs[o].yardstick()->aten_is_exact();
          nonzero += one.outputs[o].yardstick()->nonzero();
        }
        match = by_ops == Match::kTolerance && exact && nonzero >= kEnoughForExact ? Match::kEqual
                                                                                   : by_ops;
      }
      for (Case& one : cases_) one.outputs[o].set_match(match);
    }
  }

  // Whether each row of output `o` is one value, on every set and in the oracle to the last bit,
  // and another one from row to row or set to set. All elements of the inputs are drawn
  // independently, so this is no chance: it is what the function does (the gradient of an average
  // over the whole plane), and a kernel that repeats the right value is right.
  bool RowsAreOneValue(size_t o) const {
    std::set<double> values;
    for (const Case& one : cases_) {
      const OutputReference& output = one.outputs[o];
      if (output.oracle().empty()) return false;
      const int64_t columns = output.spec().sizes.back();
      for (size_t i = 0; i < output.oracle().size(); ++i) {
        const double value = output.oracle()[i];
        const double first = output.oracle()[i - i % static_cast<size_t>(columns)];
        if (value != first && !(std::isnan(value) && std::isnan(first))) return false;
        if (std::isfinite(value) && values.size() < kRowValues) values.insert(value);
      }
      const auto decoy =
          MakeDecoy(Decoy::kRowConstant, output.spec(), output.aten(), signature_, one.inputs);
      if (decoy != output.aten()) return false;
    }
    return values.size() >= kRowValues;
  }

  // Every decoy, in place of every output, must fail in at least one case. Not of constants: what
  // passes there is right.
  Status TryDecoys() const {
    for (size_t o = 0; o < signature_.outputs.size(); ++o) {
      if (IsConstant(signature_, o)) continue;
      for (const Decoy decoy : kDecoys) {
        bool tried = false;
        bool caught = false;
        for (const Case& one : cases_) {
          const OutputReference& output = one.outputs[o];
          const auto bytes = MakeDecoy(decoy, output.spec(), output.aten(), signature_, one.inputs);
          if (!bytes.has_value()) break;
          tried = true;
          caught = !output.Check(*bytes, "").accepted();
          if (caught) break;
        }
        if (tried && !caught && !(decoy == Decoy::kRowConstant && RowsAreOneValue(o))) {
          return Status::Unsupported(
              "cannot tell right from wrong: " + std::string(DecoyName(decoy)) +
              " would pass as output " + std::to_string(o));
        }
      }
    }
    return Status::Ok();
  }

  OpSignature signature_;
  std::vector<InputRole> roles_;
  InputPlan plan_;
  std::unique_ptr<RegionProgram> program_;
  AtenReference reference_;
  mutable std::vector<Case> cases_;  // Check adds moves and sets to those in doubt
  bool deterministic_ = true;
};

}  // namespace

Result<std::unique_ptr<RegionChecker>> RegionChecker::Create(const OpSignature& signature,
                                                             int device_index, uint64_t seed,
                                                             double seconds) {
  return AtenChecker::Make(signature, device_index, seed, seconds);
}

}  // namespace cudaforge
