#include "verify/yardstick.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "verify/elements.h"

namespace cudaforge {
namespace {

// How the limits are made. c is the candidate's value of an element, r the oracle's. All figures
// are those of kThorough (aten_slice_set.h). Before a candidate is in doubt there is one move in
// place of four, and few orders of ATen's sums: the limits are narrower then.
// - |c - r| <= k * yardstick + ulp(r). Elements are judged among their like: those whose oracle
//   values share an octave [2^e, 2^(e+1)), so small rows and tails are held to their own scale.
//   The yardstick is ATen's largest error in that octave, or, when larger, three times what
//   moving every input up or down by a rounding unit, at random, does to the oracle: to this very
//   element (the largest of four moves), or in its octave (95th percentile; the largest of all
//   among zeros and where there are few). k = 2 for float32 and float64, 3 for the half types. An
//   octave of fewer than 256 elements (32 where further draws were made, see below) takes its
//   neighbours within three octaves as well: a largest error of few says little. Why the
//   moves: a right kernel that rounds each of its few intermediate results once errs by one or
//   two such moves, wherever it adds. ATen's error alone is no measure where few elements are
//   alike (cancellation leaves a handful near zero, ATen's error there is luck) nor where an
//   octave mixes elements of different conditioning (a small sum times a large factor). Three
//   times, because four moves find 1.5 standard deviations on average and sometimes half of one,
//   and the worst of 10^5 right elements is at 4.5: at twice, LayerNorm's backward with sums in
//   double across lanes still fails for one element in 10^5.
// - The same in the root-mean-square norm of errors and of moves, with half an ulp, for each
//   octave of as many elements or more.
// - Errors of like elements are correlated where they share a sum (a row's mean, the prefix of a
//   scan): an octave of thousands of elements may be a handful of rows, and ATen's error in them
//   luck. So a candidate whose root-mean-square error is beyond its limit, but no more than eight
//   times it, is judged again by ATen's over four to sixteen more sets of the same kind, the fewer
//   the larger the inputs are (AddTypical). What was seen without: right scans and
//   gradients of layer norms refused, in about one set of a hundred. A lone element is luck as
//   well: of 17 million zeros of a right convolution with ReLU one was 1.2e-7, which made up their
//   root-mean-square, and ATen had none such on that set; with a bound of twice the limit it was
//   refused.
//   What eight costs, against a bound of two: where rows have scales of their own, a product that
//   errs in one octave alone, in all its elements and seven times as much as ATen there, passed on
//   that set in 15 of 18 tries instead of 6; errors in all small octaves were refused in 8 tries of
//   8, as with two.
// - Where rows have scales of their own, an octave of 10^5 small elements has a few that come of
//   large ones by cancellation: these alone make up its root-mean-square, which is as much luck as
//   they are. So where fewer than 32 elements, and fewer than one in eight, make up both ATen's and
//   the candidate's, twice ATen's counts. How many make it up is Kish's effective sample size with
//   the squared errors for weights: the square of their sum over the sum of their squares (Survey
//   Sampling, 1965); of errors that are alike, as normal ones are, it is a third of their number or
//   more. Where the scales of rows are 2^10 apart, one to twenty elements make up an octave's
//   root-mean-square; then even a sum whose errors are five times smaller throughout may have the
//   larger one. What was seen without: a right product with GELU refused now and then.
// - Where a function bends (relu, the tails of GELU) or grows fast (the exponential of large
//   numbers), four moves may all miss what another order of addition does to one element of
//   millions: a sum near zero that changes its sign is judged among zeros that nothing moves.
//   So where at most one element in 10^4 is beyond its limit, or one alone of 1,000 or more, and by
//   no more than moves can excuse (OutputReference::PerturbationsMayClear), the output is looked at again
//   under sixteen more moves (AddPerturbation). What was seen without: correct products with GELU and
//   convolutions with ReLU refused, for one element of 4 and of 33 million, in about one
//   verification of ten; correct sums of 2,000 rows, for one of these, in one of a hundred.
//   What is still in doubt then is judged by ATen's largest errors over those more sets of the same
//   kind too. A logarithm of a sum just above one errs by the rounding of that sum, which no move
//   of what was summed shows; where few elements of a set are of its size, ATen's error in them is
//   luck. What was seen without: correct logarithms of softmax of 48 rows refused, for one element
//   of 3,072, in one verification of 170; with four sets, those of 16 to 47 rows in one of 80; with
//   sixteen, in none of 544.
//   Under more moves and with more sets an element whose oracle is zero may also be off by what
//   elements of the candidate's size may be (LimitOfSize): where these err by as much as they are
//   large, they are not told from zero. ATen's errors can be several times what a move does, as its
//   sums are long; twenty moves then miss an element next to the bend, and it is held to nothing at
//   all.
//   What it costs: of sums of 2,000 rows of 64 numbers rounded to 22 significant bits, 4% were
//   refused instead of 13%, of 21 bits 99% instead of all (400 seeds), and of exact numbers added
//   up in one lane 82% (60 seeds) instead of 99%. Among fewer than 1,000 elements single ones are
//   most of what tells imprecise kernels (of sums of 32 rows of 2,048 numbers of 21 bits 9% were
//   refused, and 3% where one element was looked at again): there none is looked at again, but a
//   root-mean-square error is.
// - Products below the smallest normal number lose up to half the spacing of the denormals each,
//   which no relative move of an input shows (the weight gradient of a norm, where ATen
//   multiplies sums and a kernel may sum products). So the yardstick is no smaller than 1.5
//   sqrt(m) times that, and in the root-mean-square a third of it, m being the input elements
//   that there are for one output element. A sum of m such roundings has the standard deviation
//   0.58 sqrt(m). In float32 that is 1e-45 sqrt(m): above the denormals it is nothing, and a
//   kernel that takes denormals for zeros still fails.
// - Few elements: one draw of a few inputs says little of ATen's error. Of one element, a kernel
//   as precise as ATen errs more than twice as much in three draws of ten, by chance alone. So
//   outputs of fewer than 256 elements get ATen's errors on the other sets (`draws`;
//   SliceJudgement::Finish), in the same octaves. Its largest error is then, when larger than on
//   this very set, that of 16 draws (of more draws the quantile that 16 reach on average: a maximum
//   would grow with their number alone); its root-mean-square is over all draws, when larger. k
//   stays, and no limit is below what this set alone gives.
// - float64: the oracle is ATen itself, so the yardstick is the sensitivity alone, times 16, and
//   sixteen ulps are allowed, in the root-mean-square eight: where inputs are tiny, as in a softmax
//   of numbers near 0, no move of them shows what rounding the intermediate results does.

constexpr int kLowestExponent = -1080;
constexpr size_t kOctaves = 2112;      // [0] holds zero
constexpr int64_t kEnough = 32;        // elements that make an octave's statistics worth having
constexpr int64_t kEnoughAlone = 256;  // the same of ATen's errors where there are no more draws
constexpr double kFewAreOneIn = 8;     // see AreMadeUpByFew
constexpr double kLuck = 2;            // times ATen's root-mean-square, where a few make it up
constexpr int64_t kRounds = 16;        // draws of which ATen's largest error counts
constexpr size_t kNeighbours = 3;      // octaves on either side that a sparse one may borrow from
constexpr size_t kSamples = 512;       // sensitivities kept per octave

// The kSamples moves of the lowest ranks. With random ranks they are a fair sample, the same one
// whatever the order they come in.
struct Sample {
  std::vector<std::pair<uint64_t, double>> kept;  // a heap, the highest rank first

  void Add(uint64_t rank, double moved) {
    if (kept.size() == kSamples) {
      if (rank >= kept.front().first) return;
      std::pop_heap(kept.begin(), kept.end());
      kept.pop_back();
    }
    kept.emplace_back(rank, moved);
    std::push_heap(kept.begin(), kept.end());
  }
};

double KFor(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64 ? 2 : 3; }

double SensitivityFactor(DType dtype) { return dtype == DType::kFloat64 ? 16 : 3; }

// What is allowed whatever the yardstick.
double UlpsOf(DType dtype, double value) {
  return (dtype == DType::kFloat64 ? 16 : 1) * UlpOf(dtype, value);
}

}  // namespace

size_t Yardstick::OctaveOf(double value) {
  if (value == 0) return 0;
  const int biased = static_cast<int>(std::bit_cast<uint64_t>(value) >> 52) & 2047;
  const int exponent = biased != 0 ? biased - 1023 : std::ilogb(value);
  return static_cast<size_t>(std::max(exponent - kLowestExponent, 1));
}

bool ErrorSums::AreMadeUpByFew() const {
  const double few =
      std::min(static_cast<double>(kEnough), static_cast<double>(count) / kFewAreOneIn);
  return squares * squares < few * fourths && std::isfinite(fourths);
}

Yardstick::Yardstick(const TensorSpec& spec, std::span<const std::string* const> aten,
                     std::span<const double> oracle, std::span<const std::vector<double>> perturbed,
                     std::span<const OutputDraw> draws, int64_t terms)
    : dtype_(spec.dtype),
      underflow_(1.5 * ComputeUnderflow(dtype_) *
                 std::sqrt(static_cast<double>(std::max<int64_t>(terms, 1)))),
      octaves_(kOctaves),
      moved_(oracle.size(), 0),
      moves_(static_cast<double>(perturbed.size())) {
  CF_CHECK(IsFloating(spec.dtype) && !aten.empty()) << "a yardstick is for floating outputs";
  CF_CHECK(oracle.size() == static_cast<size_t>(spec.numel())) << "one oracle value per element";
  for (const std::vector<double>& move : perturbed) {
    CF_CHECK(move.size() == oracle.size()) << "one value per element and move";
  }
  const int64_t size = DTypeSize(spec.dtype);
  struct Part {
    std::vector<Octave> octaves = std::vector<Octave>(kOctaves);
    std::vector<Sample> samples = std::vector<Sample>(kOctaves);
    std::vector<std::vector<ErrorSums>> errors;  // by run, then by octave
    bool exact = true;
    int64_t nonzero = 0;
    double most_moved = 0;
  };
  std::vector<Part> parts(static_cast<size_t>(ChunkCount(spec.numel(), kChunk)));
  ParallelChunks(spec.numel(), kChunk, [&](int64_t chunk, int64_t begin, int64_t end) {
    Part part;
    part.errors.assign(aten.size(), std::vector<ErrorSums>(kOctaves));
    for (ElementWalk walk(spec, /*skip_repeats=*/false, begin, end); !walk.done(); walk.Next()) {
      const auto i = static_cast<size_t>(walk.index());
      const double r = oracle[i];
      const double rounded = RoundTo(dtype_, r);
      const double first = LoadElement(dtype_, aten[0]->data() + walk.offset() * size);
      part.exact = part.exact && (first == r || (std::isnan(first) && std::isnan(r)));
      if (!std::isfinite(rounded)) continue;
      const size_t o = OctaveOf(r);
      Octave& octave = part.octaves[o];
      for (size_t m = 0; m < perturbed.size(); ++m) {
        const double value = perturbed[m][i];
        if (!std::isfinite(value)) continue;
        const double moved = std::fabs(value - r);
        moved_[i] = std::max(moved_[i], moved);
        octave.moved_squares += moved * moved / static_cast<double>(perturbed.size());
        part.samples[o].Add(SplitMix(i * perturbed.size() + m).Next(), moved);
      }
      part.most_moved = std::max(part.most_moved, moved_[i]);
      double error = -1;
      for (size_t run = 0; run < aten.size(); ++run) {
        const double a = LoadElement(dtype_, aten[run]->data() + walk.offset() * size);
        if (!std::isfinite(a)) continue;
        error = std::max(error, std::fabs(a - r));
        part.errors[run][o].Add(std::fabs(a - r));
      }
      if (error < 0) continue;
      ++octave.own;
      octave.max_error = std::max(octave.max_error, error);
      if (first != 0) ++part.nonzero;
    }
    parts[static_cast<size_t>(chunk)] = std::move(part);
  });
  std::vector<Sample> samples(kOctaves);
  std::vector<std::vector<ErrorSums>> errors(aten.size(), std::vector<ErrorSums>(kOctaves));
  int64_t finite = 0;
  double sum_squares = 0;
  for (const Part& part : parts) {
    aten_is_exact_ = aten_is_exact_ && part.exact;
    nonzero_ += part.nonzero;
    most_moved_ = std::max(most_moved_, part.most_moved);
    for (size_t o = 0; o < kOctaves; ++o) {
      const Octave& octave = part.octaves[o];
      octaves_[o].own += octave.own;
      octaves_[o].max_error = std::max(octaves_[o].max_error, octave.max_error);
      for (size_t run = 0; run < aten.size(); ++run) errors[run][o].Add(part.errors[run][o]);
      octaves_[o].moved_squares += octave.moved_squares;
      for (const auto& [rank, moved] : part.samples[o].kept) samples[o].Add(rank, moved);
      max_error_ = std::max(max_error_, octave.max_error);
      sum_squares += part.errors[0][o].squares;
      finite += octave.own;
    }
  }
  for (size_t o = 0; o < kOctaves; ++o) {
    for (const std::vector<ErrorSums>& run : errors) {
      if (run[o].squares >= octaves_[o].errors.squares) octaves_[o].errors = run[o];
    }
  }
  rms_error_ = finite == 0 ? 0 : std::sqrt(sum_squares / static_cast<double>(finite));
  for (size_t o = 0; o < kOctaves; ++o) {
    std::vector<double> kept;
    for (const auto& [rank, moved] : samples[o].kept) kept.push_back(moved);
    if (kept.empty()) continue;
    // Zeros that come from cancellation lie among zeros that nothing moves: the largest counts.
    const bool sparse = o == 0 || kept.size() < static_cast<size_t>(kEnough);
    const size_t rank = sparse ? kept.size() - 1 : kept.size() * 95 / 100;
    std::nth_element(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(rank), kept.end());
    octaves_[o].sensitivity = kept[rank];
  }
  for (const OutputDraw& draw : draws) AddDraw(spec, draw);
  SetLimits();
}

void Yardstick::AddPerturbation(std::span<const double> oracle, std::span<const double> perturbed) {
  CF_CHECK(oracle.size() == moved_.size() && perturbed.size() == moved_.size())
      << "one value per element and move";
  std::vector<double> squares(kOctaves, 0);
  for (size_t i = 0; i < oracle.size(); ++i) {
    if (!std::isfinite(RoundTo(dtype_, oracle[i])) || !std::isfinite(perturbed[i])) continue;
    const double moved = std::fabs(perturbed[i] - oracle[i]);
    moved_[i] = std::max(moved_[i], moved);
    squares[OctaveOf(oracle[i])] += moved * moved;
  }
  for (size_t o = 0; o < kOctaves; ++o) {
    octaves_[o].moved_squares = (octaves_[o].moved_squares * moves_ + squares[o]) / (moves_ + 1);
  }
  moves_ += 1;
  SetLimits();
}

void Yardstick::AddDraw(const TensorSpec& spec, const OutputDraw& draw) {
  CF_CHECK(draw.oracle.size() == static_cast<size_t>(spec.numel())) << "one value per element";
  const int64_t size = DTypeSize(spec.dtype);
  for (ElementWalk walk(spec); !walk.done(); walk.Next()) {
    const double r = draw.oracle[static_cast<size_t>(walk.index())];
    const double a = LoadElement(dtype_, draw.aten.data() + walk.offset() * size);
    aten_is_exact_ = aten_is_exact_ && (a == r || (std::isnan(a) && std::isnan(r)));
    if (!std::isfinite(RoundTo(dtype_, r)) || !std::isfinite(a)) continue;
    Octave& octave = octaves_[OctaveOf(r)];
    const double error = std::fabs(a - r);
    octave.drawn.push_back(error);
    octave.errors.Add(error);
  }
}

void Yardstick::AddTypical(const TensorSpec& spec, const OutputDraw& draw, bool alone) {
  CF_CHECK(draw.oracle.size() == static_cast<size_t>(spec.numel())) << "one value per element";
  std::vector<ErrorSums> own(alone ? kOctaves : 0);
  const int64_t size = DTypeSize(spec.dtype);
  for (ElementWalk walk(spec); !walk.done(); walk.Next()) {
    const double r = draw.oracle[static_cast<size_t>(walk.index())];
    const double a = LoadElement(dtype_, draw.aten.data() + walk.offset() * size);
    if (!std::isfinite(RoundTo(dtype_, r)) || !std::isfinite(a)) continue;
    Octave& octave = octaves_[OctaveOf(r)];
    octave.typical.Add(std::fabs(a - r));
    if (alone) own[OctaveOf(r)].Add(std::fabs(a - r));
    octave.typical_error = std::max(octave.typical_error, std::fabs(a - r));
  }
  for (size_t o = 0; o < own.size(); ++o) {
    if (own[o].count == 0 || own[o].count * 4 < octaves_[o].own) continue;
    octaves_[o].typical_square =
        std::max(octaves_[o].typical_square, own[o].squares / static_cast<double>(own[o].count));
  }
  SetLimits();
}

double Yardstick::RmsLimit(size_t octave, const ErrorSums& candidate) const {
  const Octave& judged = octaves_[octave];
  return candidate.AreMadeUpByFew() ? judged.lucky_rms_limit : judged.rms_limit;
}

void Yardstick::SetLimits() {
  const double k = KFor(dtype_);
  int64_t enough = kEnoughAlone;
  for (Octave& octave : octaves_) {
    if (octave.drawn.empty()) continue;
    enough = kEnough;
    const size_t rank =
        octave.drawn.size() / (static_cast<size_t>(kRounds) * std::max<size_t>(moved_.size(), 1));
    const auto at = octave.drawn.begin() + static_cast<std::ptrdiff_t>(rank);
    std::nth_element(octave.drawn.begin(), at, octave.drawn.end(), std::greater<>());
    octave.max_error = std::max(octave.max_error, *at);
  }
  for (size_t o = 0; o < kOctaves; ++o) {
    Octave& octave = octaves_[o];
    const double floor = SensitivityFactor(dtype_) * octave.sensitivity;
    double largest = std::max({octave.max_error, octave.typical_error, floor, underflow_});
    int64_t count = octave.own;
    for (size_t step = 1; o > 0 && step <= kNeighbours && count < enough; ++step) {
      for (const size_t neighbour : {o - std::min(o - 1, step), std::min(o + step, kOctaves - 1)}) {
        if (neighbour == o) continue;
        const Octave& near = octaves_[neighbour];
        largest = std::max({largest, near.max_error, near.typical_error,
                            SensitivityFactor(dtype_) * near.sensitivity});
        count += octaves_[neighbour].own;
      }
    }
    octave.max_limit = k * largest;
    octave.rms_limit = octave.lucky_rms_limit = -1;
    if (octave.own >= enough) {
      double drawn = 0;
      for (const double error : octave.drawn) drawn += error * error;
      const auto own = static_cast<double>(octave.own);
      ErrorSums all = octave.errors;
      all.Add(octave.typical);
      const double rms =
          std::sqrt(std::max({octave.errors.squares / static_cast<double>(octave.errors.count),
                              std::max(octave.errors.squares - drawn, 0.0) / own,
                              all.squares / static_cast<double>(all.count)}));
      const double value =
          o == 0 ? 0 : std::ldexp(1.0, std::min(static_cast<int>(o) + kLowestExponent, 1023));
      const double moved = std::sqrt(octave.moved_squares / own);
      const double other =
          std::max({SensitivityFactor(dtype_) * moved, typical_ratio_ * moved, underflow_ / 3});
      const double luck = all.AreMadeUpByFew() ? kLuck : 1;
      octave.rms_limit = k * std::max(rms, other) + UlpsOf(dtype_, value) / 2;
      octave.lucky_rms_limit = k * std::max(luck * rms, other) + UlpsOf(dtype_, value) / 2;
    }
  }
}

double Yardstick::MaxLimit(int64_t index, double value) const {
  const double moved = moved_[static_cast<size_t>(index)];
  const double own = KFor(dtype_) * SensitivityFactor(dtype_) * moved;
  const Octave& octave = octaves_[OctaveOf(value)];
  const double typical = KFor(dtype_) * typical_ratio_ * moved;
  return std::max({octave.max_limit, own, typical}) + UlpsOf(dtype_, value);
}

double Yardstick::ExcusableError() const {
  constexpr double kBeyond = 2;  // what the largest of sixteen moves is over that of four, at most
  return kBeyond * KFor(dtype_) * SensitivityFactor(dtype_) * most_moved_;
}

Json Yardstick::ToJson() const {
  double rms_limit = 0;
  double max_limit = KFor(dtype_) * SensitivityFactor(dtype_) * most_moved_;
  for (const Octave& octave : octaves_) {
    if (octave.own == 0) continue;
    max_limit = std::max(max_limit, octave.max_limit);
    rms_limit = std::max(rms_limit, octave.rms_limit);
  }
  return {{"aten_max_error", FloatToJson(max_error_)},
          {"aten_rms_error", FloatToJson(rms_error_)},
          {"max_limit", FloatToJson(max_limit)},
          {"rms_limit", FloatToJson(rms_limit)}};
}

}  // namespace cudaforge
