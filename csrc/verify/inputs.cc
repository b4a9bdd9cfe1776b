#include "verify/inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/parallel.h"
#include "base/random.h"
#include "verify/elements.h"
#include "verify/groups.h"

namespace cudaforge {
namespace {

constexpr int64_t kFillChunk = 1 << 16;
constexpr int64_t kMostTurns = 8;  // sets of a kind that has turns
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// How one input takes part in a set.
struct Part {
  DType dtype = DType::kFloat32;
  InputRole role;
  InputKind kind = InputKind::kNormal;
  // As many elements as the largest input: rows get kinds and scales of their own.
  bool large = false;
  int64_t row_shift = 0;  // spreads special rows of different inputs over different rows
  int64_t row_length = 1;
  int64_t elements = 1;
  int64_t columns = 1;                     // that differ in memory
  const DecidingGroups* groups = nullptr;  // of kinds with turns, of an input that decides
  int turn = 0;
  // Where set, kRowScales takes integers of every magnitude, and these.
  const std::vector<double>* constants = nullptr;
};

int RowExponent(DType dtype, int64_t row) {
  static constexpr int kWide[] = {0, -30, 20, -10, 30, -20, 10};
  static constexpr int kNarrow[] = {0, -8, 4, -3, 8, -6, 2};
  // By way of a pointer: g++ 12 with -fsanitize=undefined indexes the conditional expression itself
  // wrongly.
  const int* exponents = dtype == DType::kFloat16 ? kNarrow : kWide;
  return exponents[row % 7];
}

double SmallestDenormal(DType dtype) { return UlpOf(dtype, 0); }

double SpecialValue(SplitMix& random, int64_t row) {
  const double value = random.Normal();
  if (random.Below(8) != 0) return value;
  switch (row % 8) {
    case 2:
      return kNan;
    case 4:
      return kInfinity;
    case 5:
      return -kInfinity;
    case 7:
      return random.Below(2) == 0 ? kInfinity : -kInfinity;
    default:
      return value;
  }
}

double ZeroOrDenormal(SplitMix& random, DType dtype, int64_t row) {
  const double value = random.Normal();
  switch (row % 4) {
    case 1:  // signed zeros among ordinary numbers
      return random.Below(4) == 0 ? (random.Below(2) == 0 ? 0.0 : -0.0) : value;
    case 2:  // nothing but denormals
      return std::round(value * 40) * SmallestDenormal(dtype);
    case 3:  // denormals among ordinary numbers
      return random.Below(4) == 0 ? std::round(value * 40) * SmallestDenormal(dtype) : value;
    default:
      return value;
  }
}

// Whether an input of this role gets NaN or infinities in the sets of special operands, where it is
// not left as it is for being one of the largest.
bool TakesSpecials(InputRole::Kind role, InputKind kind) {
  using Kind = InputRole::Kind;
  if (role == Kind::kWeight || role == Kind::kKey) return kind == InputKind::kNanOperands;
  if (role == Kind::kQuery || role == Kind::kSeen) return kind == InputKind::kInfiniteOperands;
  return role == Kind::kValue;
}

bool IsSeen(InputRole::Kind role) {
  return role == InputRole::Kind::kKey || role == InputRole::Kind::kSeen;
}

// A value of a row of special ones that an input of this role may hold.
double SpecialValueFor(SplitMix& random, InputRole::Kind role, int64_t row) {
  const double value = SpecialValue(random, row);
  using Kind = InputRole::Kind;
  const bool finite = role == Kind::kFinite || IsSeen(role);
  const bool refused =
      (finite && !std::isfinite(value)) || (role == Kind::kQuery && std::isinf(value));
  return refused ? random.Normal() : value;
}

// Four of them, spread over the input: of many, each ruins a row or a column of the answer, and an
// infinity times a number whose sign depends on rounding proves nothing.
double SpecialOperand(SplitMix& random, const Part& part, int64_t index) {
  const double value = random.Normal();
  const int64_t period = std::max<int64_t>(part.elements / 4, 1);
  const InputRole::Kind role = part.role.kind;
  // A query's NaN, in the same set, hides a value's of the same head.
  const int64_t shift = part.row_shift + (role == InputRole::Kind::kSeen ? period / 2 : 0);
  if (index % period != shift % period) return value;
  if (!TakesSpecials(role, part.kind)) return value;
  if (part.kind == InputKind::kNanOperands || role != InputRole::Kind::kValue) return kNan;
  return index / period % 2 == 0 ? kInfinity : -kInfinity;
}

// Rows of different nature side by side, so that no look at a few rows tells what the others hold.
double MixedValue(SplitMix& random, const Part& part, int64_t row, int64_t column, double* last) {
  const double value = random.Normal();
  switch (row % 6) {
    case 1:  // far from zero: E[x^2] - E[x]^2 loses everything
      return (part.dtype == DType::kFloat32 || part.dtype == DType::kFloat64 ? 1000 : 60) + value;
    case 2:  // every second number takes back the one before
      if (column % 2 == 1) return -*last;
      *last = value * 64;
      return *last;
    case 3:  // few numbers among zeros
      return random.Below(16) == 0 ? value : 0;
    case 4:  // small numbers
      return value * 0x1p-10;
    case 5:  // one large number first, small ones after
      return column == 0 ? 256 : value * 0x1p-6;
    default:
      return value * 4;
  }
}

// A row's keys are all seen, or hidden before the middle, behind it, here and there, all but one,
// or all: by -infinity, the last two by the lowest number as well. Each set begins with another of
// these, as a mask may have one row.
double MaskValue(SplitMix& random, const Part& part, int64_t row, int64_t column) {
  const double value = random.Normal();
  const int64_t columns = part.columns;
  if (columns < 2) return row % 6 == 5 ? -kInfinity : value;  // one number for all keys
  bool hidden = false;
  double hides = -kInfinity;
  const int64_t pattern = (row + static_cast<int64_t>(part.kind)) % 8;
  if (pattern >= 6) hides = -LargestFinite(part.dtype);
  switch (pattern) {
    case 1:
      hidden = column < columns / 2;
      break;
    case 2:
      hidden = column > columns / 2;
      break;
    case 3:
      hidden = random.Below(4) == 0 && column != row % columns;
      break;
    case 4:
    case 6:
      hidden = column != 7 * row % columns;
      break;
    case 5:
      hidden = true;
      break;
    case 7:  // float16's lowest number leaves bits of the scores, more or fewer by the order of sums
      hidden = part.dtype != DType::kFloat16;
      break;
    default:
      break;
  }
  return hidden ? hides : value;
}

// The same in booleans, one of which hides: each pattern and its opposite.
bool MaskBit(SplitMix& random, const Part& part, int64_t row, int64_t column) {
  const int64_t columns = part.columns;
  const int64_t turn = (row + static_cast<int64_t>(part.kind)) % 8;
  const bool bit = random.Below(turn == 0 ? 4 : 2) == 0;
  if (columns < 2) return bit;
  switch (turn) {
    case 1:
    case 2:
      return (column < columns / 2) == (turn == 1);
    case 3:
    case 4:
      return (column == 7 * row % columns) == (turn == 3);
    case 5:
    case 6:
      return turn == 5;
    default:
      return bit;
  }
}

double FloatingValue(SplitMix& random, const Part& part, int64_t row, int64_t column, int64_t index,
                     double* last) {
  switch (part.role.kind) {
    case InputRole::Kind::kPositive:
      return 0.5 + 1.5 * random.Uniform();
    case InputRole::Kind::kProbability:
      return 0x1p-8 + 0.99 * random.Uniform();
    case InputRole::Kind::kLogProbability:
      return -0x1p-8 - 8 * random.Uniform();
    case InputRole::Kind::kTanh:
      return 1.98 * (random.Uniform() - 0.5);
    case InputRole::Kind::kMask:
      return MaskValue(random, part, row, column);
    default:
      break;
  }
  switch (part.kind) {
    case InputKind::kUniform:
      return random.Uniform();
    case InputKind::kRowScales:
      return part.large ? std::ldexp(random.Normal(), RowExponent(part.dtype, row))
                        : random.Normal();
    case InputKind::kSpecialValues:
      return part.large ? SpecialValueFor(random, part.role.kind, row + part.row_shift)
                        : random.Normal();
    case InputKind::kZerosDenormals:
      if (part.large) return ZeroOrDenormal(random, part.dtype, row);
      // Every second one: zeros among ordinary numbers, then denormals among them.
      if (part.role.kind == InputRole::Kind::kWeight) return ZeroOrDenormal(random, part.dtype, 1);
      return ZeroOrDenormal(random, part.dtype, 1 + index % 2 * 2);
    case InputKind::kAllEqual:
      return 3.75;
    case InputKind::kMixed:
      return part.large ? MixedValue(random, part, row, column, last) : random.Normal();
    case InputKind::kSmallIntegers:
      return static_cast<double>(random.Below(7)) - 3;
    case InputKind::kOneSpecial:  // magnitudes around 1 on average of their logarithms
      return (0.5 + 1.1 * random.Uniform()) * (random.Below(2) == 0 ? 1 : -1);
    case InputKind::kNanOperands:
    case InputKind::kInfiniteOperands:
      return part.large && !IsSeen(part.role.kind) ? random.Normal()
                                                   : SpecialOperand(random, part, index);
    default:
      return random.Normal();
  }
}

// Of every magnitude up to a quarter of the range: 32-bit arithmetic, a detour through a floating
// type or a constant that was rounded shows. Not the least integer, whose quotient by -1 traps.
double AnyInteger(SplitMix& random, const Part& part) {
  const int bits = part.dtype == DType::kInt32 ? 30 : 62;
  if (!part.constants->empty() && random.Below(8) == 0) {
    const double near = (*part.constants)[random.Below(part.constants->size())] +
                        static_cast<double>(random.Below(3)) - 1;
    if (std::fabs(near) < std::ldexp(1.0, bits)) return near;
  }
  const uint64_t magnitude =
      random.Next() >> (64 - bits) >> random.Below(static_cast<uint64_t>(bits));
  return random.Below(2) == 0 ? static_cast<double>(magnitude) : -static_cast<double>(magnitude);
}

double IntegerValue(SplitMix& random, const Part& part) {
  if (part.role.kind == InputRole::Kind::kTarget && random.Below(8) == 0) {
    return static_cast<double>(part.role.ignore_index);
  }
  if (part.role.limit > 0) {
    return static_cast<double>(random.Below(static_cast<uint64_t>(part.role.limit)));
  }
  switch (part.kind) {
    case InputKind::kAllEqual:
      return 3;
    case InputKind::kUniform:
      return static_cast<double>(random.Below(2));
    case InputKind::kRowScales:
      if (part.constants != nullptr) return AnyInteger(random, part);
      [[fallthrough]];
    case InputKind::kMixed:
      return static_cast<double>(random.Below(1 << 20)) - (1 << 19);
    default:
      return static_cast<double>(random.Below(7)) - 3;
  }
}

// Elements that one thread makes with one generator: whole rows where they are short.
int64_t ChunkOf(const TensorSpec& spec) {
  const int64_t row = spec.sizes.empty() ? 1 : std::max<int64_t>(spec.sizes.back(), 1);
  return row >= kFillChunk ? kFillChunk : kFillChunk / row * row;
}

std::string Fill(const TensorSpec& spec, const Part& part, uint64_t seed) {
  std::string bytes(static_cast<size_t>(spec.StorageBytes()), '\xff');
  const int64_t size = DTypeSize(spec.dtype);
  const int64_t elements = ElementWalk(spec, /*skip_repeats=*/true).left();
  ParallelChunks(elements, ChunkOf(spec), [&](int64_t chunk, int64_t begin, int64_t end) {
    SplitMix random(SplitMix(seed + static_cast<uint64_t>(chunk)).Next());
    double last = 0;
    for (ElementWalk walk(spec, /*skip_repeats=*/true, begin, end); !walk.done(); walk.Next()) {
      // A tensor of one dimension has one row: its elements then take the rows' kinds in blocks.
      const int64_t row = spec.sizes.size() > 1 ? walk.row() : walk.index() / part.row_length;
      double value;
      double deciding = 0;
      if (part.groups != nullptr) deciding = part.groups->Value(walk.position(), part.turn, seed);
      if (part.groups != nullptr && (deciding != 0 || part.kind != InputKind::kOneSpecial)) {
        value = deciding;
      } else if (IsFloating(spec.dtype)) {
        value = FloatingValue(random, part, row, walk.column(), walk.index(), &last);
      } else if (spec.dtype == DType::kBool && part.role.kind == InputRole::Kind::kMask) {
        value = MaskBit(random, part, row, walk.column()) ? 1 : 0;
      } else if (spec.dtype == DType::kBool) {
        value = part.kind == InputKind::kAllEqual ? 1 : static_cast<double>(random.Below(2));
      } else {
        value = IntegerValue(random, part);
      }
      StoreElement(spec.dtype, value, bytes.data() + walk.offset() * size);
    }
  });
  return bytes;
}

// Whether numbers are integers and booleans from end to end.
bool IsIntegral(const OpSignature& signature) {
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    if (IsFloating(signature.output_spec(o).dtype)) return false;
  }
  return !HasFloatingInput(signature);
}

// Elements of the largest floating input.
int64_t LargestFloating(const OpSignature& signature) {
  int64_t largest = 0;
  for (const TensorSpec& spec : signature.inputs) {
    if (IsFloating(spec.dtype)) largest = std::max(largest, spec.numel());
  }
  return largest;
}

// The inputs that kOneSpecial is about: of the largest, those that may hold any number.
std::vector<size_t> TakeOneSpecial(const OpSignature& signature, std::span<const InputRole> roles) {
  std::vector<size_t> found;
  const int64_t largest = LargestFloating(signature);
  for (size_t i = 0; i < roles.size() && largest > 0; ++i) {
    const TensorSpec& spec = signature.inputs[i];
    if (!IsFloating(spec.dtype) || spec.numel() != largest) continue;
    if (roles[i].kind == InputRole::Kind::kValue) found.push_back(i);
  }
  return found;
}

// Those of the groups of a set of this kind whose values input `i` decides.
std::optional<DecidingGroups> GroupsOf(const OpSignature& signature,
                                       std::span<const InputRole> roles, InputKind kind, size_t i) {
  if (!HasTurns(kind) || roles[i].kind != InputRole::Kind::kValue) return std::nullopt;
  if (kind == InputKind::kOneSpecial) {
    const std::vector<size_t> several = TakeOneSpecial(signature, roles);
    const auto share = std::find(several.begin(), several.end(), i);
    if (share == several.end()) return std::nullopt;
    return DecidingGroups(signature, i, DecidingGroups::Kind::kSpecials, share - several.begin(),
                          std::ssize(several));
  }
  if (i != DecidingInput(signature)) return std::nullopt;
  return DecidingGroups(signature, i,
                        kind == InputKind::kOneUnlike ? DecidingGroups::Kind::kTruths
                                                      : DecidingGroups::Kind::kExtremes);
}

// The integers among the arguments of all nodes (sizes and dimensions are of no harm).
void AddIntegers(const Json& args, std::vector<double>* integers) {
  if (args.is_number_integer()) integers->push_back(args.get<double>());
  if (!args.is_structured()) return;
  for (const Json& arg : args) AddIntegers(arg, integers);
}

std::string_view InputKindName(InputKind kind) {
  static constexpr std::string_view kNames[] = {"normal",         "uniform",           "row_scales",
                                                "special_values", "zeros_denormals",   "all_equal",
                                                "mixed",          "small_integers",    "one_unlike",
                                                "nan_operands",   "infinite_operands", "far_out",
                                                "one_special"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace

bool HasFloatingInput(const OpSignature& signature) {
  return std::any_of(signature.inputs.begin(), signature.inputs.end(),
                     [](const TensorSpec& spec) { return IsFloating(spec.dtype); });
}

std::vector<InputKind> InputKindsFor(const OpSignature& signature,
                                     std::span<const InputRole> roles) {
  CF_CHECK(roles.size() == signature.inputs.size()) << "one role per input";
  const bool floating = HasFloatingInput(signature);
  std::vector<InputKind> kinds = {InputKind::kNormal, InputKind::kUniform, InputKind::kRowScales};
  if (floating) {
    kinds.insert(kinds.end(), {InputKind::kSpecialValues, InputKind::kZerosDenormals});
  }
  kinds.push_back(InputKind::kAllEqual);
  if (floating) kinds.insert(kinds.end(), {InputKind::kMixed, InputKind::kSmallIntegers});
  const int64_t largest = LargestFloating(signature);
  for (const InputKind kind : {InputKind::kNanOperands, InputKind::kInfiniteOperands}) {
    for (size_t i = 0; i < roles.size(); ++i) {
      const TensorSpec& spec = signature.inputs[i];
      if (!IsFloating(spec.dtype) || spec.numel() == 0) continue;
      if (spec.numel() == largest && !IsSeen(roles[i].kind)) continue;
      if (!TakesSpecials(roles[i].kind, kind)) continue;
      kinds.push_back(kind);
      break;
    }
  }
  auto add_turns = [&](InputKind kind, const DecidingGroups& groups) {
    kinds.insert(kinds.end(), static_cast<size_t>(std::min(groups.turns(), kMostTurns)), kind);
  };
  if (signature.inputs.empty()) return kinds;
  const std::vector<size_t> largest_of_all = TakeOneSpecial(signature, roles);
  if (!largest_of_all.empty()) {
    add_turns(InputKind::kOneSpecial,
              {signature, largest_of_all[0], DecidingGroups::Kind::kSpecials, 0,
               std::ssize(largest_of_all)});
  }
  const size_t deciding = DecidingInput(signature);
  if (HasTruths(signature)) {
    add_turns(InputKind::kOneUnlike, {signature, deciding, DecidingGroups::Kind::kTruths});
  }
  if (ExtremesOf(signature) != 0) {
    add_turns(InputKind::kFarOut, {signature, deciding, DecidingGroups::Kind::kExtremes});
  }
  return kinds;
}

bool HasTurns(InputKind kind) {
  return kind == InputKind::kOneUnlike || kind == InputKind::kOneSpecial ||
         kind == InputKind::kFarOut;
}

bool IsLeastAligned(InputKind kind) {
  return kind == InputKind::kUniform || kind == InputKind::kSpecialValues ||
         kind == InputKind::kAllEqual || kind == InputKind::kSmallIntegers;
}

InputSet MakeInputs(const OpSignature& signature, std::span<const InputRole> roles, InputKind kind,
                    uint64_t seed, int turn) {
  CF_CHECK(roles.size() == signature.inputs.size()) << "one role per input";
  InputSet set;
  set.name = InputKindName(kind);
  const int64_t largest = LargestFloating(signature);
  const bool misalign = IsLeastAligned(kind);
  const bool integral = IsIntegral(signature);
  std::vector<double> constants;
  if (integral) {
    for (const Node& node : signature.nodes) {
      AddIntegers(node.args, &constants);
      AddIntegers(node.kwargs, &constants);
    }
  }
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const TensorSpec& spec = signature.inputs[i];
    Part part{spec.dtype,
              roles[i],
              kind,
              spec.numel() == largest,
              static_cast<int64_t>(3 * i),
              std::max<int64_t>(spec.numel() / 16, 1),
              spec.numel(),
              spec.sizes.empty() || spec.strides.back() == 0 ? 1 : spec.sizes.back()};
    if (integral) part.constants = &constants;
    const std::optional<DecidingGroups> groups = GroupsOf(signature, roles, kind, i);
    if (groups.has_value()) part.groups = &*groups;
    part.turn = turn;
    SplitMix mix(seed ^ (static_cast<uint64_t>(kind) << 32) ^ (i << 40) ^
                 (static_cast<uint64_t>(turn) << 48));
    set.bytes.push_back(Fill(spec, part, mix.Next()));
    set.offsets.push_back(misalign ? spec.alignment : 0);
  }
  return set;
}

std::vector<double> Perturbed(const TensorSpec& spec, const std::string& bytes, uint64_t seed) {
  std::vector<double> values(static_cast<size_t>(spec.numel()));
  const int64_t size = DTypeSize(spec.dtype);
  const bool floating = IsFloating(spec.dtype);
  const double largest = floating ? LargestFinite(spec.dtype) : 0;
  ParallelChunks(spec.numel(), kFillChunk, [&](int64_t, int64_t begin, int64_t end) {
    for (ElementWalk walk(spec, /*skip_repeats=*/false, begin, end); !walk.done(); walk.Next()) {
      double value = LoadElement(spec.dtype, bytes.data() + walk.offset() * size);
      if (floating && std::fabs(value) < largest && value != 0) {
        // The move depends on the place in memory alone, so that expanded elements move together.
        SplitMix random(seed ^ static_cast<uint64_t>(walk.offset()));
        if (spec.dtype == DType::kFloat64) {
          value = std::nextafter(value, value * static_cast<double>(random.Below(3)));
        } else {
          const double unit =
              std::fabs(value) * ComputeRoundoff(spec.dtype) + ComputeUnderflow(spec.dtype);
          value += random.Below(2) == 0 ? unit : -unit;
        }
      }
      values[static_cast<size_t>(walk.index())] = value;
    }
  });
  return values;
}

}  // namespace cudaforge
