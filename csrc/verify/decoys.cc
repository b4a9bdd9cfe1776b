#include "verify/decoys.h"

#include <vector>

#include "base/parallel.h"
#include "verify/elements.h"

namespace cudaforge {
namespace {

// The decoy made element by element, in several threads: value(place, what ATen has there).
std::string Rewrite(const TensorSpec& spec, const std::string& aten, const auto& value) {
  std::string bytes = aten;
  const int64_t size = DTypeSize(spec.dtype);
  ParallelChunks(spec.numel(), kChunk, [&](int64_t, int64_t begin, int64_t end) {
    for (ElementWalk walk(spec, /*skip_repeats=*/false, begin, end); !walk.done(); walk.Next()) {
      char* place = bytes.data() + walk.offset() * size;
      StoreElement(spec.dtype, value(walk, LoadElement(spec.dtype, place)), place);
    }
  });
  return bytes;
}

std::optional<std::string> CopyOfInput(const TensorSpec& spec, const std::string& aten,
                                       const OpSignature& signature, const InputSet& inputs) {
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const TensorSpec& input = signature.inputs[i];
    if (input.dtype != spec.dtype || input.numel() != spec.numel()) continue;
    std::vector<double> values(static_cast<size_t>(input.numel()));
    ParallelChunks(input.numel(), kChunk, [&](int64_t, int64_t begin, int64_t end) {
      for (ElementWalk walk(input, /*skip_repeats=*/false, begin, end); !walk.done(); walk.Next()) {
        const int64_t at = walk.offset() * DTypeSize(input.dtype);
        values[static_cast<size_t>(walk.index())] =
            LoadElement(input.dtype, inputs.bytes[i].data() + at);
      }
    });
    return Rewrite(spec, aten, [&](const ElementWalk& walk, double) {
      return values[static_cast<size_t>(walk.index())];
    });
  }
  return std::nullopt;
}

// -1 when every element is zero.
int64_t LastRowWithValues(const TensorSpec& spec, const std::string& aten, int64_t columns,
                          int64_t rows) {
  const int64_t size = DTypeSize(spec.dtype);
  for (int64_t row = rows - 1; row >= 0; --row) {
    ElementWalk walk(spec, /*skip_repeats=*/false, row * columns, (row + 1) * columns);
    for (; !walk.done(); walk.Next()) {
      if (LoadElement(spec.dtype, aten.data() + walk.offset() * size) != 0) return row;
    }
  }
  return -1;
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
    case Decoy::kLastRowZeroed: {
      if (rows < 2) return std::nullopt;
      const int64_t last = LastRowWithValues(spec, aten, columns, rows);
      return Rewrite(spec, aten, [last](const ElementWalk& walk, double value) {
        return walk.row() == last ? 0.0 : value;
      });
    }
    case Decoy::kSignFlipped:
      if (spec.dtype == DType::kBool) {
        return Rewrite(spec, aten, [](const ElementWalk&, double value) { return 1.0 - value; });
      }
      return Rewrite(spec, aten, [](const ElementWalk&, double value) { return -value; });
    case Decoy::kRowConstant: {
      if (columns < 2) return std::nullopt;
      return Rewrite(spec, aten, [&](const ElementWalk& walk, double) {
        const int64_t first = walk.offset() - walk.column() * spec.strides.back();
        return LoadElement(spec.dtype, aten.data() + first * DTypeSize(spec.dtype));
      });
    }
  }
  return std::nullopt;
}

}  // namespace cudaforge
