#include "generators/tiles/wgmma.h"

#include "base/text.h"

namespace cudaforge::tiles {

std::string MmaText(const MmaShape& shape) {
  const int sums = shape.n / 2;
  const char* type = shape.dtype == DType::kBFloat16 ? "bf16" : "f16";
  std::string text =
      Cat("template <int kAdd>\n__device__ __forceinline__ void Mma(float (&d)[", sums,
          "], unsigned long long a, unsigned long long b) {\n  asm volatile(\n");
  text += Cat("      \"{\\n.reg .pred p;\\nsetp.ne.b32 p, %", sums + 2, ", 0;\\n\"\n");
  text += Cat("      \"wgmma.mma_async.sync.aligned.m64n", shape.n, "k16.f32.", type, ".", type,
              " {\"\n");
  std::string outputs;
  for (int i = 0; i < sums; ++i) {
    const bool first = i % 16 == 0, last = i % 16 == 15 || i + 1 == sums;
    const std::string comma = i + 1 == sums ? "" : ", ";
    text += Cat(first ? "      \"" : "", "%", i, comma, last ? "\"\n" : "");
    outputs += Cat(first ? "        " : "", "\"+f\"(d[", i, "])", comma, last ? "\n" : "");
  }
  text += Cat("      \"}, %", sums, ", %", sums + 1, ", p, 1, 1, ", shape.a_rows_hold_k ? 0 : 1,
              ", ", shape.b_rows_hold_k ? 0 : 1, ";\\n}\"\n      : ");
  return text + outputs + "      : \"l\"(a), \"l\"(b), \"n\"(kAdd));\n}\n";
}

}  // namespace cudaforge::tiles
