// How far a floating output may be from the fp64 oracle: the numerics contract.
//
// An element's error, |c - r|, may be at most k times a yardstick plus an ulp of the oracle's value
// r: k = 2 for float32 and float64, 3 for the half types. The yardstick is ATen's own error among
// elements of like size, or, when larger, three times what moving every input by a rounding unit
// does to the oracle. The same holds for the root-mean-square error of like elements, with half an
// ulp, and with twice ATen's where a few errors make up both it and the candidate's. yardstick.cc
// says why, and what is done where there are few elements.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "signature/op_signature.h"

namespace cudaforge {

// An output on other inputs of the same kind: ATen's bytes and the fp64 answer, row-major.
struct OutputDraw {
  std::string aten;
  std::vector<double> oracle;
};

// Sums of elements' errors.
struct ErrorSums {
  int64_t count = 0;
  double squares = 0, fourths = 0;

  void Add(double error) {
    ++count;
    squares += error * error;
    fourths += error * error * error * error;
  }
  void Add(const ErrorSums& other) {
    count += other.count;
    squares += other.squares;
    fourths += other.fourths;
  }
  // Whether a few of many errors make up their root-mean-square, which says no more than those few
  // do: their effective sample size (Kish) is below 32 and below an eighth of their number.
  bool AreMadeUpByFew() const;
};

// The limits for one output on one input set.
class Yardstick {
 public:
  // `aten`: ATen's output bytes, from one run or more, which may add in other orders (the first is
  // the one that masks are compared with). An element's error is that of the run that errs most in
  // it; the root-mean-square error is that of the run whose errors are the largest in its octave.
  // `oracle`, `perturbed`: row-major; the fp64 answers for the inputs, and for the inputs after
  // each of some random moves by a rounding unit. `draws`: more of ATen's errors, where the output
  // has few elements. `terms`: input elements for one output element. REQUIRES: a floating spec.
  Yardstick(const TensorSpec& spec, std::span<const std::string* const> aten,
            std::span<const double> oracle, std::span<const std::vector<double>> perturbed,
            std::span<const OutputDraw> draws = {}, int64_t terms = 1);

  // One more move: it widens the limits of the elements that it moves, and counts in the
  // root-mean-square of the moves. REQUIRES: one value per element.
  void AddMove(std::span<const double> oracle, std::span<const double> perturbed);

  // ATen's answers on another set of the same kind. In each octave ATen's largest error, and its
  // root-mean-square error over this set and those, count where they are larger than on this one.
  // `alone`: that of these answers alone counts too, if they have as many elements of the octave as
  // a quarter of the set's: errors that share a sum are as much luck in the mean over sets.
  void AddTypical(const TensorSpec& spec, const OutputDraw& draw, bool alone = false);

  // How many times what moves do to an element ATen errs in it, typically (the 90th percentile,
  // over elements, of the largest error of any run). An element may err k times that: where octaves
  // have few elements, or elements that share a sum, the runs' errors in just these are luck.
  void set_typical_ratio(double ratio) {
    typical_ratio_ = ratio;
    SetLimits();
  }
  // The largest error allowed for element `index` (row-major), whose oracle value is `value`.
  double MaxLimit(int64_t index, double value) const;
  // The largest error allowed among elements of the size of `value`, whichever they are.
  double LimitOfSize(double value) const { return octaves_[OctaveOf(value)].max_limit; }
  // Elements whose oracle values share an octave [2^e, 2^(e+1)) are judged together.
  static size_t OctaveOf(double value);
  size_t octave_count() const { return octaves_.size(); }
  // The root-mean-square error allowed over the elements of an octave, in which a candidate has
  // these errors; negative where they are too few to judge.
  double RmsLimit(size_t octave, const ErrorSums& candidate) const;
  // The largest error that more moves could still excuse, judging by those that were made.
  double ExcusableError() const;
  // Whether ATen's values all equal the oracle's, and how many of them are finite and not zero.
  bool aten_is_exact() const { return aten_is_exact_; }
  int64_t nonzero() const { return nonzero_; }
  Json ToJson() const;

 private:
  struct Octave {
    // ATen's, where both it and the oracle are finite: of one run on the set and all draws, and on
    // AddTypical's sets.
    ErrorSums errors, typical;
    int64_t own = 0;             // elements of the set itself
    double max_error = 0;        // ATen's
    double typical_error = 0;    // ATen's largest on AddTypical's sets
    double typical_square = 0;   // the largest mean of one of them that counts alone
    double sensitivity = 0;      // 95th percentile of the moves
    double moved_squares = 0;    // mean over the moves, summed over the set's own elements
    std::vector<double> drawn;   // ATen's errors on further draws
    double max_limit = 0;        // without the ulp
    double rms_limit = 0;        // see RmsLimit
    double lucky_rms_limit = 0;  // that of a candidate whose errors a few make up
  };
  void AddDraw(const TensorSpec& spec, const OutputDraw& draw);
  void SetLimits();

  DType dtype_;
  double underflow_;  // 1.5 sqrt(terms) roundings of denormals
  std::vector<Octave> octaves_;
  std::vector<double> moved_;  // by element, the largest of its moves
  double moves_ = 0;           // made so far
  double typical_ratio_ = 0;
  bool aten_is_exact_ = true;
  int64_t nonzero_ = 0;
  double max_error_ = 0;
  double rms_error_ = 0;
  double most_moved_ = 0;
};

}  // namespace cudaforge
