#include "verify/aten_region_reference.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "signature/aten_pch.h"
#include "signature/from_aten_region.h"
#include "signature/roles.h"
#include "verify/aten_derive.h"
#include "verify/aten_places.h"
#include "verify/aten_slice_judgement.h"
#include "verify/draw_plan.h"
#include "verify/drawer.h"
#include "verify/screen.h"

namespace cudaforge {
namespace {

constexpr int64_t kKeptAnswers = int64_t{256} << 20;  // bytes of ATen's answers, over all sets
constexpr int64_t kLargeBytes = int64_t{256} << 20;  // above this, ATen's unused memory is returned
// For a candidate in doubt, ATen runs on as many further sets as have this many elements.
constexpr int64_t kElementsInDoubt = int64_t{1} << 22;
constexpr int64_t kFewestInDoubt = 4, kMostInDoubt = 16;

// Suppresses ATen's warnings about our inputs (a variance of one element).
struct Silent : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// While an object lives, ATen records no gradients and gives no warnings.
struct Quiet {
  const at::NoGradGuard no_grad;
  Silent handler;
  const c10::WarningUtils::WarningHandlerGuard guard{&handler};
};

class AtenRegionReference : public RegionReference {
 public:
  static Result<std::unique_ptr<RegionReference>> Make(const OpSignature& region, int device_index,
                                                       DeviceMemory& memory, int64_t free_bytes,
                                                       uint64_t seed) {
    const Quiet quiet;
    int64_t elements = 0;
    for (size_t o = 0; o < region.outputs.size(); ++o) elements += region.output_spec(o).numel();
    if (elements == 0) return Status::Unsupported("no output elements: nothing to judge");
    std::unique_ptr<AtenRegionReference> made(
        new AtenRegionReference(region, device_index, memory, seed));
    CF_ASSIGN_OR_RETURN(made->program_, RegionProgram::Create(made->region_));
    CF_ASSIGN_OR_RETURN(const std::vector<InputRole> roles, FindRoles(made->region_));
    CF_ASSIGN_OR_RETURN(made->sets_, PlanDraws(made->region_, roles, seed));
    if (made->sets_.empty()) return Status::Unsupported("no set of inputs can test it");
    CF_ASSIGN_OR_RETURN(made->drawer_, Drawer::Create(region.device, memory.kernels()));
    Result<std::unique_ptr<SliceJudgement>> judgement = SliceJudgement::Create(made->region_);
    if (judgement.status().code() == StatusCode::kNoMemory) {
      SliceLimits limits;
      limits.bytes = std::max(limits.bytes, free_bytes / 4);
      judgement = SliceJudgement::Create(made->region_, limits);
    }
    CF_RETURN_IF_ERROR(judgement.status());
    made->judgement_ = *std::move(judgement);
    return std::unique_ptr<RegionReference>(std::move(made));
  }

  ~AtenRegionReference() override {
    answers_.clear();
    ReturnMemory();
  }

  size_t set_count() const override { return sets_.size(); }
  std::string set_name(size_t set) const override { return sets_[set].name; }

  Status Prepare(std::span<void* const> inputs, double seconds) override {
    const Quiet quiet;
    const double began = SteadySeconds();
    for (size_t set = 0; set < sets_.size(); ++set) {
      const double spent = SteadySeconds() - began;
      const auto left = static_cast<double>(sets_.size() - set);
      // The first run loads libraries.
      const double expected = set == 0   ? 0
                              : set == 1 ? 2 * spent
                                         : spent + (spent - first_s_) / (set - 1.0) * left;
      if (expected > seconds) {
        return Status::Timeout("its verification would take longer than the time allowed");
      }
      CF_RETURN_IF_ERROR(Draw(set, inputs));
      CF_RETURN_IF_ERROR(Measure(set, TensorsOf(inputs)));
      if (set == 0) first_s_ = SteadySeconds() - began;
    }
    judgement_->Finish();
    CF_RETURN_IF_ERROR(judgement_->TryDecoys());
    ReturnMemory();
    return Status::Ok();
  }

  Status Draw(size_t set, std::span<void* const> inputs) override {
    return DrawFrom(set, SeedOf(set), inputs);
  }

  Result<Verdict> Check(size_t set, std::span<void* const> inputs,
                        std::span<void* const> outputs) override {
    const Quiet quiet;
    const std::vector<at::Tensor> given = TensorsOf(inputs);
    CF_ASSIGN_OR_RETURN(const std::vector<at::Tensor> aten, Answer(set, given));
    const std::string where = "inputs \"" + sets_[set].name + "\", output ";
    std::vector<at::Tensor> candidate;
    ElementLists suspects;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const TensorSpec& spec = region_.output_spec(o);
      candidate.push_back(At(outputs[o], spec));
      ScreenRequest request;
      request.spec = spec;
      request.aten = aten[o].const_data_ptr();
      request.candidate = outputs[o];
      request.match = judgement_->match(o);
      CF_ASSIGN_OR_RETURN(const ScreenResult found, Screen(memory_, request));
      suspects.emplace_back();
      if (request.match != Match::kTolerance) {
        if (found.unequal == 0) continue;
        try {
          if (!ArePlacesOfEquals(region_, o, given, aten[o], candidate[o])) {
            return Unequal(where + std::to_string(o), o, found, aten[o], candidate[o]);
          }
        } catch (const std::exception& error) {
          return StatusOfAten(error);
        }
        candidate[o] = aten[o];  // as if correct
        continue;
      }
      if (found.unequal == 0) continue;
      if (found.first_mask_unequal >= 0) suspects.back().push_back(found.first_mask_unequal);
      for (const Worst& worst : found.worst) {
        if (worst.relative > 0) suspects.back().push_back(worst.index);
      }
    }
    const SetTensors tensors{given, aten};
    SliceVerdict verdict = judgement_->Check(set, tensors, candidate, suspects);
    CF_RETURN_IF_ERROR(verdict.status);
    if (verdict.more_sets_may_clear && !asked_[set]) {
      asked_[set] = true;
      CF_RETURN_IF_ERROR(AskMoreSets(set, inputs));
      verdict = judgement_->Check(set, tensors, candidate, suspects);
      CF_RETURN_IF_ERROR(verdict.status);
    }
    return std::move(verdict.verdict);
  }

  Json Report() const override {
    Json report = judgement_->Report();
    report["aten_deterministic"] = deterministic_;
    return report;
  }

 private:
  AtenRegionReference(const OpSignature& region, int device_index, DeviceMemory& memory,
                      uint64_t seed)
      : region_(region),
        device_(region.device == DeviceType::kCuda
                    ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device_index))
                    : at::Device(at::kCPU)),
        memory_(memory),
        seed_(seed) {
    for (const TensorSpec& spec : region_.inputs) {
      elements_ += spec.numel();
      bytes_ += spec.StorageBytes();
    }
    for (size_t o = 0; o < region_.outputs.size(); ++o) {
      output_bytes_ += region_.output_spec(o).StorageBytes();
    }
  }

  uint64_t SeedOf(size_t set) const {
    return SplitMix(seed_ ^ (0x5e7 + 7919 * static_cast<uint64_t>(set))).Next();
  }

  at::Tensor At(void* data, const TensorSpec& spec) const {
    return at::for_blob(data, spec.sizes)
        .strides(spec.strides)
        .options(at::TensorOptions().dtype(ToScalarType(spec.dtype)).device(device_))
        .target_device(device_)
        .make_tensor();
  }

  std::vector<at::Tensor> TensorsOf(std::span<void* const> inputs) const {
    std::vector<at::Tensor> tensors;
    for (size_t i = 0; i < inputs.size(); ++i) tensors.push_back(At(inputs[i], region_.inputs[i]));
    return tensors;
  }

  Status DrawFrom(size_t set, uint64_t seed, std::span<void* const> inputs) {
    CF_RETURN_IF_ERROR(drawer_->Draw(sets_[set], region_, seed, inputs));
    if (!sets_[set].derive) return Status::Ok();
    const Quiet quiet;
    std::vector<at::Tensor> tensors = TensorsOf(inputs);
    return DeriveInputs(region_, tensors);
  }

  // Runs ATen; returns its outputs in the signature's strides.
  Result<std::vector<at::Tensor>> Run(const std::vector<at::Tensor>& inputs,
                                      const std::string& set) const {
    try {
      std::vector<at::Tensor> outputs = program_->RunStrided(inputs);
      for (size_t o = 0; o < outputs.size(); ++o) {
        const TensorSpec& spec = region_.output_spec(o);
        if (outputs[o].scalar_type() != ToScalarType(spec.dtype) ||
            outputs[o].sizes() != at::IntArrayRef(spec.sizes)) {
          return Status::Unsupported("ATen's output " + std::to_string(o) +
                                     " has another dtype or shape than the signature says");
        }
      }
      return outputs;
    } catch (const std::exception& error) {
      const Status status = StatusOfAten(error);
      if (status.code() == StatusCode::kNoMemory) {
        ReturnMemory();
        return status;
      }
      const bool has_result = dynamic_cast<const UnexpectedResult*>(&error) != nullptr;
      return Status::Unsupported(
          (has_result ? "PyTorch's kernel returns another dtype or shape than its trace: "
                      : "PyTorch itself refuses this region's inputs: ") +
          status.message() + " (input set \"" + set + "\")");
    }
  }

  Result<std::vector<at::Tensor>> Answer(size_t set, const std::vector<at::Tensor>& inputs) {
    const auto kept = answers_.find(set);
    if (kept != answers_.end()) return kept->second;
    CF_ASSIGN_OR_RETURN(std::vector<at::Tensor> outputs, Run(inputs, sets_[set].name));
    if (output_bytes_ * static_cast<int64_t>(sets_.size()) > kKeptAnswers) answers_.clear();
    answers_[set] = outputs;
    return outputs;
  }

  // Computes ATen's answers on a set, and the slices to judge candidates by.
  Status Measure(size_t set, const std::vector<at::Tensor>& inputs) {
    CF_ASSIGN_OR_RETURN(const std::vector<at::Tensor> aten, Answer(set, inputs));
    if (set == 0) {
      CF_ASSIGN_OR_RETURN(const std::vector<at::Tensor> again, Run(inputs, sets_[set].name));
      for (size_t o = 0; o < aten.size(); ++o) {
        const TensorSpec& spec = region_.output_spec(o);
        ScreenRequest request;
        request.spec = spec;
        request.aten = aten[o].const_data_ptr();
        request.candidate = again[o].const_data_ptr();
        request.match = Match::kBitwise;
        CF_ASSIGN_OR_RETURN(const ScreenResult found, Screen(memory_, request));
        if (found.unequal == 0) continue;
        deterministic_ = false;
        if (!IsFloating(spec.dtype)) {
          return Status::Unsupported("ATen gives different integers on the same inputs");
        }
      }
    }
    CF_ASSIGN_OR_RETURN(const size_t number,
                        judgement_->Prepare(sets_[set].name, {inputs, aten}, SeedOf(set) + 1));
    CF_CHECK(number == set);
    return Status::Ok();
  }

  // Adds ATen's answers on more sets of the kind. They are drawn in the set's place, which is
  // restored.
  Status AskMoreSets(size_t set, std::span<void* const> inputs) {
    if (!sets_[set].worth_errors) return Status::Ok();
    const int64_t more = std::clamp(kElementsInDoubt / std::max<int64_t>(elements_, 1),
                                    kFewestInDoubt, kMostInDoubt);
    Status status;
    for (int64_t n = 1; status.ok() && n <= more; ++n) {
      const uint64_t seed = SplitMix(SeedOf(set) + static_cast<uint64_t>(n)).Next();
      status = DrawFrom(set, seed, inputs);
      if (!status.ok()) break;
      const std::vector<at::Tensor> given = TensorsOf(inputs);
      const Result<std::vector<at::Tensor>> aten = Run(given, sets_[set].name);
      status = aten.ok() ? judgement_->AddTypical(set, {given, *aten}, seed) : aten.status();
    }
    CF_RETURN_IF_ERROR(Draw(set, inputs));
    return status.code() == StatusCode::kUnsupported ? Status::Ok() : status;
  }

  static Verdict Unequal(const std::string& where, size_t output, const ScreenResult& found,
                         const at::Tensor& aten, const at::Tensor& candidate) {
    // A row-major index, not the order in memory.
    const int64_t index = found.first_unequal;
    const auto element = [index](const at::Tensor& tensor) {
      int64_t rest = index, offset = 0;
      for (int64_t d = tensor.dim() - 1; d >= 0; --d) {
        offset += rest % tensor.size(d) * tensor.stride(d);
        rest /= tensor.size(d);
      }
      const at::Tensor one = tensor.as_strided({}, {}, offset).to(at::kCPU);
      return at::isFloatingType(one.scalar_type()) ? FloatToJson(one.item<double>())
                                                   : Json(one.item<int64_t>());
    };
    const Json right = element(aten), wrong = element(candidate);
    return {VerdictKind::kWrongValues,
            where + ": " + std::to_string(found.unequal) + " of " + std::to_string(found.elements) +
                " elements differ; element " + std::to_string(index) + " is " + wrong.dump() +
                " and must be " + right.dump(),
            {{"output", output},
             {"wrong_elements", found.unequal},
             {"element", index},
             {"candidate", wrong},
             {"aten", right}}};
  }

  // Returns memory that ATen's allocator keeps after a large region.
  void ReturnMemory() const {
    if (!device_.is_cuda() || bytes_ + output_bytes_ < kLargeBytes) return;
    at::getDeviceAllocator(at::kCUDA)->emptyCache();
  }

  const OpSignature region_;
  const at::Device device_;
  DeviceMemory& memory_;
  const uint64_t seed_;
  std::unique_ptr<RegionProgram> program_;
  std::vector<DrawSet> sets_;
  std::unique_ptr<Drawer> drawer_;
  std::unique_ptr<SliceJudgement> judgement_;
  std::map<size_t, std::vector<at::Tensor>> answers_;
  std::map<size_t, bool> asked_;  // whether more sets were requested
  int64_t elements_ = 0;          // of the inputs
  int64_t bytes_ = 0, output_bytes_ = 0;
  double first_s_ = 0;  // seconds of the first set
  bool deterministic_ = true;
};

}  // namespace

Result<std::unique_ptr<RegionReference>> MakeAtenRegionReference(const OpSignature& region,
                                                                 int device_index,
                                                                 DeviceMemory& memory,
                                                                 int64_t free_bytes,
                                                                 uint64_t seed) {
  return AtenRegionReference::Make(region, device_index, memory, free_bytes, seed);
}

}  // namespace cudaforge
