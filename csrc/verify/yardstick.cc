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

// c is the candidate's value, r the oracle's: |c - r| <= k * yardstick + ulp(r). Elements are
// judged among those with oracle values in the same octave; yardstick.h and docs/numerics.md have
// an overview. Figures are those of kThorough (aten_slice_set.h); kQuick has one perturbation and
// few orders, so narrower limits. Cost of all rules: of sums of 2,000 rows of 64 numbers, rounded
// to 22 significant bits, 4% were refused instead of 13%; of 21 bits 99% instead of all (400
// seeds).

constexpr int kLowestExponent = -1080;
constexpr size_t kOctaves = 2112;      // [0] holds zero
constexpr int64_t kEnough = 32;        // the fewest elements for an octave's statistics
constexpr int64_t kEnoughAlone = 256;  // the same for ATen's errors without further draws
constexpr double kFewAreOneIn = 8;     // see AreMadeUpByFew
constexpr double kLuck = 2;            // times ATen's root-mean-square, if few errors dominate it
constexpr int64_t kRounds = 16;        // draws that ATen's largest error is taken from
constexpr size_t kNeighbours = 3;      // octaves on either side that a sparse one borrows from
constexpr size_t kSamples = 512;       // sensitivities kept per octave

// The kSamples values with the lowest ranks. Random ranks make it a fair sample that does not
// depend on the order of insertion.
struct Sample {
  std::vector<std::pair<uint64_t, double>> kept;  // a heap, highest rank first

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

// With few elements, or an octave of mixed conditioning, ATen's error is no measure: a correct
// kernel that rounds a few intermediate results errs by one or two perturbations. Three, because
// the largest of four perturbations is only 1.5 standard deviations on average. For float64 the
// oracle is ATen itself: 16, plus sixteen ulps (eight in the root-mean-square).
double SensitivityFactor(DType dtype) { return dtype == DType::kFloat64 ? 16 : 3; }

// The error that is always allowed.
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

// If few large errors dominate both root-mean-squares, kLuck times ATen's is allowed. Few: Kish's
// effective sample size (Survey Sampling, 1965).
bool ErrorSums::AreMadeUpByFew() const {
  const double few =
      std::min(static_cast<double>(kEnough), static_cast<double>(count) / kFewAreOneIn);
  return squares * squares < few * fourths && std::isfinite(fourths);
}

// underflow_: products below the smallest normal number lose up to half a denormal's spacing, which
// relative perturbations do not show. The yardstick is at least 1.5 sqrt(m) times that, with m
// input elements per output element; a third of it in the root-mean-square.
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
    // Zeros from cancellation are among zeros that no perturbation changes, so the largest counts.
    const bool sparse = o == 0 || kept.size() < static_cast<size_t>(kEnough);
    const size_t rank = sparse ? kept.size() - 1 : kept.size() * 95 / 100;
    std::nth_element(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(rank), kept.end());
    octaves_[o].sensitivity = kept[rank];
  }
  for (const OutputDraw& draw : draws) AddDraw(spec, draw);
  SetLimits();
}

// Near relu's bend or for steep functions, four perturbations may miss an element in millions. If
// at most one element in 10^4 (or a single one of 1,000 or more) is slightly above its limit,
// sixteen more are made, then more sets. Without this, correct products with GELU were refused in
// one verification of ten. An element with oracle zero then has the candidate's LimitOfSize.
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

// Outputs with fewer than 256 elements also use ATen's errors on the other sets (SliceJudgement::
// Finish): the largest of 16 draws (of more draws, the quantile that 16 reach on average), and the
// root-mean-square of all. Both can only raise the limits.
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

// The elements of an octave may be a few rows whose errors are correlated. So a root-mean-square up
// to eight times its limit is judged by four to sixteen more sets. Without this, about one correct
// scan or norm gradient in 100 sets was refused.
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
  constexpr double kBeyond = 2;  // upper bound for the largest of sixteen perturbations over that
                                 // of four
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
