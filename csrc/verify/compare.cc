#include "verify/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/parallel.h"
#include "verify/elements.h"

namespace cudaforge {
namespace {

// `closely` may clear one in this many elements that exceed their limit,
constexpr int64_t kElementsToDoubtOne = 10'000;
// or a single one of an output with at least this many.
constexpr int64_t kFewestToDoubtOne = 1'000;
// More sets may clear a root-mean-square error up to this many times its limit.
constexpr double kDoubtfulRms = 8;

enum class Class { kFinite, kNan, kPlusInfinity, kMinusInfinity };

Class ClassOf(double value) {
  if (std::isnan(value)) return Class::kNan;
  if (std::isinf(value)) return value > 0 ? Class::kPlusInfinity : Class::kMinusInfinity;
  return Class::kFinite;
}

// Returns true if within two ulps, or both are NaN or the same infinity.
bool IsNear(DType dtype, double value, double other) {
  if (!std::isfinite(value) || !std::isfinite(other)) return ClassOf(value) == ClassOf(other);
  return std::fabs(value - other) <= 2 * UlpOf(dtype, other);
}

std::string Shown(const Json& number) {
  return number.is_object() ? number["float"].get<std::string>() : number.dump();
}

Verdict WrongValues(std::string_view where, const TensorSpec& spec, const Json& position,
                    double candidate, double aten, double oracle, int64_t wrong,
                    const std::string& rule) {
  Verdict verdict;
  verdict.kind = VerdictKind::kWrongValues;
  verdict.evidence = {{"where", where},
                      {"element", position},
                      {"candidate", FloatToJson(candidate)},
                      {"aten", FloatToJson(aten)},
                      {"fp64", FloatToJson(oracle)},
                      {"wrong_elements", wrong},
                      {"elements", spec.numel()}};
  verdict.message = std::string(where) + ": element " + position.dump() + " is " +
                    Shown(verdict.evidence["candidate"]) + ", ATen has " +
                    Shown(verdict.evidence["aten"]) + ", fp64 " + Shown(verdict.evidence["fp64"]) +
                    " (" + rule + "); " + std::to_string(wrong) + " of " +
                    std::to_string(spec.numel()) + " elements are wrong";
  return verdict;
}

}  // namespace

Verdict OutputReference::Check(const std::string& candidate, std::string_view where,
                               bool closely) const {
  if (candidate.size() != aten_.size()) return WrongSize(candidate, where);
  if (match_ != Match::kTolerance) return CheckExact(candidate, where);
  closely = closely && closer_.has_value();
  return CheckTolerance(candidate, where, closely ? *closer_ : *yardstick_, closely, false);
}

Verdict OutputReference::CheckElements(const std::string& candidate, std::string_view where,
                                       bool closely) const {
  if (candidate.size() != aten_.size()) return WrongSize(candidate, where);
  if (match_ != Match::kTolerance) return CheckExact(candidate, where);
  closely = closely && closer_.has_value();
  return CheckTolerance(candidate, where, closely ? *closer_ : *yardstick_, closely, true);
}

Verdict OutputReference::WrongSize(const std::string& candidate, std::string_view where) const {
  Verdict verdict;
  verdict.kind = VerdictKind::kWrongShape;
  verdict.message = std::string(where) + ": " + std::to_string(candidate.size()) +
                    " bytes where the output has " + std::to_string(aten_.size());
  verdict.evidence = {{"where", where}, {"bytes", candidate.size()}, {"expected", aten_.size()}};
  return verdict;
}

Json OutputReference::PositionOf(int64_t index) const {
  if (places_.empty()) return Unflatten(spec_.sizes, index);
  return Unflatten(sizes_, places_[static_cast<size_t>(index)]);
}

int64_t OutputReference::whole_numel() const {
  if (places_.empty()) return spec_.numel();
  int64_t elements = 1;
  for (const int64_t size : sizes_) elements *= size;
  return elements;
}

bool OutputReference::PerturbationsMayClear(const Verdict& verdict, int64_t among) const {
  if (verdict.kind != VerdictKind::kWrongValues || !yardstick_.has_value()) return false;
  const Json& error = MemberOrNull(verdict.evidence, "error");
  if (!error.is_number()) return false;
  const int64_t elements = among < 0 ? spec_.numel() : among;
  const int64_t few =
      std::max<int64_t>(elements / kElementsToDoubtOne, elements >= kFewestToDoubtOne ? 1 : 0);
  return error.get<double>() <= yardstick_->ExcusableError() &&
         verdict.evidence.at("wrong_elements").get<int64_t>() <= few;
}

bool OutputReference::SetsMayClear(const Verdict& verdict) const {
  if (PerturbationsMayClear(verdict)) return true;
  const Json& error = MemberOrNull(verdict.evidence, "rms_error");
  const Json& limit = MemberOrNull(verdict.evidence, "rms_limit");
  return verdict.kind == VerdictKind::kWrongValues && error.is_number() && limit.is_number() &&
         error.get<double>() <= kDoubtfulRms * limit.get<double>();
}

Verdict OutputReference::CheckExact(const std::string& candidate, std::string_view where) const {
  const auto size = static_cast<size_t>(DTypeSize(spec_.dtype));
  const bool floating = IsFloating(spec_.dtype);
  int64_t wrong = 0;
  int64_t first = -1;
  double first_candidate = 0;
  double first_aten = 0;
  for (ElementWalk walk(spec_); !walk.done(); walk.Next()) {
    const char* c = candidate.data() + static_cast<size_t>(walk.offset()) * size;
    const char* a = aten_.data() + static_cast<size_t>(walk.offset()) * size;
    if (std::memcmp(c, a, size) == 0) continue;
    const double candidate_value = LoadElement(spec_.dtype, c);
    const double aten_value = LoadElement(spec_.dtype, a);
    if (floating && std::isnan(candidate_value) && std::isnan(aten_value)) continue;
    if (floating && match_ == Match::kEqual && candidate_value == aten_value) continue;
    if (wrong++ == 0) {
      first = walk.index();
      first_candidate = candidate_value;
      first_aten = aten_value;
    }
  }
  if (wrong == 0) return {};
  const double oracle = oracle_.empty() ? first_aten : oracle_[static_cast<size_t>(first)];
  return WrongValues(where, spec_, PositionOf(first), first_candidate, first_aten, oracle, wrong,
                     match_ == Match::kBitwise ? "must be the same bits" : "must be equal");
}

Verdict OutputReference::CheckTolerance(const std::string& candidate, std::string_view where,
                                        const Yardstick& yardstick, bool closely,
                                        bool alone) const {
  const auto size = static_cast<size_t>(DTypeSize(spec_.dtype));
  struct Worst {
    double ratio = 0;
    int64_t index = 0;
    double candidate = 0, aten = 0, error = 0, limit = 0;
  };
  struct Part {
    std::vector<ErrorSums> errors;  // by octave
    Worst worst;
    int64_t wrong = 0;
  };
  const size_t octaves = yardstick.octave_count();
  std::vector<Part> parts(static_cast<size_t>(ChunkCount(spec_.numel(), kChunk)));
  ParallelChunks(spec_.numel(), kChunk, [&](int64_t chunk, int64_t begin, int64_t end) {
    Part& part = parts[static_cast<size_t>(chunk)];
    part.errors.resize(octaves);
    for (ElementWalk walk(spec_, /*skip_repeats=*/false, begin, end); !walk.done(); walk.Next()) {
      const size_t offset = static_cast<size_t>(walk.offset()) * size;
      const double c = LoadElement(spec_.dtype, candidate.data() + offset);
      const double a = LoadElement(spec_.dtype, aten_.data() + offset);
      const double r = oracle_[static_cast<size_t>(walk.index())];
      const double rounded = RoundTo(spec_.dtype, r);
      if (IsAtenWrong(walk.index()) && IsNear(spec_.dtype, c, a)) continue;
      double error = 0;
      double limit = 0;
      if (!std::isfinite(c)) {
        const bool allowed = ClassOf(c) == ClassOf(a) || ClassOf(c) == ClassOf(rounded);
        error = allowed ? 0 : std::numeric_limits<double>::infinity();
      } else if (std::isfinite(rounded)) {
        error = std::fabs(c - r);
        limit = yardstick.MaxLimit(walk.index(), r);
        size_t octave = Yardstick::OctaveOf(r);
        if (closely && r == 0 && error > limit && error <= yardstick.LimitOfSize(c)) {
          limit = yardstick.LimitOfSize(c);
          octave = Yardstick::OctaveOf(c);
        }
        part.errors[octave].Add(error);
      } else if (std::isfinite(a)) {
        // Overflow only in fp64's rounding, or NaN only in fp64: compare with ATen's value.
        error = std::fabs(c - a);
        limit = 2 * UlpOf(spec_.dtype, a);
      } else {
        error = std::numeric_limits<double>::infinity();
      }
      if (error <= limit) continue;
      ++part.wrong;
      const double ratio = limit > 0 ? error / limit : std::numeric_limits<double>::infinity();
      if (ratio > part.worst.ratio) part.worst = {ratio, walk.index(), c, a, error, limit};
    }
  });
  std::vector<ErrorSums> errors(octaves);
  Worst worst;
  int64_t wrong = 0;
  for (const Part& part : parts) {
    for (size_t o = 0; o < octaves; ++o) errors[o].Add(part.errors[o]);
    wrong += part.wrong;
    if (part.worst.ratio > worst.ratio) worst = part.worst;
  }
  if (wrong > 0) {
    Json limit = FloatToJson(worst.limit);
    Verdict verdict = WrongValues(where, spec_, PositionOf(worst.index), worst.candidate,
                                  worst.aten, oracle_[static_cast<size_t>(worst.index)], wrong,
                                  "error allowed here: " + Shown(limit));
    verdict.evidence["error"] = FloatToJson(worst.error);
    verdict.evidence["limit"] = limit;
    return verdict;
  }
  for (size_t o = 0; o < octaves && !alone; ++o) {
    const int64_t count = errors[o].count;
    const double limit = yardstick.RmsLimit(o, errors[o]);
    if (limit < 0 || count == 0) continue;
    const double rms = std::sqrt(errors[o].squares / static_cast<double>(count));
    if (rms <= limit) continue;
    Verdict verdict;
    verdict.kind = VerdictKind::kWrongValues;
    verdict.message = std::string(where) + ": root-mean-square error " + Shown(FloatToJson(rms)) +
                      " over " + std::to_string(count) + " elements of like size, allowed " +
                      Shown(FloatToJson(limit)) + ": less precise than ATen" +
                      (errors[o].AreMadeUpByFew() ? " in a few of them" : " throughout");
    verdict.evidence = {
        {"where", where}, {"rms_error", rms}, {"rms_limit", limit}, {"elements", count}};
    return verdict;
  }
  return {};
}

}  // namespace cudaforge
