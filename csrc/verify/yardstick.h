// The numerics contract: an element's error |c - r| against the fp64 oracle's value r may be at
// most k times a yardstick plus one ulp of r (float64: 16). k is 2 for float32 and float64, 3 for
// half types. The yardstick is the larger of ATen's own error among elements of similar size, and
// three times (float64: 16) the effect on the oracle of perturbing every input by a rounding unit.
// The root-mean-square error of similar elements has the same limit with half of the ulps.
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
  // Returns true if a few large errors dominate the root-mean-square: their effective sample size
  // (Kish) is below 32 and below an eighth of their number.
  bool AreMadeUpByFew() const;
};

// The limits for one output on one input set.
class Yardstick {
 public:
  // `aten`: ATen's output bytes, of one or more runs with other orders of addition; masks are
  // compared with the first. An element's error is the largest of all runs. A root-mean-square
  // error is that of the worst run in an octave. `oracle`, `perturbed`: row-major fp64 answers, for
  // the inputs and for random perturbations of them. `draws`: more of ATen's errors, if the output
  // has few elements. `terms`: input elements for one output element. REQUIRES: a floating spec.
  Yardstick(const TensorSpec& spec, std::span<const std::string* const> aten,
            std::span<const double> oracle, std::span<const std::vector<double>> perturbed,
            std::span<const OutputDraw> draws = {}, int64_t terms = 1);

  // Adds a perturbation. It widens the limits of the elements that it changes, and counts in the
  // root-mean-square of perturbations. REQUIRES: one value per element.
  void AddPerturbation(std::span<const double> oracle, std::span<const double> perturbed);

  // Adds ATen's answers on another set of the same kind. Per octave, ATen's largest error, and its
  // root-mean-square over all sets, raise the limits. `alone`: the root-mean-square of these
  // answers counts by itself, if they have a quarter of the set's elements in the octave.
  void AddTypical(const TensorSpec& spec, const OutputDraw& draw, bool alone = false);

  // Sets the typical ratio of ATen's error to the effect of perturbations (the 90th percentile over
  // elements of the largest error of any run). An element may err by k times that. Needed if
  // octaves have few elements, or elements share a sum.
  void set_typical_ratio(double ratio) {
    typical_ratio_ = ratio;
    SetLimits();
  }
  // The largest error allowed for element `index` (row-major) with oracle value `value`.
  double MaxLimit(int64_t index, double value) const;
  // The largest error allowed for any element of the size of `value`.
  double LimitOfSize(double value) const { return octaves_[OctaveOf(value)].max_limit; }
  // Elements whose oracle values share an octave [2^e, 2^(e+1)) are judged together.
  static size_t OctaveOf(double value);
  size_t octave_count() const { return octaves_.size(); }
  // The root-mean-square error allowed for a candidate with these errors in an octave; negative if
  // there are too few elements.
  double RmsLimit(size_t octave, const ErrorSums& candidate) const;
  // The largest error that more perturbations could still allow, judging by those made.
  double ExcusableError() const;
  // Whether ATen's values all equal the oracle's, and how many of them are finite and not zero.
  bool aten_is_exact() const { return aten_is_exact_; }
  int64_t nonzero() const { return nonzero_; }
  Json ToJson() const;

 private:
  struct Octave {
    // ATen's errors where both it and the oracle are finite: of one run on the set and all draws,
    // and on AddTypical's sets.
    ErrorSums errors, typical;
    int64_t own = 0;             // elements of the set
    double max_error = 0;        // ATen's
    double typical_error = 0;    // ATen's largest on AddTypical's sets
    double typical_square = 0;   // the largest mean of a single one of them
    double sensitivity = 0;      // 95th percentile of the perturbations
    double moved_squares = 0;    // mean over the perturbations, summed over the set's elements
    std::vector<double> drawn;   // ATen's errors on further draws
    double max_limit = 0;        // without the ulp
    double rms_limit = 0;        // see RmsLimit
    double lucky_rms_limit = 0;  // for a candidate with few dominating errors
  };
  void AddDraw(const TensorSpec& spec, const OutputDraw& draw);
  void SetLimits();

  DType dtype_;
  double underflow_;  // 1.5 sqrt(terms) roundings of denormals
  std::vector<Octave> octaves_;
  std::vector<double> moved_;  // by element, the largest of its perturbations
  double moves_ = 0;           // made so far
  double typical_ratio_ = 0;
  bool aten_is_exact_ = true;
  int64_t nonzero_ = 0;
  double max_error_ = 0;
  double rms_error_ = 0;
  double most_moved_ = 0;
};

}  // namespace cudaforge
