#include "verify/aten_slice_judgement.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "signature/op_facts.h"
#include "verify/aten_slice_state.h"
#include "verify/elements.h"
#include "verify/match.h"

namespace cudaforge {
namespace {

constexpr int64_t kFewElements = 256;  // smaller outputs pool ATen's errors over all sets
constexpr size_t kFewForRatio = 8;     // below it, ratios of all sets are used
constexpr int64_t kCheapBytes = int64_t{64} << 20;  // of float64; below it kThorough is used at
                                                    // once
constexpr int64_t kEnoughForEqual = 64;
constexpr size_t kValuesOfRows = 3;  // see RowsAreOneValue
// ATen is wrong if its error is this many times above that of any order of its sums on the slices.
// A smaller excess may be another algorithm for larger sizes (Winograd), and counts as its error.
constexpr double kGross = 16;

TensorSpec OneDimension(DType dtype, size_t elements) {
  TensorSpec spec;
  spec.dtype = dtype;
  spec.sizes = {static_cast<int64_t>(elements)};
  spec.strides = {1};
  spec.alignment = DTypeSize(dtype);
  return spec;
}

// The most elements that a scan of the region adds for one result; 1 without a scan.
int64_t LongestScan(const OpSignature& signature) {
  int64_t longest = 1;
  for (const Node& node : signature.nodes) {
    if (FactsOf(node.op).kind != OpKind::kScans || node.outputs.empty()) continue;
    for (const int64_t size : node.outputs[0].sizes) longest = std::max(longest, size);
  }
  return longest;
}

double ElementAt(DType dtype, const std::string& bytes, size_t i) {
  return LoadElement(dtype, bytes.data() + i * static_cast<size_t>(DTypeSize(dtype)));
}

// Elements in which ATen may be wrong: its error is larger than, or different from, that on slices.
std::vector<size_t> Odd(DType dtype, const MeasuredElements& elements) {
  std::vector<size_t> odd;
  for (size_t i = 0; i < elements.count(); ++i) {
    const double r = elements.float64[i];
    const double a = ElementAt(dtype, elements.aten, i);
    if (!std::isfinite(RoundTo(dtype, r))) continue;
    double most = 0;
    for (const std::string& run : elements.runs) {
      const double value = ElementAt(dtype, run, i);
      if (std::isfinite(value)) most = std::max(most, std::fabs(value - r));
    }
    const bool masked = !std::isfinite(a) && std::isfinite(ElementAt(dtype, elements.runs[0], i));
    if (masked || std::fabs(a - r) > kGross * (most + UlpOf(dtype, r))) odd.push_back(i);
  }
  return odd;
}

// Adds each element's ratio of ATen's largest error to the effect of perturbations.
void AddRatios(DType dtype, const MeasuredElements& elements, std::vector<double>* ratios) {
  for (size_t i = 0; i < elements.count(); ++i) {
    const double r = elements.float64[i];
    double most = 0, moved = 0;
    for (const std::string& run : elements.runs) {
      most = std::max(most, std::fabs(ElementAt(dtype, run, i) - r));
    }
    for (const std::vector<double>& move : elements.moves) {
      moved = std::max(moved, std::fabs(move[i] - r));
    }
    const double ratio = most / moved;
    if (std::isfinite(ratio)) ratios->push_back(ratio);
  }
}

// Returns true if each of ATen's values equals the float64 one, including NaN.
bool IsExact(DType dtype, const MeasuredElements& elements) {
  const auto equal = [&](const std::string& bytes) {
    for (size_t i = 0; i < elements.count(); ++i) {
      const double a = ElementAt(dtype, bytes, i), r = elements.float64[i];
      if (a != r && !(std::isnan(a) && std::isnan(r))) return false;
    }
    return true;
  };
  return equal(elements.aten) && std::all_of(elements.runs.begin(), elements.runs.end(), equal);
}

double HighOf(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() * 9 / 10);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

SliceJudgement::SliceJudgement() = default;
SliceJudgement::~SliceJudgement() = default;

Result<std::unique_ptr<SliceJudgement>> SliceJudgement::Create(const OpSignature& signature,
                                                               const SliceLimits& limits) {
  std::unique_ptr<SliceJudgement> made(new SliceJudgement());
  made->signature_ = signature;
  made->limits_ = limits;
  const Match by_ops = MatchForOps(signature);
  int64_t largest = 1;
  for (const TensorSpec& input : signature.inputs) largest = std::max(largest, input.numel());
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    const TensorSpec& spec = signature.output_spec(o);
    Output output;
    output.dtype = spec.dtype;
    output.terms = std::max(largest / std::max<int64_t>(spec.numel(), 1), LongestScan(signature));
    if (IsFloating(spec.dtype) && !IsConstant(signature, o)) {
      output.match = by_ops;
      if (by_ops == Match::kTolerance) {
        auto plan = SlicePlan::Make(FindAxes(signature, o), limits);
        if (!plan.ok()) {
          return Status(plan.status().code(),
                        "output " + std::to_string(o) + ": " + plan.status().message());
        }
        output.plan = std::move(*plan);
        SliceLimits few = limits;
        few.aim = 0;
        few.fewest = 8;
        auto narrow = SlicePlan::Make(output.plan->axes(), few,
                                      {output.plan->sums().begin(), output.plan->sums().end()});
        output.narrow = narrow.ok() ? std::move(*narrow) : *output.plan;
      }
    }
    made->outputs_.push_back(std::move(output));
  }
  return made;
}

OutputReference SliceJudgement::ReferenceOf(size_t output, const MeasuredElements& elements,
                                            std::span<const OutputDraw> draws, double ratio,
                                            std::vector<bool>* aten_wrong) const {
  const Output& of = outputs_[output];
  const TensorSpec spec = OneDimension(of.dtype, elements.count());
  aten_wrong->assign(elements.count(), false);
  auto finish = [&](std::optional<Yardstick> yardstick) {
    OutputReference reference(spec, elements.aten, elements.float64, std::move(yardstick));
    reference.set_match(of.match);
    reference.set_places(elements.numbers, signature_.output_spec(output).sizes);
    reference.set_aten_wrong(*aten_wrong);
    return reference;
  };
  if (!of.plan.has_value()) return finish(std::nullopt);
  std::string own = elements.aten;
  std::vector<const std::string*> runs;
  for (const std::string& run : elements.runs) runs.push_back(&run);
  if (const std::vector<size_t> odd = Odd(of.dtype, elements); !odd.empty()) {
    Yardstick on_slices(spec, runs, elements.float64, elements.moves, {}, of.terms);
    on_slices.set_typical_ratio(ratio);
    const auto size = static_cast<size_t>(DTypeSize(of.dtype));
    for (const size_t i : odd) {
      const double r = elements.float64[i];
      const double error = std::fabs(ElementAt(of.dtype, own, i) - r);
      if (error <= kGross * on_slices.MaxLimit(static_cast<int64_t>(i), r)) continue;
      (*aten_wrong)[i] = true;
      StoreElement(of.dtype, r, own.data() + i * size);  // does not measure a kernel's possible
                                                         // error
    }
  }
  runs.insert(runs.begin(), &own);
  Yardstick yardstick(spec, runs, elements.float64, elements.moves, draws, of.terms);
  yardstick.set_typical_ratio(ratio);
  return finish(std::move(yardstick));
}

Result<size_t> SliceJudgement::Prepare(std::string name, const SetTensors& tensors, uint64_t seed) {
  auto set = std::make_unique<Set>();
  set->name = std::move(name);
  set->seed = seed;
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const TensorSpec& spec = signature_.output_spec(o);
    const int64_t numel = spec.numel();
    Set::One one;
    std::vector<int64_t> numbers;
    if (numel > 0) numbers = {0, numel - 1};
    if (outputs_[o].plan.has_value()) {
      const SlicePlan& plan = *outputs_[o].plan;
      // An output of few elements uses the ratios of all sets, which must be computed now.
      const bool few = numel < static_cast<int64_t>(kFewForRatio) && plan.work() <= kCheapBytes;
      const Effort effort = few ? kThorough : kQuick;
      CF_RETURN_IF_ERROR(
          MeasureSlices(plan, plan.Batches(numbers, plan.slices(), limits_.elements, seed + o),
                        tensors.inputs, tensors.aten[o], seed, effort, &one.elements));
      // Finish uses exact comparison if ATen was exact in all orders of all sets.
      bool& exact = outputs_[o].exact_so_far;
      exact = exact && IsExact(spec.dtype, one.elements);
      if (exact) {
        CF_RETURN_IF_ERROR(MeasureThoroughly(plan, tensors.inputs, tensors.aten[o].scalar_type(),
                                             seed, &one.elements));
      }
    } else {
      SplitMix random(seed + o);
      const bool all = numel <= limits_.elements;
      if (all) numbers.clear();
      for (int64_t i = 0; i < std::min(numel, limits_.elements); ++i) {
        numbers.push_back(all ? i
                              : static_cast<int64_t>(random.Below(static_cast<uint64_t>(numel))));
      }
      one.elements.numbers = numbers;
      one.elements.aten = BytesOfElements(tensors.aten[o], numbers);
    }
    for (const Decoy decoy : kDecoys) {
      one.decoys.push_back(DecoyOfElements(decoy, spec, one.elements.numbers, one.elements.aten,
                                           tensors.aten[o], signature_, tensors.inputs));
    }
    set->outputs.push_back(std::move(one));
  }
  sets_.push_back(std::move(set));
  return sets_.size() - 1;
}

// ATen's errors in the other sets, if an output of few elements pools them.
std::vector<OutputDraw> SliceJudgement::DrawsOfOthers(size_t set, size_t output) const {
  std::vector<OutputDraw> draws;
  const Output& of = outputs_[output];
  if (!of.plan.has_value() || signature_.output_spec(output).numel() >= kFewElements ||
      of.dtype == DType::kFloat64) {
    return draws;
  }
  const MeasuredElements& own = sets_[set]->outputs[output].elements;
  for (const auto& other : sets_) {
    // A set may have an element twice; the sizes must be equal.
    const MeasuredElements& elements = other->outputs[output].elements;
    if (other == sets_[set] || elements.count() != own.count()) continue;
    draws.push_back({elements.aten, elements.float64});
  }
  return draws;
}

// Uses all measurements so far.
void SliceJudgement::SetReference(size_t set, size_t output) {
  Set::One& one = sets_[set]->outputs[output];
  const bool few = one.elements.count() < kFewForRatio;
  std::vector<double> ratios;
  for (const auto& other : sets_) {
    if (!outputs_[output].plan.has_value() || (other != sets_[set] && !few)) continue;
    if (other->outputs[output].elements.effort.moves < kThorough.moves) continue;
    AddRatios(outputs_[output].dtype, other->outputs[output].elements, &ratios);
  }
  one.ratio = std::max(one.ratio, HighOf(std::move(ratios)));
  one.reference =
      ReferenceOf(output, one.elements, DrawsOfOthers(set, output), one.ratio, &one.aten_wrong);
  for (const OutputDraw& draw : one.typical) one.reference->AddTypical(draw, /*alone=*/true);
}

void SliceJudgement::Finish() {
  for (size_t o = 0; o < outputs_.size(); ++o) {
    bool exact = outputs_[o].plan.has_value() && outputs_[o].dtype != DType::kFloat64;
    int64_t nonzero = 0;
    for (size_t set = 0; set < sets_.size(); ++set) {
      SetReference(set, o);
      const Set::One& one = sets_[set]->outputs[o];
      if (!exact) continue;
      exact = one.reference->yardstick()->aten_is_exact();
      nonzero += one.reference->yardstick()->nonzero();
    }
    if (exact && nonzero >= kEnoughForEqual) outputs_[o].match = Match::kEqual;
    for (const auto& set : sets_) set->outputs[o].reference->set_match(outputs_[o].match);
  }
}

Match SliceJudgement::match(size_t output) const { return outputs_[output].match; }

Status SliceJudgement::TryDecoys() const {
  // Returns true if each row of the output is constant on every set, in float64 exactly, and rows
  // or sets differ. A kernel that repeats the first element is then correct.
  auto rows_are_one_value = [&](size_t o, size_t decoy) {
    const int64_t columns = signature_.output_spec(o).sizes.back();
    std::set<double> values;
    for (const auto& set : sets_) {
      const Set::One& one = set->outputs[o];
      if (one.elements.float64.empty() || one.decoys[decoy] != one.elements.aten) return false;
      std::unordered_map<int64_t, double> row;
      for (size_t i = 0; i < one.elements.count(); ++i) {
        const double value = one.elements.float64[i];
        const double first = row.emplace(one.elements.numbers[i] / columns, value).first->second;
        if (value != first && !(std::isnan(value) && std::isnan(first))) return false;
        if (std::isfinite(value) && values.size() < kValuesOfRows) values.insert(value);
      }
    }
    return values.size() >= kValuesOfRows;
  };
  for (size_t o = 0; o < outputs_.size(); ++o) {
    if (IsConstant(signature_, o)) continue;
    for (size_t d = 0; d < std::size(kDecoys); ++d) {
      bool tried = false, caught = false;
      for (const auto& set : sets_) {
        const Set::One& one = set->outputs[o];
        if (!one.decoys[d].has_value() || caught) continue;
        tried = true;
        caught = !one.reference->Check(*one.decoys[d], "").accepted();
      }
      if (!tried || caught) continue;
      if (kDecoys[d] == Decoy::kRowConstant && rows_are_one_value(o, d)) continue;
      return Status::Unsupported(
          "cannot tell right from wrong: " + std::string(DecoyName(kDecoys[d])) +
          " would pass as output " + std::to_string(o));
    }
  }
  return Status::Ok();
}

Status SliceJudgement::AddTypical(size_t set, const SetTensors& tensors, uint64_t seed) {
  Set& of = *sets_[set];
  for (size_t o = 0; o < outputs_.size(); ++o) {
    if (!outputs_[o].plan.has_value()) continue;
    const SlicePlan& plan = *outputs_[o].plan;
    MeasuredElements elements;
    CF_RETURN_IF_ERROR(MeasureSlices(plan, of.outputs[o].elements.batches, tensors.inputs,
                                     tensors.aten[o], seed, {kThorough.moves, false}, &elements));
    // ATen's own answer, and one in another order.
    const size_t other = elements.runs.size() / 2;
    for (const std::string* run : {&elements.aten, &elements.runs[other]}) {
      of.outputs[o].typical.push_back({*run, elements.float64});
      of.outputs[o].reference->AddTypical(of.outputs[o].typical.back(), /*alone=*/true);
    }
    std::vector<double> ratios;
    AddRatios(outputs_[o].dtype, elements, &ratios);
    of.outputs[o].ratio = std::max(of.outputs[o].ratio, HighOf(std::move(ratios)));
    of.outputs[o].reference->WidenRatio(of.outputs[o].ratio);
  }
  return Status::Ok();
}

Json SliceJudgement::Report() const {
  static constexpr const char* kRules[] = {"tolerance", "equal", "bitwise"};
  Json cases = Json::array();
  for (const auto& set : sets_) {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Set::One& one = set->outputs[o];
      Json entry = {{"case", set->name},
                    {"output", o},
                    {"rule", kRules[static_cast<int>(outputs_[o].match)]},
                    {"elements", one.elements.count()},
                    {"of_elements", signature_.output_spec(o).numel()}};
      if (outputs_[o].plan.has_value()) {
        int64_t slices = 0;
        for (const SliceBatch& batch : one.elements.batches) {
          const int points = batch.selection.points;
          slices += points < 0
                        ? 1
                        : static_cast<int64_t>(
                              batch.selection.axes[static_cast<size_t>(points)].places.size());
        }
        entry["slices"] = slices;
        entry["orders"] = one.elements.runs.size() + 1;
        if (one.reference.has_value()) entry.update(one.reference->yardstick()->ToJson());
        const auto wrong = std::count(one.aten_wrong.begin(), one.aten_wrong.end(), true);
        if (wrong > 0) entry["aten_wrong"] = wrong;
        if (!one.aten_wrong_elements.empty()) {
          entry["aten_wrong_elements"] = one.aten_wrong_elements;
        }
      }
      cases.push_back(std::move(entry));
    }
  }
  return {{"cases", std::move(cases)}};
}

}  // namespace cudaforge
