// The state of SliceJudgement. Private to its files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/aten_slice_judgement.h"

namespace cudaforge {

struct SliceJudgement::Output {
  DType dtype = DType::kFloat32;
  std::optional<SlicePlan> plan;    // empty if all elements are compared exactly
  std::optional<SlicePlan> narrow;  // for a few elements
  Match match = Match::kBitwise;
  int64_t terms = 1;         // input elements for one output element
  bool exact_so_far = true;  // ATen was exact in all sets so far
};

class SliceJudgement::Set {
 public:
  struct One {
    MeasuredElements elements;
    std::optional<OutputReference> reference;
    std::vector<bool> aten_wrong;
    Json aten_wrong_elements = Json::array();        // in which a candidate was correct
    std::vector<std::optional<std::string>> decoys;  // in the order of kDecoys
    std::vector<OutputDraw> typical;                 // of AddTypical
    // The last suspects of a candidate: its later runs give the same.
    std::vector<int64_t> suspects;
    MeasuredElements of_suspects;
    bool more_perturbations = false;
    double ratio = 0;  // see Yardstick::set_typical_ratio
  };
  std::string name;
  uint64_t seed = 0;
  std::vector<One> outputs;

  std::string Where(size_t output) const {
    return "inputs \"" + name + "\", output " + std::to_string(output);
  }
};

}  // namespace cudaforge
