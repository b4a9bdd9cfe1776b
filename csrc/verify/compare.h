// Compares a candidate's elements with ATen's and with float64's. "Oracle" is the float64 answer.
//
// Match::kTolerance: NaN, +inf and -inf must be exactly where ATen has them. ATen and the oracle
// (rounded to the dtype) may differ in this, because an intermediate overflowed in one of them.
// Then either is accepted, and a finite answer must be within two ulps of theirs. Other finite
// elements are compared by the yardstick.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/verdict.h"
#include "signature/op_signature.h"
#include "verify/match.h"
#include "verify/yardstick.h"

namespace cudaforge {

// The correct answers for elements of one output on one input set.
class OutputReference {
 public:
  OutputReference(TensorSpec spec, std::string aten, std::vector<double> oracle,
                  std::optional<Yardstick> yardstick)
      : spec_(std::move(spec)),
        aten_(std::move(aten)),
        oracle_(std::move(oracle)),
        yardstick_(std::move(yardstick)) {}

  const TensorSpec& spec() const { return spec_; }
  const std::string& aten() const { return aten_; }
  const std::vector<double>& oracle() const { return oracle_; }  // empty for integers
  const std::optional<Yardstick>& yardstick() const { return yardstick_; }
  void set_match(Match match) { match_ = match; }
  // The elements are part of a larger output of these sizes, with these row-major indices there.
  // Evidence uses those indices.
  void set_places(std::vector<int64_t> numbers, std::vector<int64_t> sizes) {
    places_ = std::move(numbers);
    sizes_ = std::move(sizes);
  }
  // Elements in which ATen is wrong by float64. A value within two ulps of the oracle passes too.
  void set_aten_wrong(std::vector<bool> elements) { aten_wrong_ = std::move(elements); }
  // The number of elements of the whole output.
  int64_t whole_numel() const;
  // Adds a perturbation's oracle values, for Check with `closely`; see Yardstick::AddPerturbation.
  void AddPerturbation(const std::vector<double>& moved) {
    if (!yardstick_.has_value()) return;
    if (!closer_.has_value()) closer_ = yardstick_;
    closer_->AddPerturbation(oracle_, moved);
  }
  // Adds ATen's answer on another set of the same kind, for Check with `closely`; see
  // Yardstick::AddTypical.
  void AddTypical(const OutputDraw& draw, bool alone = false) {
    if (!yardstick_.has_value()) return;
    if (!closer_.has_value()) closer_ = yardstick_;
    closer_->AddTypical(spec_, draw, alone);
  }
  // See Yardstick::set_typical_ratio; for Check with `closely`.
  void WidenRatio(double ratio) {
    if (!yardstick_.has_value()) return;
    if (!closer_.has_value()) closer_ = yardstick_;
    closer_->set_typical_ratio(ratio);
  }
  Match match() const { return match_; }

  // Returns kAccepted, kWrongShape (another number of bytes) or kWrongValues, with the worst
  // element as evidence. `where` names the case and the output. `closely`: uses the limits widened
  // by AddPerturbation and AddTypical, and groups zeros with elements of the candidate's size.
  Verdict Check(const std::string& candidate, std::string_view where, bool closely = false) const;

  // The same for single elements, which were chosen as the worst. Root-mean-squares are not
  // checked.
  Verdict CheckElements(const std::string& candidate, std::string_view where,
                        bool closely = false) const;

  // Returns true if more perturbations, or more sets, may clear `verdict` of Check (reasons:
  // yardstick.cc). Perturbations may if few elements are wrong, by no more than
  // Yardstick::ExcusableError in the first look. More sets may then too, and if a root-mean-square
  // error is slightly above its limit. `among`: the number of elements that the wrong ones are part
  // of; default: all.
  bool PerturbationsMayClear(const Verdict& verdict, int64_t among = -1) const;
  bool SetsMayClear(const Verdict& verdict) const;

 private:
  Verdict CheckExact(const std::string& candidate, std::string_view where) const;
  Verdict CheckTolerance(const std::string& candidate, std::string_view where,
                         const Yardstick& yardstick, bool closely, bool alone) const;
  Verdict WrongSize(const std::string& candidate, std::string_view where) const;
  bool IsAtenWrong(int64_t index) const {
    return static_cast<size_t>(index) < aten_wrong_.size() &&
           aten_wrong_[static_cast<size_t>(index)];
  }
  // `index` for evidence: a position in the output, or in the larger one.
  Json PositionOf(int64_t index) const;

  TensorSpec spec_;
  std::string aten_;
  std::vector<double> oracle_;
  std::optional<Yardstick> yardstick_;   // floating outputs
  std::optional<Yardstick> closer_;      // the same with AddPerturbation and AddTypical
  std::vector<int64_t> places_, sizes_;  // see set_places
  std::vector<bool> aten_wrong_;
  Match match_ = Match::kBitwise;
};

}  // namespace cudaforge
