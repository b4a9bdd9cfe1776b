#include "verify/decoys.h"

#include <vector>

#include "verify/elements.h"

namespace cudaforge {
namespace {

// The decoy made element by element: value(row, column, what ATen has there).
std::string Rewrite(const TensorSpec& spec, const std::string& aten, const auto& value) {
  std::string bytes = aten;
  const int64_t size = DTypeSize(spec.dtype);
  for (ElementWalk walk(spec); !walk.done(); walk.Next()) {
    char* place = bytes.data() + walk.offset() * size;
    StoreElement(spec.dtype, value(walk, LoadElement(spec.dtype, place)), place);
  }
  return bytes;
}

std::optional<std::string> CopyOfInput(const TensorSpec& spec, const std::string& aten,
                                       const OpSignature& signature, const InputSet& inputs) {
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const TensorSpec& input = signature.inputs[i];
    if (input.dtype != spec.dtype || input.numel() != spec.numel()) continue;
    std::vector<double> values;
    for (ElementWalk walk(input); !walk.done(); walk.Next()) {
      values.push_back(LoadElement(
          input.dtype, inputs.bytes[i].data() + walk.offset() * DTypeSize(input.dtype)));
    }
    return Rewrite(spec, aten, [&](const ElementWalk& walk, double) {
      return values[static_cast<size_t>(walk.index())];
    });
  }
  return std::nullopt;
}

}  // namespace

std::string_view DecoyName(Decoy decoy) {
  static constexpr std::string_view kNames[] = {"zeros",
                                                "ones",
                                                "a copy of an input",
                                                "the last row zeroed",
                                                "the sign flipped",
                                                "rows of one value"};
  return kNames[static_cast<size_t>(decoy)];
}

std::optional<std::string> MakeDecoy(Decoy decoy, const TensorSpec& spec, const std::string& aten,
                                     const OpSignature& signature, const InputSet& inputs) {
  const int64_t columns = spec.sizes.empty() ? 1 : spec.sizes.back();
  const int64_t rows = columns == 0 ? 0 : spec.numel() / columns;
  switch (decoy) {
    case Decoy::kZeros:
      return Rewrite(spec, aten, [](const ElementWalk&, double) { return 0.0; });
    case Decoy::kOnes:
      return Rewrite(spec, aten, [](const ElementWalk&, double) { return 1.0; });
    case Decoy::kInputCopy:
      return CopyOfInput(spec, aten, signature, inputs);
    case Decoy::kLastRowZeroed:
      if (rows < 2) return std::nullopt;
      return Rewrite(spec, aten, [rows](const ElementWalk& walk, double value) {
        return walk.row() == rows - 1 ? 0.0 : value;
      });
    case Decoy::kSignFlipped:
      if (spec.dtype == DType::kBool) {
        return Rewrite(spec, aten, [](const ElementWalk&, double value) { return 1.0 - value; });
      }
      return Rewrite(spec, aten, [](const ElementWalk&, double value) { return -value; });
    case Decoy::kRowConstant: {
      if (columns < 2) return std::nullopt;
      double first = 0;
      return Rewrite(spec, aten, [&first](const ElementWalk& walk, double value) {
        if (walk.column() == 0) first = value;
        return first;
      });
    }
  }
  return std::nullopt;
}

}  // namespace cudaforge
