// Time and memory of verifying a region, by phase, without a worker. open: making the input sets
// and ATen's answers. same, other: drawing and comparing all sets, for a candidate with ATen's own
// answers, and for one with float64's, rounded to the region's dtype. Memory in addition to inputs,
// outputs and one answer of ATen: the peak of the process (CPU) or of ATen's allocator (cuda).
//   ninja verify_regions && ./verify_regions cpu|cuda [MIB ...] [OPERATOR ...]
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "c10/core/CachingDeviceAllocator.h"
#include "signature/aten_pch.h"
#include "signature/from_aten_region.h"
#include "target/cuda/search_paths.h"
#include "tests/cpp/verify/spec.h"
#include "verify/aten_region_reference.h"
#include "verify/device_memory.h"
#include "verify/own_kernels.h"

namespace cudaforge {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

OpSignature One(DeviceType device, std::vector<TensorSpec> inputs, const std::string& op, Json args,
                std::vector<TensorSpec> results) {
  OpSignature signature;
  signature.device = device;
  signature.inputs = std::move(inputs);
  signature.nodes.push_back({"aten::" + op, std::move(args), Json::object(), std::move(results)});
  signature.outputs = {{0, 0}};
  return NormalizeAten(signature).value();
}

struct Op {
  std::string name;
  std::function<OpSignature(DeviceType, int64_t bytes)> make;  // inputs of about so many bytes
};

std::vector<Op> Ops() {
  const auto f32 = [](std::vector<int64_t> sizes) -> TensorSpec {
    return Spec(DType::kFloat32, std::move(sizes), {});
  };
  const Json x = {{"in", 0}};
  const auto rows = [](int64_t bytes) { return bytes / 4 / 4096; };
  const auto side = [](int64_t bytes) {
    int64_t n = 64;
    while (n * n * 8 < bytes) n *= 2;
    return n;
  };
  return {
      {"relu",
       [=](DeviceType d, int64_t b) {
         return One(d, {f32({b / 4})}, "relu", Json::array({x}), {f32({b / 4})});
       }},
      {"gelu",
       [=](DeviceType d, int64_t b) {
         return One(d, {f32({b / 4})}, "gelu", Json::array({x}), {f32({b / 4})});
       }},
      {"softmax",
       [=](DeviceType d, int64_t b) {
         return One(d, {f32({rows(b), 4096})}, "_softmax", Json::array({x, 1, false}),
                    {f32({rows(b), 4096})});
       }},
      {"sum_rows",
       [=](DeviceType d, int64_t b) {
         return One(d, {f32({rows(b), 4096})}, "sum.dim_IntList",
                    Json::array({x, Json::array({1}), false}), {f32({rows(b)})});
       }},
      {"sum_columns",
       [=](DeviceType d, int64_t b) {
         return One(d, {f32({rows(b), 4096})}, "sum.dim_IntList",
                    Json::array({x, Json::array({0}), false}), {f32({4096})});
       }},
      {"sum_all",
       [=](DeviceType d, int64_t b) {
         return One(d, {f32({rows(b), 4096})}, "sum", Json::array({x}), {f32({})});
       }},
      {"cross_entropy",
       [=](DeviceType d, int64_t b) {
         const TensorSpec scores = f32({rows(b), 4096});
         OpSignature region = One(d, {scores, Spec(DType::kInt64, {rows(b)}, {})}, "_log_softmax",
                                  Json::array({x, 1, false}), {scores});
         region.nodes.push_back(
             {"aten::nll_loss_forward",
              Json::array({{{"node", 0}, {"out", 0}}, {{"in", 1}}, nullptr, 1, -100}),
              Json::object(),
              {f32({}), f32({})}});
         region.outputs = {{1, 0}};
         return region;
       }},
      {"argmax",
       [=](DeviceType d, int64_t b) {
         return One(d, {f32({rows(b), 4096})}, "argmax", Json::array({x, 1, false}),
                    {Spec(DType::kInt64, {rows(b)}, {})});
       }},
      {"cumsum",
       [=](DeviceType d, int64_t b) {
         return One(d, {f32({rows(b), 4096})}, "cumsum", Json::array({x, 1}),
                    {f32({rows(b), 4096})});
       }},
      {"avg_pool",
       [=](DeviceType d, int64_t b) {
         const int64_t n = std::max<int64_t>(b / 4 / (64 * 64 * 16), 1);
         return One(d, {f32({n, 16, 64, 64})}, "avg_pool2d",
                    Json::array({x, Json::array({2, 2}), Json::array({2, 2})}),
                    {f32({n, 16, 32, 32})});
       }},
      {"mm",
       [=](DeviceType d, int64_t b) {
         const int64_t n = side(b);
         return One(d, {f32({n, n}), f32({n, n})}, "mm", Json::array({x, {{"in", 1}}}),
                    {f32({n, n})});
       }},
      {"layer_norm",
       [=](DeviceType d, int64_t b) {
         const TensorSpec whole = f32({rows(b), 4096}), row = f32({rows(b), 1});
         return One(d, {whole, f32({4096}), f32({4096})}, "native_layer_norm",
                    Json::array({x, Json::array({4096}), {{"in", 1}}, {{"in", 2}}, 1e-5}),
                    {whole, row, row});
       }},
  };
}

int64_t PeakBytes() {
  for (const std::string_view line : Split(*ReadFile("/proc/self/status"), '\n')) {
    if (line.starts_with("VmHWM:")) return std::atoll(line.data() + 6) * 1024;
  }
  return 0;
}

struct Memory {
  DeviceType device;
  // Forgets the peak so far; what is held now.
  int64_t Begin() const {
    if (device == DeviceType::kCuda) {
      at::getDeviceAllocator(at::kCUDA)->resetPeakStats(0);
      return Cuda().current;
    }
    if (FILE* f = std::fopen("/proc/self/clear_refs", "w"); f != nullptr) {
      std::fputs("5", f);
      std::fclose(f);
    }
    return PeakBytes();
  }
  int64_t Peak() const { return device == DeviceType::kCuda ? Cuda().peak : PeakBytes(); }

 private:
  static c10::CachingAllocator::Stat Cuda() {
    return at::getDeviceAllocator(at::kCUDA)->getDeviceStats(0).allocated_bytes[0];
  }
};

void Measure(const Op& op, DeviceType device, int64_t bytes, DeviceMemory& memory) {
  const OpSignature region = op.make(device, bytes);
  const auto options = [&](DType dtype) {
    return at::TensorOptions()
        .dtype(ToScalarType(dtype))
        .device(device == DeviceType::kCuda ? at::kCUDA : at::kCPU);
  };
  std::vector<at::Tensor> inputs, outputs;
  std::vector<void*> in, out;
  for (const TensorSpec& spec : region.inputs) {
    inputs.push_back(at::zeros(spec.sizes, options(spec.dtype)));
    in.push_back(inputs.back().data_ptr());
  }
  int64_t output_bytes = 0;
  for (size_t o = 0; o < region.outputs.size(); ++o) {
    const TensorSpec& spec = region.output_spec(o);
    outputs.push_back(at::zeros(spec.sizes, options(spec.dtype)));
    out.push_back(outputs.back().data_ptr());
    output_bytes += spec.StorageBytes();
  }
  const Memory peak{device};
  const int64_t held = peak.Begin();
  double begin = SteadySeconds();
  auto reference = MakeAtenRegionReference(region, 0, memory, int64_t{4} << 30, 5);
  Status status = reference.status();
  if (status.ok()) status = (*reference)->Prepare(in, 1e9);
  if (!status.ok()) {
    std::printf("%-12s %6lld MiB: %s\n", op.name.c_str(), static_cast<long long>(bytes / kMiB),
                status.ToString().c_str());
    return;
  }
  const double open_s = SteadySeconds() - begin;
  const auto program = RegionProgram::Create(region).value();
  double draw_s = 0, check_s[2] = {};
  int refused[2] = {};
  for (size_t set = 0; set < (*reference)->set_count(); ++set) {
    begin = SteadySeconds();
    CF_CHECK((*reference)->Draw(set, in).ok());
    CF_CHECK(memory.Synchronize().ok());
    draw_s += SteadySeconds() - begin;
    for (int other = 0; other < 2; ++other) {
      {
        const at::NoGradGuard no_grad;
        const auto answers = other == 1 ? program->RunFp64(inputs) : program->RunStrided(inputs);
        for (size_t o = 0; o < outputs.size(); ++o) outputs[o].copy_(answers[o]);
      }
      CF_CHECK(memory.Synchronize().ok());
      begin = SteadySeconds();
      const auto verdict = (*reference)->Check(set, in, out);
      check_s[other] += SteadySeconds() - begin;
      if (!verdict.ok() || !verdict->accepted()) {
        ++refused[other];
        std::printf("  %s: %s\n", (*reference)->set_name(set).c_str(),
                    verdict.ok() ? verdict->message.c_str() : verdict.status().ToString().c_str());
      }
    }
  }
  std::printf(
      "%-12s %6lld MiB  sets %3zu  open %7.3f s  draw %7.3f s  same %7.3f s  other %7.3f s"
      "  refused %d %d  memory %lld MiB\n",
      op.name.c_str(), static_cast<long long>(bytes / kMiB), (*reference)->set_count(), open_s,
      draw_s, check_s[0], check_s[1], refused[0], refused[1],
      static_cast<long long>((peak.Peak() - held - output_bytes) / kMiB));
  std::fflush(stdout);
}

}  // namespace
}  // namespace cudaforge

int main(int argc, char** argv) {
  using namespace cudaforge;
  const bool cuda = argc > 1 && std::string(argv[1]) == "cuda";
  std::vector<int64_t> sizes;
  std::vector<std::string> wanted;
  for (int i = 2; i < argc; ++i) {
    const int64_t size = std::atoll(argv[i]);
    if (size > 0)
      sizes.push_back(size);
    else
      wanted.emplace_back(argv[i]);
  }
  if (sizes.empty()) sizes = {1, 64};
  std::unique_ptr<DeviceMemory> memory = MakeCpuMemory();
  if (cuda) memory = MakeCudaMemory(OwnKernels::Create(0, CudaRoots({})).value());
  const DeviceType device = cuda ? DeviceType::kCuda : DeviceType::kCpu;
  for (const int64_t size : sizes) {
    for (const Op& op : Ops()) {
      if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), op.name) == wanted.end()) {
        continue;
      }
      Measure(op, device, size * kMiB, *memory);
    }
  }
}
