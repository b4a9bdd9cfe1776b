#include "verify/draw_plan.h"

#include <algorithm>

#include "base/random.h"
#include "signature/op_facts.h"
#include "verify/draw_bounds.h"
#include "verify/draw_kinds.h"
#include "verify/draw_layout.h"
#include "verify/draw_singles.h"

namespace cudaforge {
namespace {

using device::DrawnTensor;
using device::DrawSingles;
using Recipe = DrawRecipe;

constexpr int64_t kFewSetsBytes = int64_t{32} << 20;
constexpr int64_t kFewestSetsBytes = int64_t{256} << 20;
constexpr int64_t kMostDrawTurns = 8;
constexpr int64_t kMostSpecialTurns = 16;
// Three values at sixteen kinds of place, four times, to cover all lanes.
constexpr int64_t kSpecialTurns = 192;
// In products and windows, one group in this many has a special value, because each makes rows or
// columns of the result special.
constexpr int64_t kSparseSpecials = 8;

struct RecipeInfo {
  const char* name;
  bool worth_errors;
};

RecipeInfo InfoOf(Recipe recipe) {
  switch (recipe) {
    case Recipe::kNormal:
      return {"normal", true};
    case Recipe::kUniform:
      return {"uniform", true};
    case Recipe::kRowScales:
      return {"row_scales", true};
    case Recipe::kSpecialRows:
      return {"special_rows", false};
    case Recipe::kZerosDenormals:
      return {"zeros_denormals", false};
    case Recipe::kAllEqual:
      return {"all_equal", false};
    case Recipe::kMixed:
      return {"mixed", true};
    case Recipe::kSmallIntegers:
      return {"small_integers", false};
    case Recipe::kRowConstant:
      return {"row_constant", false};
    case Recipe::kByPosition:
      return {"by_position", true};
    case Recipe::kLastTenth:
      return {"last_tenth", true};
    case Recipe::kWide:
      return {"wide", true};
    case Recipe::kNanOperands:
      return {"nan_operands", false};
    case Recipe::kInfiniteOperands:
      return {"infinite_operands", false};
    case Recipe::kOneSpecial:
      return {"one_special", false};
    case Recipe::kPackedSpecials:
      return {"packed_specials", false};
    case Recipe::kOneUnlike:
      return {"one_unlike", false};
    case Recipe::kFarOut:
      return {"far_out", false};
    case Recipe::kIgnoredLabels:
      return {"ignored_labels", false};
    case Recipe::kOneLabel:
      return {"one_label", false};
    case Recipe::kMeeting:
      return {"meeting", false};
    case Recipe::kNextAbove:
      return {"next_above", false};
  }
  return {"", false};
}

void AddArgumentIntegers(const Json& args, std::vector<int64_t>* integers) {
  if (args.is_number_integer()) integers->push_back(args.get<int64_t>());
  if (!args.is_structured()) return;
  for (const Json& arg : args) AddArgumentIntegers(arg, integers);
}

class DrawPlanner {
 public:
  DrawPlanner(const OpSignature& signature, std::span<const InputRole> roles, uint64_t seed)
      : signature_(signature), roles_(roles), seed_(seed) {
    bool integral = true;
    for (const TensorSpec& spec : signature.inputs) {
      bytes_ += spec.StorageBytes();
      if (!IsFloating(spec.dtype)) continue;
      floating_ = true;
      integral = false;
      largest_ = std::max(largest_, spec.numel());
    }
    for (size_t o = 0; o < signature.outputs.size(); ++o) {
      bytes_ += signature.output_spec(o).StorageBytes();
      integral = integral && !IsFloating(signature.output_spec(o).dtype);
    }
    for (const Node& node : signature.nodes) {
      const OpFacts& facts = FactsOf(node.op);
      derive_ = derive_ || facts.saved != Saved::kNothing;
      product_ = product_ || facts.kind == OpKind::kContracts;
      positive_ = positive_ || facts.of_positive;
      sparse_ = sparse_ || facts.kind == OpKind::kContracts || facts.needs == OpNeeds::kWindow;
      if (!integral) continue;
      AddArgumentIntegers(node.args, &constants_);
      AddArgumentIntegers(node.kwargs, &constants_);
    }
    const bool far = BearsFarNumbers(signature);
    const MeetingBounds bounds = BoundsOfMeeting(signature, roles);
    meets_ = bounds.meets;
    bool bears_zero = false;
    const bool variances = IsGivenVariances(signature, &bears_zero);
    for (size_t i = 0; i < roles.size(); ++i) {
      const TensorSpec& spec = signature.inputs[i];
      DrawnInput input;
      input.spec = &spec;
      input.role = roles[i];
      input.large = IsFloating(spec.dtype) && spec.numel() == largest_;
      input.integral = integral;
      input.constants = constants_;
      input.far = far;
      input.positive = positive_;
      input.product = product_ && roles[i].kind == InputRole::Kind::kValue;
      input.alone = bounds.alone;
      input.bears_largest = bounds.bears_largest;
      input.operands = bounds.operands;
      input.variance = variances && roles[i].kind == InputRole::Kind::kPositive;
      input.bears_zero = bears_zero;
      inputs_.push_back(input);
      labels_ = labels_ || roles[i].kind == InputRole::Kind::kTarget;
      if (inputs_[i].large && roles[i].kind == InputRole::Kind::kValue && spec.numel() > 0) {
        specials_.push_back(i);
      }
    }
  }

  std::vector<DrawSet> Plan() {
    if (bytes_ > kFewSetsBytes) {
      PlanFew(bytes_ > kFewestSetsBytes);
      return std::move(sets_);
    }
    Add(Recipe::kNormal);
    Again();
    for (const Recipe recipe : {Recipe::kUniform, Recipe::kRowScales}) Add(recipe);
    if (floating_) Add(Recipe::kSpecialRows);
    if (floating_) Add(Recipe::kZerosDenormals);
    for (const Recipe recipe : {Recipe::kAllEqual, Recipe::kMixed}) Add(recipe);
    if (floating_) Add(Recipe::kSmallIntegers);
    for (const Recipe recipe : {Recipe::kRowConstant, Recipe::kByPosition}) Add(recipe);
    if (floating_) Add(Recipe::kLastTenth);
    if (floating_) Add(Recipe::kWide);
    if (meets_) Add(Recipe::kMeeting);
    if (PicksNumbers(signature_)) Add(Recipe::kNextAbove);
    if (labels_) Add(Recipe::kOneLabel);
    if (labels_) Add(Recipe::kIgnoredLabels);
    AddOperands(Recipe::kNanOperands);
    AddOperands(Recipe::kInfiniteOperands);
    AddTurns(Recipe::kOneSpecial, kMostSpecialTurns);
    AddTurns(Recipe::kOneUnlike, kMostDrawTurns);
    AddTurns(Recipe::kFarOut, kMostDrawTurns);
    return std::move(sets_);
  }

 private:
  void PlanFew(bool huge) {
    Add(Recipe::kNormal);
    Again();
    Add(Recipe::kMixed);
    if (floating_ && positive_) Add(Recipe::kUniform);
    if (floating_) Add(Recipe::kPackedSpecials);
    if (meets_) Add(Recipe::kMeeting);
    if (!floating_) Add(Recipe::kRowScales);
    if (!floating_) Add(Recipe::kUniform);
    if (labels_) Add(Recipe::kIgnoredLabels);
    AddOperands(Recipe::kNanOperands);
    AddTurns(Recipe::kOneUnlike, huge ? 1 : 2);
    AddTurns(Recipe::kFarOut, huge ? 1 : 2);
    if (huge) return;
    if (PicksNumbers(signature_)) Add(Recipe::kNextAbove);
    AddOperands(Recipe::kInfiniteOperands);
    AddTurns(Recipe::kOneSpecial, 1);
    if (floating_) Add(Recipe::kSmallIntegers);
  }

  // Adds sets with single special values in small operands, if any can have them.
  void AddOperands(Recipe recipe) {
    for (const DrawnInput& input : inputs_) {
      const bool seen =
          input.role.kind == InputRole::Kind::kKey || input.role.kind == InputRole::Kind::kSeen;
      if (!IsFloating(input.spec->dtype) || input.spec->numel() == 0) continue;
      if (input.large && !seen) continue;
      if (TakesSingles(input.role.kind, recipe)) return Add(recipe);
    }
  }

  void AddTurns(Recipe recipe, int64_t most) {
    int64_t turns = 1;
    if (inputs_.empty()) return;
    if (recipe == Recipe::kOneSpecial) {
      if (specials_.empty()) return;
      const int64_t groups =
          CountGroups(specials_[0], recipe) / (std::ssize(specials_) * Sparsity());
      turns = (kSpecialTurns + std::max<int64_t>(groups, 1) - 1) / std::max<int64_t>(groups, 1);
    } else {
      const bool wanted = recipe == Recipe::kOneUnlike ? DecidesTruths(signature_)
                                                       : DecidesExtremes(signature_) != 0;
      const size_t i = LargestInput(signature_);
      if (!wanted || roles_[i].kind != InputRole::Kind::kValue) return;
      const int64_t groups = std::max<int64_t>(CountGroups(i, recipe), 1);
      turns = (device::kDrawKinds + groups - 1) / groups;
    }
    for (int64_t turn = 0; turn < std::min(turns, most); ++turn) Add(recipe, turn);
  }

  int64_t Sparsity() const { return sparse_ ? kSparseSpecials : 1; }

  DrawnTensor Layout(size_t i, Recipe recipe) const {
    const TensorSpec& spec = signature_.inputs[i];
    if (roles_[i].kind == InputRole::Kind::kMask) {
      std::vector<int64_t> rows(spec.sizes.size(), 1);
      if (!rows.empty()) rows.back() = spec.sizes.back();
      DrawnTensor tensor = LayOut(spec, rows);
      tensor.row_length = DivisorOf(std::max<int64_t>(tensor.length, 1));
      tensor.rows_of_group = 1;
      return tensor;
    }
    const auto groups = recipe == Recipe::kOneUnlike ? GroupPurpose::kTruths
                        : recipe == Recipe::kFarOut  ? GroupPurpose::kExtremes
                                                     : GroupPurpose::kAll;
    return LayOut(spec, TakenTogether(signature_, i, groups));
  }
  int64_t CountGroups(size_t i, Recipe recipe) const { return Layout(i, recipe).groups; }

  void SetSpecials(size_t i, Recipe recipe, int64_t turn, uint64_t random, DrawnTensor* tensor) {
    const auto share = std::find(specials_.begin(), specials_.end(), i);
    const bool only_nan = roles_[i].kind == InputRole::Kind::kQuery && inputs_[i].large;
    if (share == specials_.end() && !(only_nan && recipe == Recipe::kPackedSpecials)) return;
    const int64_t shares = std::max<int64_t>(std::ssize(specials_), 1);
    int64_t sparsity = recipe == Recipe::kPackedSpecials ? 2 * Sparsity() : Sparsity();
    if (tensor->groups < shares * sparsity) sparsity = 1;
    const int64_t every = shares * sparsity;
    // Inputs take turns: each has its own groups.
    const int64_t own = only_nan ? 0 : (share - specials_.begin()) * sparsity;
    const auto start = static_cast<int64_t>(random % static_cast<uint64_t>(every));
    tensor->singles = DrawSingles::kSpecials;
    tensor->only_nan = only_nan ? 1 : 0;
    tensor->every = DivisorOf(every);
    tensor->phase = (own + turn + (tensor->groups < every ? 0 : start)) % every;
    tensor->first = tensor->groups < every ? turn / every : turn * (tensor->groups / every);
    tensor->turn = static_cast<uint32_t>(random >> 32) & 0xffff;
    tensor->same_kinds = 0;
  }

  void Add(Recipe recipe, int64_t turn = 0) {
    const RecipeInfo info = InfoOf(recipe);
    const auto number = static_cast<uint64_t>(sets_.size());
    DrawSet set;
    set.name = info.name;
    if (turn > 0) set.name += ", turn " + std::to_string(turn + 1);
    set.derive = derive_;
    set.worth_errors = info.worth_errors && floating_;
    // Shared by all turns of a recipe, so that together they cover every pattern.
    SplitMix of_recipe(seed_ ^ (static_cast<uint64_t>(recipe) << 48));
    const uint64_t shared = of_recipe.Next();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      SplitMix random(seed_ ^ (number << 32) ^ (static_cast<uint64_t>(i) << 16) ^ 0x64726177);
      DrawnTensor tensor = Layout(i, recipe);
      tensor.stream = static_cast<uint32_t>(number * 64 + i);
      tensor.rotation = static_cast<uint32_t>(random.Next());
      // Aligns rows of the same kind in all inputs.
      if (recipe == Recipe::kMeeting) tensor.rotation = static_cast<uint32_t>(shared);
      tensor.gap_is_ordinary = (number + seed_) % 3 == 2 ? 1 : 0;
      SetKinds(inputs_[i], recipe, random.Next(), shared, &tensor);
      SetSpots(inputs_[i], recipe, random.Next(), &tensor);
      if (recipe == Recipe::kOneSpecial || recipe == Recipe::kPackedSpecials) {
        SetSpecials(i, recipe, turn, shared, &tensor);
      }
      const bool decides =
          i == LargestInput(signature_) && roles_[i].kind == InputRole::Kind::kValue;
      if (decides && (recipe == Recipe::kOneUnlike || recipe == Recipe::kFarOut)) {
        const int sign = recipe == Recipe::kFarOut ? DecidesExtremes(signature_) : 0;
        SetPatterns(signature_.inputs[i].dtype, sign, shared, &tensor);
        tensor.first = turn * tensor.groups;
      }
      set.tensors.push_back(tensor);
    }
    if (recipe == Recipe::kUniform) MakeTwins(&set);
    sets_.push_back(std::move(set));
  }

  // Adds the first set another time, with other numbers.
  void Again() {
    Add(Recipe::kNormal);
    sets_.back().name += " 2";
  }

  // Makes inputs equal that could be one tensor given twice.
  void MakeTwins(DrawSet* set) const {
    for (const std::vector<int>& group : signature_.aliases) {
      const auto first = static_cast<size_t>(group[0]);
      for (const int member : group) {
        const auto i = static_cast<size_t>(member);
        if (i == first || roles_[i].kind != roles_[first].kind) continue;
        if (signature_.inputs[i] != signature_.inputs[first]) continue;
        if (roles_[i].limit == roles_[first].limit) set->tensors[i] = set->tensors[first];
      }
    }
  }

  const OpSignature& signature_;
  const std::span<const InputRole> roles_;
  const uint64_t seed_;
  int64_t bytes_ = 0, largest_ = 0;
  bool floating_ = false, derive_ = false, sparse_ = false, labels_ = false, meets_ = false,
       product_ = false, positive_ = false;
  std::vector<int64_t> constants_;
  std::vector<DrawnInput> inputs_;
  std::vector<size_t> specials_;  // inputs for single special values
  std::vector<DrawSet> sets_;
};

}  // namespace

Result<std::vector<DrawSet>> PlanDraws(const OpSignature& signature,
                                       std::span<const InputRole> roles, uint64_t seed) {
  if (roles.size() != signature.inputs.size()) {
    return Status::InvalidArgument("one role for each input");
  }
  return DrawPlanner(signature, roles, seed).Plan();
}

}  // namespace cudaforge
