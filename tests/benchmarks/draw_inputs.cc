// Times on the CPU the drawing of each set of a softmax, a sum of columns, an argmax and an
// embedding of 64 MiB:
//   ninja draw_inputs && ./draw_inputs
#include <chrono>
#include <cstdio>
#include <ctime>

#include "tests/cpp/verify/drawn.h"

namespace cudaforge {
namespace {

void TimeSets(const char* name, const OpSignature& signature) {
  std::vector<std::string> bytes;
  std::vector<void*> storage;
  for (const TensorSpec& spec : signature.inputs) {
    bytes.emplace_back(static_cast<size_t>(spec.StorageBytes()), '\0');
  }
  for (std::string& b : bytes) storage.push_back(b.data());
  const auto drawer = Drawer::Create(DeviceType::kCpu, nullptr).value();
  const std::vector<DrawSet> sets = *PlanDraws(signature, *FindRoles(signature), 1);
  for (const DrawSet& set : sets) {
    const std::clock_t used = std::clock();
    const auto begin = std::chrono::steady_clock::now();
    CF_CHECK(drawer->Draw(set, signature, 1, storage).ok());
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    const double cpu_ms = static_cast<double>(std::clock() - used) * 1e3 / CLOCKS_PER_SEC;
    std::printf("%-20s %-18s %7.1f ms, %7.1f ms of all CPUs\n", name, set.name.c_str(),
                took.count(), cpu_ms);
  }
}

}  // namespace
}  // namespace cudaforge

int main() {
  using namespace cudaforge;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const TensorSpec rows = Spec(dtype, {4096, (int64_t{64} << 20) / 4096 / DTypeSize(dtype)});
    TimeSets("softmax", Call("aten::_softmax", {Arg(0), 1, false}, {rows}, {rows}));
  }
  const TensorSpec square = Spec(DType::kFloat32, {4096, 4095});
  TimeSets("sum of columns", Call("aten::sum.dim_IntList", {Arg(0), Json::array({0}), false},
                                  {square}, {Spec(DType::kFloat32, {4095})}));
  TimeSets("argmax of columns",
           Call("aten::argmax", {Arg(0), 0, false}, {square}, {Spec(DType::kInt64, {4095})}));
  const TensorSpec table = Spec(DType::kFloat32, {1024, 16});
  TimeSets("embedding",
           Call("aten::embedding", {Arg(0), Arg(1), -1, false, false},
                {table, Spec(DType::kInt64, {8 << 20})}, {Spec(DType::kFloat32, {8 << 20, 16})}));
}
