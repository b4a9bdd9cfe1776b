#include "verify/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/random.h"
#include "tests/cpp/verify/spec.h"
#include "verify/elements.h"

namespace cudaforge {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::string Bytes(const TensorSpec& spec, const std::vector<double>& values) {
  std::string bytes(static_cast<size_t>(spec.StorageBytes()), '\0');
  for (ElementWalk walk(spec); !walk.done(); walk.Next()) {
    StoreElement(spec.dtype, values[static_cast<size_t>(walk.index())],
                 bytes.data() + walk.offset() * DTypeSize(spec.dtype));
  }
  return bytes;
}

// A reference whose ATen is the oracle rounded to the dtype, with sensitivity `unit` per value.
OutputReference Make(const TensorSpec& spec, const std::vector<double>& oracle,
                     const std::vector<double>& aten, double unit = 0,
                     Match match = Match::kTolerance) {
  std::vector<double> moved = oracle;
  for (double& value : moved) value *= 1 + unit;
  const std::string bytes = Bytes(spec, aten);
  const std::string* runs[] = {&bytes};
  std::optional<Yardstick> yardstick;
  if (IsFloating(spec.dtype)) {
    const std::vector<double> moves[] = {moved};
    yardstick.emplace(spec, runs, oracle, moves);
  }
  OutputReference reference(spec, bytes, oracle, std::move(yardstick));
  reference.set_match(match);
  return reference;
}

std::vector<double> Random(size_t n, double scale, uint64_t seed = 1) {
  SplitMix random(seed);
  std::vector<double> values(n);
  for (double& value : values) value = random.Normal() * scale;
  return values;
}

bool Accepts(const OutputReference& reference, const std::vector<double>& candidate) {
  return reference.Check(Bytes(reference.spec(), candidate), "test").accepted();
}

TEST(Compare, AtensOwnAnswerPasses) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    const auto oracle = Random(1000, 1);
    EXPECT_TRUE(Accepts(Make(Spec(dtype, {10, 100}), oracle, oracle), oracle));
  }
}

TEST(Compare, OneUlpMoreThanAtenPasses) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const TensorSpec spec = Spec(dtype, {100, 100});
    const auto oracle = Random(10000, 1);
    std::vector<double> candidate;
    for (double r : oracle) {
      const double rounded = RoundTo(dtype, r);
      candidate.push_back(rounded + UlpOf(dtype, rounded) * (rounded > r ? -1 : 1));
    }
    EXPECT_TRUE(Accepts(Make(spec, oracle, oracle), candidate)) << DTypeName(dtype);
  }
}

TEST(Compare, OneBadElementInAMillionFails) {
  const TensorSpec spec = Spec(DType::kFloat32, {1000, 1000});
  auto oracle = Random(1'000'000, 1);
  const auto reference = Make(spec, oracle, oracle);
  oracle[777'777] += 1e-3;
  const Verdict verdict = reference.Check(Bytes(spec, oracle), "test");
  EXPECT_EQ(verdict.kind, VerdictKind::kWrongValues);
  EXPECT_EQ(verdict.evidence["element"], Json({777, 777}));
  EXPECT_EQ(verdict.evidence["wrong_elements"], 1);
}

TEST(Compare, ZerosAgainstSmallValuesFail) {
  const auto oracle = Random(4096, 1e-3);
  EXPECT_FALSE(
      Accepts(Make(Spec(DType::kFloat32, {4096}), oracle, oracle), std::vector<double>(4096, 0)));
}

TEST(Compare, SmallRowsAreJudgedByTheirScale) {
  const TensorSpec spec = Spec(DType::kFloat32, {2, 512});
  auto oracle = Random(1024, 1);
  for (size_t i = 0; i < 512; ++i) oracle[i] *= 0x1p-30;
  const auto reference = Make(spec, oracle, oracle, 0x1p-24);
  auto candidate = oracle;
  for (size_t i = 0; i < 512; ++i) candidate[i] *= 1.001;
  EXPECT_FALSE(Accepts(reference, candidate));
  // The same for few elements, which are too few for an octave's statistics.
  const TensorSpec tiny = Spec(DType::kFloat32, {4});
  const std::vector<double> few = {1e6, 3.3, 1e-6, 7e-7};
  EXPECT_FALSE(Accepts(Make(tiny, few, few, 0x1p-24), {1e6, 3.3, 1.001e-6, 7e-7}));
  EXPECT_TRUE(Accepts(Make(tiny, few, few, 0x1p-24), few));
}

TEST(Compare, PrecisionDowngradeFails) {
  const auto oracle = Random(4096, 1);
  for (DType cheap : {DType::kBFloat16, DType::kFloat16}) {
    std::vector<double> candidate;
    for (double r : oracle) candidate.push_back(RoundTo(cheap, r));
    EXPECT_FALSE(Accepts(Make(Spec(DType::kFloat32, {4096}), oracle, oracle, 0x1p-24), candidate));
  }
}

TEST(Compare, RmsCatchesWhatTheMaximumAllows) {
  // ATen has one bad element in an octave; the candidate has that error everywhere.
  const TensorSpec spec = Spec(DType::kFloat32, {4096});
  std::vector<double> oracle(4096);
  SplitMix random(3);
  for (double& value : oracle) value = 1 + random.Uniform() * 0.9;
  auto aten = oracle;
  aten[5] += 1e-5;
  auto candidate = oracle;
  for (double& value : candidate) value += 1e-5;
  const Verdict verdict = Make(spec, oracle, aten).Check(Bytes(spec, candidate), "test");
  EXPECT_EQ(verdict.kind, VerdictKind::kWrongValues);
  EXPECT_TRUE(verdict.evidence.contains("rms_error")) << verdict.message;
  EXPECT_TRUE(verdict.message.ends_with("less precise than ATen throughout")) << verdict.message;
}

TEST(Compare, RootMeanSquareOfFewErrorsIsAllowedTwice) {
  const TensorSpec spec = Spec(DType::kFloat32, {4096});
  std::vector<double> oracle(4096);
  SplitMix random(3);
  for (double& value : oracle) value = 1 + random.Uniform() * 0.9;
  // `count` elements have this error, the others `rest`.
  const auto off_by = [&oracle](size_t count, double error, double rest = 0) {
    std::vector<double> values = oracle;
    for (size_t i = 0; i < values.size(); ++i) values[i] += i < count ? error : rest;
    return values;
  };
  const OutputReference few = Make(spec, oracle, off_by(3, 1e-4));
  const auto refused_for_rms = [&spec](const OutputReference& reference,
                                       const std::vector<double>& candidate) {
    return reference.Check(Bytes(spec, candidate), "test").evidence.contains("rms_error");
  };
  EXPECT_TRUE(Accepts(few, off_by(12, 1.9e-4))) << "3.8 times ATen's";
  EXPECT_TRUE(refused_for_rms(few, off_by(14, 1.9e-4))) << "4.1 times";
  const std::string message = few.Check(Bytes(spec, off_by(14, 1.9e-4)), "test").message;
  EXPECT_TRUE(message.ends_with("less precise than ATen in a few of them")) << message;
  EXPECT_TRUE(refused_for_rms(few, off_by(40, 9e-5))) << "made up by 40";
  EXPECT_FALSE(Accepts(few, off_by(4, 2.1e-4))) << "beyond the limit of one element";
  // Errors that perturbations allow do not count as luck: here three exceed twice ATen's
  // root-mean-square.
  const OutputReference moved = Make(spec, oracle, off_by(3, 1e-3), 1.3e-5);
  EXPECT_TRUE(Accepts(moved, off_by(14, 1.9e-3))) << "0.97 of the limit";
  EXPECT_TRUE(refused_for_rms(moved, off_by(20, 1.9e-3))) << "1.16 of it";
  const OutputReference throughout = Make(spec, oracle, off_by(1, 1e-4, 5e-6));
  EXPECT_TRUE(refused_for_rms(throughout, off_by(16, 1.9e-4)));
}

// A small output: ATen's errors are those of all draws, one of them large. A candidate has few
// elements, all with errors.
TEST(Compare, FewElementsAreNotFewErrors) {
  const TensorSpec spec = Spec(DType::kFloat32, {48});
  SplitMix random(7);
  std::vector<double> oracle(48);
  for (double& value : oracle) value = 1.1 + random.Uniform() * 0.8;
  const auto atens = [&oracle, &random] {
    std::vector<double> values = oracle;
    for (double& value : values) value += 3e-5 * random.Normal();
    return values;
  };
  const auto candidate = [&oracle, &random](double most) {
    std::vector<double> values = oracle;
    for (double& value : values) value += most * (2 * random.Uniform() - 1);
    return values;
  };
  std::vector<OutputDraw> draws;
  for (int i = 0; i < 85; ++i) draws.push_back({Bytes(spec, atens()), oracle});
  std::vector<double> once = atens();
  once[2] = oracle[2] + 1e-3;
  draws[3].aten = Bytes(spec, once);
  const std::string aten = Bytes(spec, atens());
  const std::string* runs[] = {&aten};
  const std::vector<double> moves[] = {oracle};
  OutputReference reference(spec, aten, oracle, Yardstick(spec, runs, oracle, moves, draws));
  reference.set_match(Match::kTolerance);
  EXPECT_TRUE(Accepts(reference, candidate(5e-5)));
  const Verdict verdict = reference.Check(Bytes(spec, candidate(1.6e-4)), "test");
  EXPECT_TRUE(verdict.evidence.contains("rms_error")) << verdict.message;
}

// The limit is 2 times ATen's error (3 for half types): a tenth less passes, a tenth more fails,
// for one element and for the root-mean-square.
TEST(Compare, TheLimitIsAMultipleOfAtensError) {
  constexpr size_t kCount = 4096;
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    const bool half = DTypeSize(dtype) == 2;
    const double limit = half ? 3 : 2, error = half ? 0.5 : 0x1p-16;
    const TensorSpec spec = Spec(dtype, {static_cast<int64_t>(kCount)});
    const std::vector<double> oracle(kCount, 1.5);
    std::vector<double> aten(kCount, 1.5 + error);
    for (const double times : {limit - 0.1, limit + 0.1}) {
      std::vector<double> candidate = oracle;
      candidate[7] += times * error;
      EXPECT_EQ(Accepts(Make(spec, oracle, aten), candidate), times < limit)
          << DTypeName(dtype) << " one element, " << times;
      // With ten times the error in one element, ATen allows everything that only the mean would
      // detect.
      std::vector<double> uneven = aten;
      uneven[7] = 1.5 + 10 * error;
      candidate.assign(kCount, 1.5 + times * error);
      EXPECT_EQ(Accepts(Make(spec, oracle, uneven), candidate), times < limit)
          << DTypeName(dtype) << " all elements, " << times;
    }
  }
}

TEST(Compare, MasksAreExact) {
  const TensorSpec spec = Spec(DType::kFloat32, {4});
  const std::vector<double> right = {1, kNan, kInf, -kInf};
  const auto reference = Make(spec, right, right);
  EXPECT_TRUE(Accepts(reference, right));
  EXPECT_FALSE(Accepts(reference, {1, 0, kInf, -kInf}));        // ATen NaN, candidate finite
  EXPECT_FALSE(Accepts(reference, {kNan, kNan, kInf, -kInf}));  // the reverse
  EXPECT_FALSE(Accepts(reference, {1, kNan, 3.4e38, -kInf}));
  EXPECT_FALSE(Accepts(reference, {1, kNan, -kInf, -kInf}));
  EXPECT_FALSE(Accepts(reference, {1, kNan, kNan, -kInf}));
  EXPECT_FALSE(Accepts(reference, {1, kInf, kInf, -kInf}));
}

TEST(Compare, OverflowInAtenAloneAllowsBothAnswers) {
  const TensorSpec spec = Spec(DType::kFloat16, {3});
  const auto reference = Make(spec, {2, 100, 1e6}, {2, kInf, 60000});
  EXPECT_TRUE(Accepts(reference, {2, kInf, 60000}));
  EXPECT_TRUE(Accepts(reference, {2, 100, kInf}));
  EXPECT_FALSE(Accepts(reference, {2, 200, kInf}));
  EXPECT_FALSE(Accepts(reference, {2, 100, 100}));
  EXPECT_FALSE(Accepts(reference, {2, kNan, kInf}));
}

TEST(Compare, FlushedDenormalsFail) {
  std::vector<double> oracle = Random(256, 1e-41);
  for (double& value : oracle) value = RoundTo(DType::kFloat32, value);
  const auto reference = Make(Spec(DType::kFloat32, {256}), oracle, oracle);
  EXPECT_TRUE(Accepts(reference, oracle));
  EXPECT_FALSE(Accepts(reference, std::vector<double>(256, 0)));
}

// Sums of 256 denormals times 0.05, as a kernel that rounds each product computes them.
TEST(Compare, SumsOfDenormalProductsMayRound) {
  const TensorSpec spec = Spec(DType::kFloat32, {512});
  const double spacing = UlpOf(DType::kFloat32, 0);
  std::vector<double> oracle(512), rounded(512), zeros(512);
  for (size_t i = 0; i < oracle.size(); ++i) {
    for (const double value : Random(256, 40, i)) {
      const double product = std::round(value) * 0.05;
      oracle[i] += product * spacing;
      rounded[i] += std::nearbyint(product) * spacing;
    }
  }
  const std::string aten = Bytes(spec, oracle);
  const std::string* runs[] = {&aten};
  const std::vector<double> moves[] = {oracle};
  auto judge = [&](const std::vector<double>& candidate, int64_t terms) {
    OutputReference reference(spec, aten, oracle, Yardstick(spec, runs, oracle, moves, {}, terms));
    reference.set_match(Match::kTolerance);
    return reference.Check(Bytes(spec, candidate), "").accepted();
  };
  EXPECT_TRUE(judge(rounded, 256));
  EXPECT_FALSE(judge(rounded, 1));
  EXPECT_FALSE(judge(zeros, 256));
}

TEST(Compare, SensitivityAllowsErrorsIfAtenIsExactByLuck) {
  const TensorSpec spec = Spec(DType::kFloat32, {64});
  const std::vector<double> oracle(64, 1.0);
  auto candidate = oracle;
  for (double& value : candidate) value += 0x1p-21;
  EXPECT_FALSE(Accepts(Make(spec, oracle, oracle), candidate));
  EXPECT_TRUE(Accepts(Make(spec, oracle, oracle, 0x1p-22), candidate));
}

TEST(Compare, OnlyAPerturbedElementMayErr) {
  const TensorSpec spec = Spec(DType::kFloat32, {1000});
  const std::vector<double> oracle(1000, 1.0);
  const std::string bytes = Bytes(spec, oracle);
  const std::string* runs[] = {&bytes};
  std::vector<std::vector<double>> moves(2, oracle);
  moves[0][7] += 0x1p-12;  // badly conditioned once: hidden among similar elements
  OutputReference reference(spec, bytes, oracle, Yardstick(spec, runs, oracle, moves));
  reference.set_match(Match::kTolerance);
  auto candidate = oracle;
  candidate[7] += 0x1p-11;
  EXPECT_TRUE(Accepts(reference, candidate));
  candidate[7] += 0x1p-8;
  EXPECT_FALSE(Accepts(reference, candidate));
  candidate = oracle;
  candidate[8] += 0x1p-11;
  EXPECT_FALSE(Accepts(reference, candidate));
}

TEST(Compare, PerturbationWidensLimitsOfItsElements) {
  const TensorSpec spec = Spec(DType::kFloat32, {100, 100});
  const std::vector<double> zeros(10000,
                                  0);  // as after relu: neighbours of zero are uncertain
  OutputReference reference = Make(spec, zeros, zeros);
  std::vector<double> one = zeros, other = zeros;
  one[7] = other[8] = 1e-6;
  EXPECT_FALSE(Accepts(reference, one));
  std::vector<double> moved = zeros;
  moved[7] = 4e-7;
  reference.AddPerturbation(moved);
  const auto closely = [&](const std::vector<double>& candidate) {
    return reference.Check(Bytes(spec, candidate), "test", /*closely=*/true).accepted();
  };
  EXPECT_TRUE(closely(one));
  EXPECT_FALSE(closely(other));
  EXPECT_FALSE(Accepts(reference, one)) << "the first look stays what it was";
  one[7] = 1e-5;
  EXPECT_FALSE(closely(one));
}

TEST(Compare, ZerosAreJudgedCloselyByTheCandidatesSize) {
  // As after relu: the smallest positive elements are only accurate to 8e-7.
  const TensorSpec spec = Spec(DType::kFloat32, {200, 200});
  std::vector<double> oracle(40000, 0);
  std::fill_n(oracle.begin(), 300, 1e-6);
  std::vector<double> aten = oracle;
  for (size_t i = 0; i < 300; ++i) aten[i] += i % 2 == 0 ? 4e-7 : -4e-7;
  const auto accepts = [&](double value, bool closely) {
    OutputReference reference = Make(spec, oracle, aten);
    reference.AddPerturbation(oracle);
    std::vector<double> candidate = oracle;
    candidate[12345] = value;
    return reference.Check(Bytes(spec, candidate), "test", closely).accepted();
  };
  EXPECT_FALSE(accepts(5e-7, false));
  EXPECT_TRUE(accepts(5e-7, true));
  EXPECT_TRUE(accepts(-5e-7, true));
  EXPECT_FALSE(accepts(2e-6, true)) << "larger than what such elements may be off by";
  EXPECT_FALSE(accepts(1e-3, true));
  EXPECT_FALSE(accepts(1e-12, true)) << "nothing of that size is known so badly";
}

TEST(Compare, AtensErrorIsPooledOverMoreSets) {
  const TensorSpec spec = Spec(DType::kFloat32, {100, 100});
  std::vector<double> oracle(10000);
  for (size_t i = 0; i < oracle.size(); ++i) oracle[i] = 1 + 0x1p-14 * static_cast<double>(i);
  const auto off_by = [&](double error) {
    std::vector<double> values = oracle;
    for (size_t i = 0; i < values.size(); ++i) values[i] += i % 2 == 0 ? error : -error;
    return values;
  };
  std::vector<double> aten = off_by(1e-6);
  aten[0] = oracle[0] + 1e-4;  // so that no single element exceeds its limit below
  OutputReference reference = Make(spec, oracle, aten);
  const Verdict verdict = reference.Check(Bytes(spec, off_by(4e-6)), "test");
  EXPECT_TRUE(verdict.evidence.contains("rms_error")) << verdict.message;
  for (int set = 0; set < 4; ++set) reference.AddTypical({Bytes(spec, off_by(3e-6)), oracle});
  const auto closely = [&](double error) {
    return reference.Check(Bytes(spec, off_by(error)), "test", /*closely=*/true).accepted();
  };
  EXPECT_TRUE(closely(4e-6));
  EXPECT_FALSE(closely(8e-6));
  EXPECT_FALSE(Accepts(reference, off_by(4e-6))) << "the first look stays what it was";
}

TEST(Compare, AtensLargestErrorIsPooledOverMoreSets) {
  const TensorSpec spec = Spec(DType::kFloat32, {1000});
  const std::vector<double> oracle(1000, 1.5);
  const auto one_off_by = [&](double error) {
    std::vector<double> values = oracle;
    values[7] += error;
    return values;
  };
  OutputReference reference = Make(spec, oracle, oracle);
  const auto closely = [&](double error) {
    return reference.Check(Bytes(spec, one_off_by(error)), "test", /*closely=*/true).accepted();
  };
  reference.AddTypical({Bytes(spec, one_off_by(1e-4)), oracle});
  reference.AddTypical({Bytes(spec, oracle), oracle});
  EXPECT_TRUE(closely(1.9e-4));
  EXPECT_FALSE(closely(2.1e-4));
  EXPECT_FALSE(Accepts(reference, one_off_by(1e-4))) << "the first look stays what it was";
  // Few elements borrow their neighbours' errors, here in [1, 2).
  std::vector<double> few = oracle;
  few[7] = 2.5;
  OutputReference alone = Make(spec, few, few);
  alone.AddTypical({Bytes(spec, one_off_by(1e-4)), oracle});
  few[7] += 1.9e-4;
  EXPECT_FALSE(Accepts(alone, few));
  EXPECT_TRUE(alone.Check(Bytes(spec, few), "test", /*closely=*/true).accepted());
}

// More perturbations are made for one element in 10,000, or a single one of 1,000 or more, whose
// error is at most twice what the largest perturbation allows (12 times it, 18 times for half
// types).
TEST(Compare, PerturbationsMayClearFewSmallExcesses) {
  const auto may_clear = [](DType dtype, int64_t elements, int64_t wrong, double error) {
    const TensorSpec spec = Spec(dtype, {elements});
    const std::vector<double> oracle(static_cast<size_t>(elements), 1.5);
    const OutputReference reference = Make(spec, oracle, oracle, 0x1p-10 / 1.5);
    std::vector<double> candidate = oracle;
    std::fill_n(candidate.begin(), wrong, 1.5 + error);
    const Verdict verdict = reference.Check(Bytes(spec, candidate), "test");
    EXPECT_EQ(verdict.evidence.value("wrong_elements", 0), wrong) << verdict.message;
    EXPECT_EQ(reference.SetsMayClear(verdict), reference.PerturbationsMayClear(verdict));
    return reference.PerturbationsMayClear(verdict);
  };
  EXPECT_TRUE(may_clear(DType::kFloat32, 1000, 1, 11 * 0x1p-10));
  EXPECT_FALSE(may_clear(DType::kFloat32, 1000, 1, 13 * 0x1p-10));
  EXPECT_TRUE(may_clear(DType::kFloat16, 1000, 1, 17 * 0x1p-10));
  EXPECT_FALSE(may_clear(DType::kFloat16, 1000, 1, 19 * 0x1p-10));
  EXPECT_FALSE(may_clear(DType::kFloat32, 999, 1, 11 * 0x1p-10));
  EXPECT_FALSE(may_clear(DType::kFloat32, 19'999, 2, 11 * 0x1p-10));
  EXPECT_TRUE(may_clear(DType::kFloat32, 20'000, 2, 11 * 0x1p-10));
  EXPECT_FALSE(may_clear(DType::kFloat32, 20'000, 3, 11 * 0x1p-10));
}

TEST(Compare, MoreSetsMayClearARootMeanSquareOfEightTimesItsLimit) {
  const TensorSpec spec = Spec(DType::kFloat32, {4096});
  const std::vector<double> oracle(4096, 1.5);
  std::vector<double> aten = oracle;
  aten[0] += 1e-3;  // so that no single element exceeds its limit below
  const OutputReference reference = Make(spec, oracle, aten);
  const auto check = [&](double error) {
    std::vector<double> candidate = oracle;
    for (double& value : candidate) value += error;
    return reference.Check(Bytes(spec, candidate), "test");
  };
  const double limit = check(1e-4).evidence.at("rms_limit").get<double>();
  EXPECT_TRUE(reference.SetsMayClear(check(7.9 * limit)));
  EXPECT_FALSE(reference.SetsMayClear(check(8.1 * limit)));
  EXPECT_FALSE(reference.PerturbationsMayClear(check(7.9 * limit)))
      << "moves are for single elements";
  EXPECT_FALSE(reference.SetsMayClear({})) << "it was accepted";
}

TEST(Compare, SparseOctavesBorrowFromNeighbours) {
  // In [1, 2) ATen has no error, in [2, 4) one of 2^-18.
  const auto accepts = [](size_t alike) {
    std::vector<double> oracle(6000, 3.0);
    std::fill_n(oracle.begin(), alike, 1.5);
    std::vector<double> aten = oracle;
    for (size_t i = alike; i < aten.size(); ++i) aten[i] += 0x1p-18;
    std::vector<double> candidate = aten;
    candidate[7] += 0x1p-18;
    return Accepts(Make(Spec(DType::kFloat32, {6000}), oracle, aten), candidate);
  };
  EXPECT_TRUE(accepts(100));
  EXPECT_FALSE(accepts(1000));
}

TEST(Compare, DrawsSetLimitsOfFewElements) {
  // One element, exact in ATen by luck; on other draws ATen errs by about 2^-18.
  const TensorSpec spec = Spec(DType::kFloat32, {1});
  const std::vector<double> oracle = {1.5};
  const std::string bytes = Bytes(spec, oracle);
  const std::string* runs[] = {&bytes};
  const std::vector<std::vector<double>> moves = {oracle};
  std::vector<OutputDraw> draws;
  SplitMix random(2);
  for (int d = 0; d < 255; ++d) {
    const double right = 1 + random.Uniform() * 0.9;
    draws.push_back({Bytes(spec, {right + random.Normal() * 0x1p-18}), {right}});
  }
  const auto make = [&](size_t count) {
    OutputReference reference(spec, bytes, oracle,
                              Yardstick(spec, runs, oracle, moves, std::span(draws).first(count)));
    reference.set_match(Match::kTolerance);
    return reference;
  };
  EXPECT_FALSE(Accepts(make(0), {1.5 + 0x1p-18}));
  EXPECT_TRUE(Accepts(make(255), {1.5 + 0x1p-18}));
  EXPECT_TRUE(Accepts(make(255), {1.5 - 3 * 0x1p-18}));
  // Twice what 16 draws reach, although the largest of 255 is more.
  EXPECT_FALSE(Accepts(make(255), {1.5 + 5 * 0x1p-18}));
  EXPECT_FALSE(Accepts(make(255), {1.5 + 0x1p-14}));
}

TEST(Compare, OtherSizeIsWrongShape) {
  const std::vector<double> values(8, 1);
  const auto reference = Make(Spec(DType::kFloat32, {8}), values, values);
  EXPECT_EQ(reference.Check(std::string(28, '\0'), "t").kind, VerdictKind::kWrongShape);
  // Another dtype has another number of bytes.
  EXPECT_EQ(reference.Check(Bytes(Spec(DType::kFloat64, {8}), values), "t").kind,
            VerdictKind::kWrongShape);
  EXPECT_EQ(reference.Check("", "t").kind, VerdictKind::kWrongShape);
}

TEST(Compare, IntegersAndBoolsAreBitwise) {
  const TensorSpec ints = Spec(DType::kInt64, {3});
  const auto reference = Make(ints, {1, 2, 3}, {1, 2, 3}, 0, Match::kBitwise);
  EXPECT_TRUE(Accepts(reference, {1, 2, 3}));
  EXPECT_FALSE(Accepts(reference, {1, 2, 4}));
  const auto flags = Make(Spec(DType::kBool, {2}), {0, 1}, {0, 1}, 0, Match::kBitwise);
  EXPECT_TRUE(Accepts(flags, {0, 1}));
  EXPECT_FALSE(flags.Check(std::string("\0\x02", 2), "t").accepted()) << "2 is no bool";
}

TEST(Compare, SignOfZero) {
  const TensorSpec spec = Spec(DType::kFloat32, {2});
  EXPECT_FALSE(Accepts(Make(spec, {0, 1}, {0, 1}, 0, Match::kBitwise), {-0.0, 1}));
  EXPECT_TRUE(Accepts(Make(spec, {0, 1}, {0, 1}, 0, Match::kEqual), {-0.0, 1}));
  EXPECT_FALSE(Accepts(Make(spec, {0, 1}, {0, 1}, 0, Match::kEqual), {0, 1.0000001}));
  EXPECT_TRUE(Accepts(Make(spec, {kNan, 1}, {kNan, 1}, 0, Match::kBitwise), {-kNan, 1}));
}

TEST(Compare, BytesBetweenStridedElementsAreFree) {
  TensorSpec spec = Spec(DType::kFloat32, {4});
  spec.strides = {2};
  const auto reference = Make(spec, {1, 2, 3, 4}, {1, 2, 3, 4});
  std::string candidate(static_cast<size_t>(spec.StorageBytes()), '\xff');
  for (int i = 0; i < 4; ++i) {
    const float value = static_cast<float>(i + 1);
    std::memcpy(candidate.data() + 8 * i, &value, 4);
  }
  EXPECT_TRUE(reference.Check(candidate, "t").accepted());
  candidate[8] ^= 1;
  candidate[10] ^= 1;
  EXPECT_FALSE(reference.Check(candidate, "t").accepted());
}

TEST(Compare, LargeTensorsAreComparedCompletely) {
  const TensorSpec spec = Spec(DType::kBool, {int64_t{1} << 26});
  std::string right(1u << 26, '\1');
  const OutputReference reference(spec, right, {}, std::nullopt);
  EXPECT_TRUE(reference.Check(right, "t").accepted());
  right.back() = '\0';
  EXPECT_FALSE(reference.Check(right, "t").accepted());
}

TEST(Compare, DoubleIsJudgedBySensitivity) {
  const TensorSpec spec = Spec(DType::kFloat64, {64});
  const auto oracle = Random(64, 1);
  const auto reference = Make(spec, oracle, oracle, 0x1p-52);
  auto candidate = oracle;
  for (double& value : candidate) value *= 1 + 0x1p-52;
  EXPECT_TRUE(Accepts(reference, candidate));
  for (double& value : candidate) value = static_cast<float>(value);
  EXPECT_FALSE(Accepts(reference, candidate));
}

TEST(MatchForOps, FollowsTheNodes) {
  OpSignature signature;
  signature.nodes.resize(2);
  signature.nodes[0].op = "aten::permute";
  signature.nodes[1].op = "aten::clone";
  EXPECT_EQ(MatchForOps(signature), Match::kBitwise);
  signature.nodes[1].op = "aten::relu";
  EXPECT_EQ(MatchForOps(signature), Match::kEqual);
  signature.nodes[0].op = "aten::sum.dim_IntList";
  EXPECT_EQ(MatchForOps(signature), Match::kTolerance);
}

}  // namespace
}  // namespace cudaforge
