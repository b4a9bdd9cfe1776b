#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <optional>
#include <set>
#include <utility>

#include "signature/aten_pch.h"
#include "signature/from_aten_region.h"
#include "verify/aten_derive.h"
#include "verify/checker.h"
#include "verify/compare.h"
#include "verify/decoys.h"
#include "verify/elements.h"
#include "verify/inputs.h"
#include "verify/random.h"

namespace cudaforge {
namespace {

// Beyond these many bytes of inputs and outputs only four of the sets are tried, or three (each
// holds rows of many kinds).
constexpr int64_t kLargeBytes = int64_t{32} << 20;
constexpr int64_t kHugeBytes = int64_t{256} << 20;
// Random moves of the inputs by a rounding unit, for the conditioning of each element.
constexpr uint64_t kMoves = 4;
// Sums of n rows of 2,048 in float32 that were rejected (40 to 400 seeds each), without further draws
// and with them, by how many times ATen's root-mean-square error on normal numbers
// the kernel's is:
//   1.1 (64 lanes)  n = 1: 1.8%, 0    n = 8: 2%, 0      n = 32: 0, 0
//   1.4 (32 lanes)         8%, 0.5%          9.5%, 0            5%, 2.5%
//   1.9 (16 lanes)         18%, 6%           34%, 7%            37%, 12.5%
//   3.7 (4 lanes)          72%, 74%          99%, 97%           100%, 95%
// So a kernel that is right but twice as imprecise as is allowed may pass, seldom. Sums of inputs
// in bfloat16 or cut to TF32, sums in bfloat16, rows without their last element and one element
// off by 1e-5 of itself were rejected always (n = 1, 8).
// Outputs of fewer elements than this get ATen's errors on more draws of each set, until they are
// that many; kMostDraws at most, and no more than have kDrawnElements input elements, but
// kFewestDraws in any case: they cost about half of what the set itself does.
constexpr int64_t kPool = 4096;
constexpr int64_t kMostDraws = 127;
constexpr int64_t kFewestDraws = 2;
constexpr int64_t kDrawnElements = int64_t{1} << 22;
// Outputs of so few elements are tried on two draws of each set, where the inputs are small.
constexpr int64_t kTwice = 8;
// Values that show an output to hang on the inputs, although each of its rows is of one value.
constexpr size_t kRowValues = 3;
// Non-zero elements, over all sets, that must equal the oracle before ATen is called exact.
constexpr int64_t kEnoughForExact = 64;

struct Case {
  InputSet inputs;
  std::vector<OutputReference> outputs;
};

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// float64 has no use for ATen's errors.
bool IsPooled(const TensorSpec& spec) {
  return IsFloating(spec.dtype) && spec.dtype != DType::kFloat64 && spec.numel() > 0 &&
         spec.numel() < kPool;
}

// Runs one region on one set of inputs, for ATen's answers and the oracle's.
class Reference {
 public:
  Reference(const RegionProgram& program, at::Device device) : program_(program), device_(device) {}

  std::vector<at::Tensor> Inputs(const InputSet& set) const {
    std::vector<at::Tensor> tensors;
    const auto& specs = program_.signature().inputs;
    for (size_t i = 0; i < specs.size(); ++i) {
      const auto options = at::TensorOptions().dtype(ToScalarType(specs[i].dtype));
      const at::Tensor host = at::from_blob(const_cast<char*>(set.bytes[i].data()), specs[i].sizes,
                                            specs[i].strides, options);
      // Copied as raw storage, so that strides (expanded ones too) arrive as they are.
      const int64_t elements = specs[i].StorageBytes() / DTypeSize(specs[i].dtype);
      const at::Tensor flat =
          at::from_blob(const_cast<char*>(set.bytes[i].data()), {elements}, options);
      tensors.push_back(flat.to(device_, /*non_blocking=*/false, /*copy=*/true)
                            .as_strided(host.sizes(), host.strides()));
    }
    return tensors;
  }

  // The outputs' storage bytes, in the signature's strides.
  std::vector<std::string> Aten(const std::vector<at::Tensor>& inputs) const {
    std::vector<std::string> bytes;
    const std::vector<at::Tensor> outputs = program_.RunStrided(inputs);
    for (size_t o = 0; o < outputs.size(); ++o) {
      const TensorSpec& spec = program_.signature().output_spec(o);
      std::string storage(static_cast<size_t>(spec.StorageBytes()), '\0');
      const auto options = at::TensorOptions().dtype(outputs[o].scalar_type());
      if (outputs[o].scalar_type() != ToScalarType(spec.dtype) ||
          outputs[o].sizes() != at::IntArrayRef(spec.sizes)) {
        throw std::runtime_error("ATen's output " + std::to_string(o) +
                                 " has another dtype or shape than the signature says");
      }
      if (!storage.empty()) {
        at::from_blob(storage.data(), spec.sizes, spec.strides, options).copy_(outputs[o]);
      }
      bytes.push_back(std::move(storage));
    }
    return bytes;
  }

  // Row-major doubles of the floating outputs; empty vectors for the others.
  std::vector<std::vector<double>> Oracle(const std::vector<at::Tensor>& inputs) const {
    std::vector<std::vector<double>> values;
    for (const at::Tensor& output : program_.RunFp64(inputs)) {
      const size_t o = values.size();
      values.emplace_back();
      if (!IsFloating(program_.signature().output_spec(o).dtype)) continue;
      const at::Tensor host = output.to(at::kCPU, at::kDouble).contiguous();
      const auto* data = host.const_data_ptr<double>();
      values.back().assign(data, data + host.numel());
    }
    return values;
  }

  // `inputs`: those of `set`.
  std::vector<at::Tensor> PerturbedInputs(const InputSet& set,
                                          const std::vector<at::Tensor>& inputs,
                                          uint64_t seed) const {
    std::vector<at::Tensor> tensors = inputs;
    const auto& specs = program_.signature().inputs;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (!IsFloating(specs[i].dtype)) continue;
      if (device_.is_cuda() && specs[i].dtype != DType::kFloat64) {
        tensors[i] = Moved(tensors[i], specs[i], seed + i);
        continue;
      }
      std::vector<double> moved = Perturbed(specs[i], set.bytes[i], seed + i);
      tensors[i] = at::from_blob(moved.data(), specs[i].sizes, at::kDouble)
                       .to(device_, /*non_blocking=*/false, /*copy=*/true);
    }
    return tensors;
  }

 private:
  // Perturbed() where the tensor is, by the same rule with other random signs: large inputs do not
  // cross the bus once more for each move.
  static at::Tensor Moved(const at::Tensor& tensor, const TensorSpec& spec, uint64_t seed) {
    const int64_t elements = spec.StorageBytes() / DTypeSize(spec.dtype);
    const at::Tensor flat = tensor.as_strided({elements}, {1}).to(at::kDouble);
    const auto start = static_cast<int64_t>(SplitMix(seed).Next() >> 1);
    at::Tensor bits = at::arange(elements, flat.options().dtype(at::kLong));
    for (const int64_t factor : {int64_t{0x1e3779b97f4a7c15}, int64_t{0x3f58476d1ce4e5b9}}) {
      bits.add_(start).mul_(factor);
      bits.bitwise_xor_(bits.bitwise_right_shift(at::Scalar(int64_t{31})));
    }
    const at::Tensor signs =
        bits.bitwise_and_(at::Scalar(int64_t{1})).to(at::kDouble).mul_(2).sub_(1);
    const at::Tensor underflow = flat.ne(0).to(at::kDouble).mul_(ComputeUnderflow(spec.dtype));
    return flat.mul(signs.mul(ComputeRoundoff(spec.dtype)).add_(1))
        .add_(signs.mul(underflow))
        .as_strided(tensor.sizes(), tensor.strides());
  }

  const RegionProgram& program_;
  at::Device device_;
};

// What small outputs need beside the sets.
struct More {
  int64_t draws = 0;   // of each set, for the yardstick
  bool twice = false;  // whether candidates are tried on two draws of each set
};

More MoreFor(const OpSignature& signature) {
  if (MatchForOps(signature) != Match::kTolerance) return {};
  int64_t smallest = kPool;
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    const TensorSpec& spec = signature.output_spec(o);
    if (IsPooled(spec)) smallest = std::min(smallest, spec.numel());
  }
  int64_t elements = 1;
  for (const TensorSpec& spec : signature.inputs) elements += spec.numel();
  const int64_t affordable = std::clamp(kDrawnElements / elements, kFewestDraws, kMostDraws);
  return {std::min((kPool - 1) / smallest, affordable),
          smallest <= kTwice && elements <= kDrawnElements / 4};
}

std::vector<InputKind> KindsForLarge(const std::vector<InputKind>& kinds, bool huge) {
  std::vector<InputKind> kept;
  int turns = 0;
  for (const InputKind kind : kinds) {
    const bool keep = kind == InputKind::kOneUnlike
                          ? ++turns <= (huge ? 2 : 4)
                          : kind == InputKind::kNormal || kind == InputKind::kSpecialValues ||
                                (!huge && kind == InputKind::kRowScales) ||
                                kind == InputKind::kMixed;
    if (keep) kept.push_back(kind);
  }
  return kept;
}

class AtenChecker : public RegionChecker {
 public:
  static Result<std::unique_ptr<RegionChecker>> Make(const OpSignature& signature, int device_index,
                                                     uint64_t seed) {
    const at::NoGradGuard no_grad;
    CF_ASSIGN_OR_RETURN(const auto program, RegionProgram::Create(signature));
    CF_ASSIGN_OR_RETURN(const auto roles, FindRoles(signature));
    int64_t bytes = 0;
    int64_t elements = 0;
    for (const TensorSpec& spec : signature.inputs) bytes += spec.StorageBytes();
    for (size_t o = 0; o < signature.outputs.size(); ++o) {
      bytes += signature.output_spec(o).StorageBytes();
      elements += signature.output_spec(o).numel();
    }
    if (elements == 0) return Status::Unsupported("no output elements: nothing to judge");

    auto checker = std::make_unique<AtenChecker>(signature);
    const at::Device device =
        signature.device == DeviceType::kCuda
            ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device_index))
            : at::Device(at::kCPU);
    const Reference reference(*program, device);
    std::vector<InputKind> kinds = InputKindsFor(signature);
    if (bytes > kLargeBytes) {
      kinds = KindsForLarge(kinds, bytes > kHugeBytes);
    }
    const More more = MoreFor(signature);
    int turn = 0;
    for (const InputKind kind : kinds) {
      auto make = [&](uint64_t from) -> Result<InputSet> {
        InputSet set = MakeInputs(signature, roles, kind, from, turn);
        CF_RETURN_IF_ERROR(DeriveInputs(signature, &set));
        return set;
      };
      Case made;
      CF_ASSIGN_OR_RETURN(made.inputs, make(seed));
      made.inputs.id = NextId();
      std::vector<std::vector<OutputDraw>> drawn(signature.outputs.size());
      const bool varies = kind != InputKind::kAllEqual && kind != InputKind::kOneUnlike;
      for (int64_t d = 0; varies && d < more.draws; ++d) {
        CF_ASSIGN_OR_RETURN(const InputSet set,
                            make(SplitMix(seed + ~static_cast<uint64_t>(d)).Next()));
        CF_RETURN_IF_ERROR(checker->AddDraw(reference, set, &drawn));
      }
      CF_RETURN_IF_ERROR(checker->AddCase(reference, std::move(made), drawn, seed));
      if (more.twice && varies) {
        Case again;
        CF_ASSIGN_OR_RETURN(again.inputs, make(~seed));
        again.inputs.id = NextId();
        again.inputs.name += ", again";
        CF_RETURN_IF_ERROR(checker->AddCase(reference, std::move(again), drawn, ~seed));
      }
      if (kind == InputKind::kOneUnlike) ++turn;
    }
    checker->ChooseMatches();
    CF_RETURN_IF_ERROR(checker->TryDecoys());
    return std::unique_ptr<RegionChecker>(std::move(checker));
  }

  explicit AtenChecker(const OpSignature& signature) : signature_(signature) {}

  size_t case_count() const override { return cases_.size(); }
  const InputSet& inputs(size_t i) const override { return cases_.at(i).inputs; }

  Verdict Check(size_t i, std::span<const std::string> outputs) const override {
    const Case& one = cases_.at(i);
    if (outputs.size() != one.outputs.size()) {
      return {VerdictKind::kWrongShape,
              std::to_string(outputs.size()) + " outputs where the region has " +
                  std::to_string(one.outputs.size()),
              Json::object()};
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      Verdict verdict = one.outputs[o].Check(outputs[o], Where(one, o));
      if (!verdict.accepted()) return verdict;
    }
    return {};
  }

  Json Report() const override {
    static constexpr const char* kRules[] = {"tolerance", "equal", "bitwise"};
    Json cases = Json::array();
    for (const Case& one : cases_) {
      for (size_t o = 0; o < one.outputs.size(); ++o) {
        Json entry = {{"case", one.inputs.name},
                      {"output", o},
                      {"rule", kRules[static_cast<int>(one.outputs[o].match())]},
                      {"elements", one.outputs[o].spec().numel()}};
        if (one.outputs[o].yardstick().has_value()) {
          entry.update(one.outputs[o].yardstick()->ToJson());
        }
        cases.push_back(std::move(entry));
      }
    }
    return {{"cases", cases}, {"aten_deterministic", deterministic_}};
  }

 private:
  static std::string Where(const Case& one, size_t output) {
    return "inputs \"" + one.inputs.name + "\", output " + std::to_string(output);
  }

  // ATen's answers and the oracle's on `set`, one more draw for each small output.
  Status AddDraw(const Reference& reference, const InputSet& set,
                 std::vector<std::vector<OutputDraw>>* drawn) const {
    try {
      const std::vector<at::Tensor> inputs = reference.Inputs(set);
      std::vector<std::string> aten = reference.Aten(inputs);
      std::vector<std::vector<double>> oracle = reference.Oracle(inputs);
      for (size_t o = 0; o < aten.size(); ++o) {
        if (!IsPooled(signature_.output_spec(o))) continue;
        (*drawn)[o].push_back({std::move(aten[o]), std::move(oracle[o])});
      }
    } catch (const std::exception& error) {
      return Refused(set, error);
    }
    return Status::Ok();
  }

  static Status Refused(const InputSet& set, const std::exception& error) {
    return Status::Unsupported("ATen refuses the inputs \"" + set.name + "\": " + error.what());
  }

  Status AddCase(const Reference& reference, Case made,
                 const std::vector<std::vector<OutputDraw>>& drawn, uint64_t seed) {
    std::vector<std::string> first, second;
    std::vector<std::vector<double>> oracle;
    std::vector<std::vector<std::vector<double>>> moves;  // by output, then by move
    try {
      const std::vector<at::Tensor> inputs = reference.Inputs(made.inputs);
      first = reference.Aten(inputs);
      second = reference.Aten(inputs);
      oracle = reference.Oracle(inputs);
      moves.resize(first.size());
      for (uint64_t move = 0; move < kMoves; ++move) {
        auto moved =
            reference.Oracle(reference.PerturbedInputs(made.inputs, inputs, seed + (move << 32)));
        for (size_t o = 0; o < moved.size(); ++o) moves[o].push_back(std::move(moved[o]));
      }
    } catch (const std::exception& error) {
      return Refused(made.inputs, error);
    }
    int64_t largest = 0;  // elements of an input: an output's element may be a sum of its share
    for (const TensorSpec& input : signature_.inputs) largest = std::max(largest, input.numel());
    for (size_t o = 0; o < first.size(); ++o) {
      const TensorSpec& spec = signature_.output_spec(o);
      deterministic_ = deterministic_ && first[o] == second[o];
      std::optional<Yardstick> yardstick;
      const bool same = first[o] == second[o];
      if (IsFloating(spec.dtype)) {
        const std::string* runs[] = {&first[o], &second[o]};
        yardstick.emplace(spec, std::span(runs, same ? 1 : 2), oracle[o], moves[o], drawn[o],
                          largest / std::max<int64_t>(spec.numel(), 1));
      } else if (!same) {
        return Status::Unsupported("ATen gives different integers on the same inputs");
      }
      made.outputs.emplace_back(spec, std::move(first[o]), std::move(oracle[o]),
                                std::move(yardstick));
    }
    cases_.push_back(std::move(made));
    return Status::Ok();
  }

  void ChooseMatches() {
    const Match by_ops = MatchForOps(signature_);
    for (size_t o = 0; o < signature_.outputs.size(); ++o) {
      const DType dtype = signature_.output_spec(o).dtype;
      Match match = Match::kBitwise;
      if (IsFloating(dtype)) {
        bool exact = dtype != DType::kFloat64;  // there the oracle is the same computation
        int64_t nonzero = 0;
        for (const Case& one : cases_) {
          exact = exact && one.outputs[o].yardstick()->aten_is_exact();
          nonzero += one.outputs[o].yardstick()->nonzero();
        }
        match = by_ops == Match::kTolerance && exact && nonzero >= kEnoughForExact ? Match::kEqual
                                                                                   : by_ops;
      }
      for (Case& one : cases_) one.outputs[o].set_match(match);
    }
  }

  // Whether each row of output `o` is one value, on every set and in the oracle to the last bit,
  // and another one from row to row or set to set. All elements of the inputs are drawn
  // independently, so this is no chance: it is what the function does (the gradient of an average
  // over the whole plane), and a kernel that repeats the right value is right.
  bool RowsAreOneValue(size_t o) const {
    std::set<double> values;
    for (const Case& one : cases_) {
      const OutputReference& output = one.outputs[o];
      if (output.oracle().empty()) return false;
      const int64_t columns = output.spec().sizes.back();
      for (size_t i = 0; i < output.oracle().size(); ++i) {
        const double value = output.oracle()[i];
        const double first = output.oracle()[i - i % static_cast<size_t>(columns)];
        if (value != first && !(std::isnan(value) && std::isnan(first))) return false;
        if (std::isfinite(value) && values.size() < kRowValues) values.insert(value);
      }
      const auto decoy =
          MakeDecoy(Decoy::kRowConstant, output.spec(), output.aten(), signature_, one.inputs);
      if (decoy != output.aten()) return false;
    }
    return values.size() >= kRowValues;
  }

  // Every decoy, in place of every output, must fail in at least one case.
  Status TryDecoys() const {
    for (size_t o = 0; o < signature_.outputs.size(); ++o) {
      for (const Decoy decoy : kDecoys) {
        bool tried = false;
        bool caught = false;
        for (const Case& one : cases_) {
          const OutputReference& output = one.outputs[o];
          const auto bytes = MakeDecoy(decoy, output.spec(), output.aten(), signature_, one.inputs);
          if (!bytes.has_value()) break;
          tried = true;
          caught = !output.Check(*bytes, "").accepted();
          if (caught) break;
        }
        if (tried && !caught && !(decoy == Decoy::kRowConstant && RowsAreOneValue(o))) {
          return Status::Unsupported(
              "cannot tell right from wrong: " + std::string(DecoyName(decoy)) +
              " would pass as output " + std::to_string(o));
        }
      }
    }
    return Status::Ok();
  }

  OpSignature signature_;
  std::vector<Case> cases_;
  bool deterministic_ = true;
};

}  // namespace

Result<std::unique_ptr<RegionChecker>> RegionChecker::Create(const OpSignature& signature,
                                                             int device_index, uint64_t seed) {
  return AtenChecker::Make(signature, device_index, seed);
}

}  // namespace cudaforge
