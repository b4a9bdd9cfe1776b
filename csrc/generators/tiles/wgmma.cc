#include "generators/tiles/wgmma.h"

#include "base/text.h"

namespace cudaforge::tiles {

std::string MmaText(const MmaShape& shape) {
  const int sums = shape.n / 2;
  const char* type = shape.dtype == DType::kBFloat16 ? "bf16" : "f16";
  const int of_a = shape.a_in_registers ? 4 : 1;  // operands
  const int b = sums + of_a;
  const std::string a = shape.a_in_registers ? "const unsigned (&a)[4]" : "unsigned long long a";
  std::string text = Cat("template <int kAdd>\n__device__ __forceinline__ void Mma(float (&d)[",
                         sums, "], ", a, ", unsigned long long b) {\n  asm volatile(\n");
  text += Cat("      \"{\\n.reg .pred p;\\nsetp.ne.b32 p, %", b + 1, ", 0;\\n\"\n");
  text += Cat("      \"wgmma.mma_async.sync.aligned.m64n", shape.n, "k16.f32.", type, ".", type,
              " {\"\n");
  std::string outputs;
  for (int i = 0; i < sums; ++i) {
    const bool first = i % 16 == 0, last = i % 16 == 15 || i + 1 == sums;
    const std::string comma = i + 1 == sums ? "" : ", ";
    text += Cat(first ? "      \"" : "", "%", i, comma, last ? "\"\n" : "");
    outputs += Cat(first ? "        " : "", "\"+f\"(d[", i, "])", comma, last ? "\n" : "");
  }
  if (shape.a_in_registers) {
    text += Cat("      \"}, {%", sums, ", %", sums + 1, ", %", sums + 2, ", %", sums + 3, "}, %", b,
                ", p, 1, 1, ", shape.b_rows_hold_k ? 0 : 1, ";\\n}\"\n      : ", outputs,
                "      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), ");
  } else {
    text += Cat("      \"}, %", sums, ", %", b, ", p, 1, 1, ", shape.a_rows_hold_k ? 0 : 1, ", ",
                shape.b_rows_hold_k ? 0 : 1, ";\\n}\"\n      : ", outputs,
                "      : \"l\"(a), \"l\"(b), ");
  }
  return text + "\"n\"(kAdd));\n}\n";
}

}  // namespace cudaforge::tiles
