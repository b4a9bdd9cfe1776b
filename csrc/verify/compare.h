// The comparison of a candidate's elements with ATen's and with float64's. Here "oracle" is the
// float64 answer.
//
// Match::kTolerance: NaN, +inf and -inf stand exactly where ATen has them. Where ATen and the
// oracle (rounded to the dtype) differ in this, because an intermediate overflowed in one of them,
// either answer will do, and a finite one is held to two ulps of ATen's. Finite elements are held
// to the yardstick.
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

// The right answers for elements of one output on one input set.
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
  // The elements are some of a larger output of these sizes: their row-major numbers there, by
  // which evidence names them.
  void set_places(std::vector<int64_t> numbers, std::vector<int64_t> sizes) {
    places_ = std::move(numbers);
    sizes_ = std::move(sizes);
  }
  // Elements in which ATen is wrong by float64: what is within two ulps of it passes as well.
  void set_aten_wrong(std::vector<bool> elements) { aten_wrong_ = std::move(elements); }
  // The output that the elements are some of.
  int64_t whole_numel() const;
  // What one more move of the inputs made of the oracle, for Check's closer look alone; see
  // Yardstick::AddMove.
  void AddMove(const std::vector<double>& moved) {
    if (!yardstick_.has_value()) return;
    if (!closer_.has_value()) closer_ = yardstick_;
    closer_->AddMove(oracle_, moved);
  }
  // ATen's answer on another set of the same kind, for the closer look as well; see
  // Yardstick::AddTypical.
  void AddTypical(const OutputDraw& draw, bool alone = false) {
    if (!yardstick_.has_value()) return;
    if (!closer_.has_value()) closer_ = yardstick_;
    closer_->AddTypical(spec_, draw, alone);
  }
  // See Yardstick::set_typical_ratio; for the closer look alone.
  void WidenRatio(double ratio) {
    if (!yardstick_.has_value()) return;
    if (!closer_.has_value()) closer_ = yardstick_;
    closer_->set_typical_ratio(ratio);
  }
  Match match() const { return match_; }

  // kAccepted, kWrongShape (another number of bytes) or kWrongValues, with the worst element in the
  // evidence. `where` names the case and the output.
  // `closely`: by the limits that AddMove and AddTypical have widened, and zeros among elements of
  // the candidate's size.
  Verdict Check(const std::string& candidate, std::string_view where, bool closely = false) const;

  // The same of each element alone: for those that were chosen as the worst, which say nothing of
  // root-mean-squares.
  Verdict CheckElements(const std::string& candidate, std::string_view where,
                        bool closely = false) const;

  // Whether a closer look may clear `verdict`, of this output's Check in either look (yardstick.cc
  // says why). More moves may where few elements are wrong, the worst by no more than further moves
  // could excuse (Yardstick::ExcusableError), judging by those of the first look. More sets may
  // there too, and where a root-mean-square error is beyond its limit, but near it. compare.cc has
  // the figures.
  // `among`: the elements that those which are wrong are some of; by default all that there are.
  bool MovesMayClear(const Verdict& verdict, int64_t among = -1) const;
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
  // `index` as evidence names it: a position in the output, or in the larger one it is a part of.
  Json PositionOf(int64_t index) const;

  TensorSpec spec_;
  std::string aten_;
  std::vector<double> oracle_;
  std::optional<Yardstick> yardstick_;   // floating outputs
  std::optional<Yardstick> closer_;      // the same after AddMove and AddTypical
  std::vector<int64_t> places_, sizes_;  // see set_places
  std::vector<bool> aten_wrong_;
  Match match_ = Match::kBitwise;
};

}  // namespace cudaforge
