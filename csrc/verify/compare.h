// The comparison of a candidate's output with ATen's and the fp64 oracle's: the numerics contract.
//
// Floating outputs, per element e with oracle value r (all errors are distances from r):
//   - NaN, +inf and -inf stand exactly where ATen has them. Where ATen and the oracle (rounded to
//     the dtype) differ in this, because an intermediate overflowed in one of them, either answer
//     will do, and a finite one is held to two ulps of ATen's.
//   - |c - r| <= k * yardstick + ulp(r). Elements are judged among their like: those whose oracle
//     values share an octave [2^e, 2^(e+1)), so small rows and tails are held to their own scale.
//     The yardstick is ATen's largest error in that octave, or, when larger, three times what
//     moving every input up or down by a rounding unit, at random, does to the oracle: to this very
//     element (the largest of four moves), or in its octave (95th percentile; the largest of all among
//     zeros and where there are few). k = 2 for float32
//     and float64, 3 for the half types. An octave of fewer than 32 elements takes its neighbours
//     within three octaves as well. Why the moves: a right kernel that rounds each of its few
//     intermediate results once errs by one or two such moves, wherever it adds. ATen's error alone
//     is no measure where few elements are alike (cancellation leaves a handful near zero, ATen's
//     error there is luck) nor where an octave mixes elements of different conditioning (a small
//     sum times a large factor). Three times, because four moves find 1.5 standard deviations on
//     average and sometimes half of one, and the worst of 10^5 right elements is at 4.5: at twice,
//     LayerNorm's backward with sums in double across lanes still fails for one element in 10^5.
//   - The same in the root-mean-square norm of errors and of moves, with half an ulp, for each
//     octave of 32 elements or more.
//   - Products below the smallest normal number lose up to half the spacing of the denormals each,
//     which no relative move of an input shows (the weight gradient of a norm, where ATen multiplies
//     sums and a kernel may sum products). So the yardstick is no smaller than 1.5 sqrt(m) times
//     that, and in the root-mean-square a third of it, m being the input elements that there are for
//     one output element. A sum of m such roundings has the standard deviation 0.58 sqrt(m). In
//     float32 that is 1e-45 sqrt(m): above the denormals it is nothing, and a kernel that takes
//     denormals for zeros still fails.
//   - Few elements: one draw of a few inputs says little of ATen's error. Of one element, a kernel
//     as precise as ATen errs more than twice as much in three draws of ten, by chance alone. So
//     outputs of fewer than 4,096 elements get ATen's errors on further draws of the same kind of
//     set, in the same octaves. Its largest error is then, when larger than on this very set, that
//     of 16 draws (of more draws the quantile that 16 reach on average: a maximum would grow with
//     their number alone); its root-mean-square is over all draws, when larger. k stays, and no
//     limit is below what this set alone gives. Where the output has eight elements or fewer,
//     candidates are tried on two draws of each set. What is rejected so, and what is not, was
//     measured: see kPool in input_plan.cc.
//   - float64: the oracle is ATen itself, so the yardstick is the sensitivity alone, times 16.
// Match::kEqual: every element equals ATen's as a number; -0.0 equals 0.0, any NaN any NaN. For
// regions in which ATen is exact (relu, max). Match::kBitwise: the bytes are ATen's, the sign of
// zero included; NaN payloads are free. For integers, booleans and regions that only move data.
// Every element is always looked at. Bytes between strided elements are not.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "signature/op_signature.h"
#include "verify/verdict.h"

namespace cudaforge {

enum class Match { kTolerance, kEqual, kBitwise };

// The strictest rule that the ops alone justify, for floating outputs: kBitwise when every node
// only moves data, kEqual when every node is exact in any precision, else kTolerance.
Match MatchForOps(const OpSignature& signature);

// An output on other inputs of the same kind: ATen's bytes and the fp64 answer, row-major.
struct OutputDraw {
  std::string aten;
  std::vector<double> oracle;
};

// The limits for one output on one input set.
class Yardstick {
 public:
  // `aten`: ATen's output bytes, from one run or more (the first is the one that masks are compared
  // with). `oracle`, `perturbed`: row-major; the fp64 answers for the inputs, and for the inputs
  // after each of some random moves by a rounding unit. `draws`: more of ATen's errors, where the
  // output has few elements. `terms`: input elements for one output element. REQUIRES: a floating
  // spec.
  Yardstick(const TensorSpec& spec, std::span<const std::string* const> aten,
            std::span<const double> oracle, std::span<const std::vector<double>> perturbed,
            std::span<const OutputDraw> draws = {}, int64_t terms = 1);

  // The largest error allowed for element `index` (row-major), whose oracle value is `value`.
  double MaxLimit(int64_t index, double value) const;
  // Whether ATen's values all equal the oracle's, and how many of them are finite and not zero.
  bool aten_is_exact() const { return aten_is_exact_; }
  int64_t nonzero() const { return nonzero_; }
  Json ToJson() const;

 private:
  friend class OutputReference;
  struct Octave {
    int64_t count = 0;     // elements where both ATen and the oracle are finite, of all draws
    int64_t own = 0;       // those of the set itself
    double max_error = 0;  // ATen's
    double sum_squares = 0;
    double sensitivity = 0;     // 95th percentile of the moves
    double moved_squares = 0;   // mean over the moves, summed over the set's own elements
    std::vector<double> drawn;  // ATen's errors on further draws
    double max_limit = 0;       // without the ulp
    double rms_limit = 0;       // negative: too few elements to judge
  };
  static size_t OctaveOf(double value);
  void AddDraw(const TensorSpec& spec, const OutputDraw& draw);
  void SetLimits();

  DType dtype_;
  double underflow_;  // 1.5 sqrt(terms) roundings of denormals
  std::vector<Octave> octaves_;
  std::vector<double> moved_;  // by element, the largest of its moves
  bool aten_is_exact_ = true;
  int64_t nonzero_ = 0;
  double max_error_ = 0;
  double rms_error_ = 0;
  double most_moved_ = 0;
};

// One output's right answer on one input set.
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
  Match match() const { return match_; }

  // kAccepted, kWrongShape (another number of bytes) or kWrongValues, with the worst element in the
  // evidence. `where` names the case and the output.
  Verdict Check(const std::string& candidate, std::string_view where) const;

 private:
  Verdict CheckExact(const std::string& candidate, std::string_view where) const;
  Verdict CheckTolerance(const std::string& candidate, std::string_view where) const;

  TensorSpec spec_;
  std::string aten_;
  std::vector<double> oracle_;
  std::optional<Yardstick> yardstick_;  // floating outputs
  Match match_ = Match::kBitwise;
};

}  // namespace cudaforge
