#include "measure/roofline.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "signature/op_facts.h"

namespace cudaforge {
namespace {

constexpr double kBusy = 0.6;
constexpr double kCacheLine = 64;
// The rate of float32 products on a GPU, and the number of float16 products on tensor cores that
// replace one with the same accuracy (Ootomo and Yokota, arXiv 2203.03341).
constexpr const char* kSplitProducts = "fp32_product_tflops";
constexpr double kSplitPasses = 3;

double Numel(const TensorSpec& spec) { return static_cast<double>(spec.numel()); }

// Counts an expanded dimension once.
int64_t DistinctBytes(const TensorSpec& spec) {
  if (spec.absent || spec.numel() == 0) return 0;
  int64_t elements = 1;
  for (size_t d = 0; d < spec.sizes.size(); ++d) {
    if (spec.strides[d] != 0) elements *= spec.sizes[d];
  }
  return elements * DTypeSize(spec.dtype);
}

const TensorSpec* SpecAt(const OpSignature& signature, const Node& node, size_t index) {
  return index < node.args.size() ? signature.SpecOf(node.args[index]) : nullptr;
}

bool FlagArgument(const Node& node, size_t index) {
  return index < node.args.size() && node.args[index].is_boolean() && node.args[index].get<bool>();
}

// Visits every tensor among the arguments, including those in lists.
template <typename Visit>
void VisitTensors(const Json& argument, const Visit& visit) {
  if (argument.is_array()) {
    for (const Json& element : argument) VisitTensors(element, visit);
  } else if (IsTensorReference(argument)) {
    visit(argument);
  }
}

// Two for each element of the result and of a row of the left operand.
std::optional<double> ProductFlops(const OpSignature& signature, const Node& node, int left_at) {
  const TensorSpec* left = SpecAt(signature, node, static_cast<size_t>(left_at));
  if (left == nullptr || left->sizes.empty() || node.outputs.empty()) return std::nullopt;
  return 2.0 * Numel(node.outputs[0]) * static_cast<double>(left->sizes.back());
}

std::optional<double> ConvolutionFlops(const OpSignature& signature, const Node& node) {
  if (node.outputs.empty()) return std::nullopt;
  const TensorSpec* input = SpecAt(signature, node, 0);
  const TensorSpec* weight = SpecAt(signature, node, 1);
  if (input == nullptr || weight == nullptr || weight->sizes.empty() || weight->sizes[0] == 0) {
    return std::nullopt;
  }
  // Each element of the result (of the input, if transposed) is combined with one filter.
  const bool transposed = FlagArgument(node, 6);
  return 2.0 * Numel(transposed ? *input : node.outputs[0]) * Numel(*weight) /
         static_cast<double>(weight->sizes[0]);
}

std::optional<double> AttentionFlops(const OpSignature& signature, const Node& node,
                                     int causal_at) {
  const TensorSpec* query = SpecAt(signature, node, 0);
  const TensorSpec* key = SpecAt(signature, node, 1);
  const TensorSpec* value = SpecAt(signature, node, 2);
  if (query == nullptr || key == nullptr || value == nullptr || query->sizes.size() < 2 ||
      key->sizes.size() < 2 || value->sizes.empty()) {
    return std::nullopt;
  }
  const bool causal = FlagArgument(node, static_cast<size_t>(causal_at));
  const double rows = static_cast<double>(query->sizes[query->sizes.size() - 2]);
  const double columns = static_cast<double>(key->sizes[key->sizes.size() - 2]);
  const double width = static_cast<double>(query->sizes.back());
  if (rows == 0 || width == 0) return 0;
  const double heads = Numel(*query) / (rows * width);
  const double full = std::min(rows, columns);  // rows until the triangle is full
  const double pairs = causal ? full * (full + 1) / 2 + (rows - full) * columns : rows * columns;
  return 2 * heads * pairs * (width + static_cast<double>(value->sizes.back()));
}

// For contractions only; nullopt for others, or if an operand is missing.
std::optional<double> ContractionFlops(const OpSignature& signature, const Node& node,
                                       const OpFacts& facts) {
  switch (facts.work) {
    case OpWork::kProduct:
      return ProductFlops(signature, node, facts.left);
    case OpWork::kConvolution:
      return ConvolutionFlops(signature, node);
    case OpWork::kAttention:
      return AttentionFlops(signature, node, facts.causal);
    default:
      return std::nullopt;
  }
}

// The rate that bounds products of this dtype. If float32 may be rounded to TF32, whose rate is not
// measured, uses the higher rate of bfloat16 as a safe bound.
const char* ProductRate(const OpSignature& signature, DType dtype, bool convolution) {
  if (dtype == DType::kBFloat16) return "bf16_tensor_tflops";
  if (dtype == DType::kFloat16) return "fp16_tensor_tflops";
  if (dtype == DType::kFloat64) return "fp64_tflops";
  const Json& numerics = signature.numerics;
  const bool rounded =
      convolution ? numerics.value("cudnn_tf32", Json(false)) == true
                  : numerics.value("float32_matmul_precision", Json("highest")) != "highest";
  if (signature.device != DeviceType::kCuda) return "fp32_tflops";
  return rounded ? "bf16_tensor_tflops" : kSplitProducts;
}

void AddNode(const OpSignature& signature, const Node& node, RegionWork& work) {
  const TensorSpec* first = nullptr;
  double largest = 0;
  VisitTensors(node.args, [&](const Json& argument) {
    const TensorSpec* spec = signature.SpecOf(argument);
    if (first == nullptr) first = spec;
    largest = std::max(largest, Numel(*spec));
  });
  for (const TensorSpec& spec : node.outputs) {
    if (!spec.absent) largest = std::max(largest, Numel(spec));
  }
  const DType dtype = first != nullptr        ? first->dtype
                      : !node.outputs.empty() ? node.outputs[0].dtype
                                              : DType::kFloat32;
  const OpFacts& facts = FactsOf(node.op);
  const std::optional<double> contraction = ContractionFlops(signature, node, facts);
  if (contraction.has_value()) {
    work.flops[ProductRate(signature, dtype, facts.work == OpWork::kConvolution)] += *contraction;
  } else if (facts.work != OpWork::kNone) {
    const bool doubles = dtype == DType::kFloat64;
    work.flops[doubles ? "fp64_tflops" : "fp32_tflops"] += largest;
  }
}

// Bytes that must be read of each input: all distinct ones, or for lookups as many as are returned.
std::vector<int64_t> ReadBytes(const OpSignature& signature) {
  std::vector<int64_t> taken(signature.inputs.size(), 0);
  std::vector<bool> whole(signature.inputs.size(), false);
  for (const Node& node : signature.nodes) {
    const bool takes = FactsOf(node.op).picks && !node.outputs.empty();
    const auto use = [&](const Json& argument, bool first) {
      if (!argument.contains("in")) return;
      const auto input = argument["in"].get<size_t>();
      if (first && takes) {
        taken[input] += DistinctBytes(node.outputs[0]);
      } else {
        whole[input] = true;
      }
    };
    for (size_t i = 0; i < node.args.size(); ++i) {
      VisitTensors(node.args[i], [&](const Json& argument) { use(argument, i == 0); });
    }
    for (const Json& argument : node.kwargs) {
      VisitTensors(argument, [&](const Json& found) { use(found, false); });
    }
  }
  std::vector<int64_t> bytes;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const int64_t all = DistinctBytes(signature.inputs[i]);
    bytes.push_back(whole[i] ? all : std::min(all, taken[i]));
  }
  return bytes;
}

// A finite number of `object`, or nullopt.
std::optional<double> Number(const Json& object, const char* name) {
  const Result<double> value = JsonDouble(object, name);
  if (!value.ok() || !std::isfinite(*value)) return std::nullopt;
  return *value;
}

std::optional<double> MovedBytes(const Json& metrics) {
  if (const auto both = Number(metrics, "dram__bytes.sum")) return both;
  const auto read = Number(metrics, "dram__bytes_read.sum");
  const auto written = Number(metrics, "dram__bytes_write.sum");
  if (read && written) return *read + *written;
  if (const auto misses = Number(metrics, "cache_misses")) return *misses * kCacheLine;
  return std::nullopt;
}

// A rate of RegionWork; nullopt if unknown, because a lower one would give a wrong floor.
std::optional<double> RateOf(const Json& facts, const std::string& name) {
  if (name != kSplitProducts) return Number(facts, name.c_str());
  const std::optional<double> plain = Number(facts, "fp32_tflops");
  const std::optional<double> halves = Number(facts, "fp16_tensor_tflops");
  if (!plain || !halves) return std::nullopt;
  return std::max(*plain, *halves / kSplitPasses);
}

// The size of the last level cache, which all cores share.
double CacheBytes(const Json& facts) {
  const auto l3 = Number(facts, "l3_bytes");
  return l3.value_or(Number(facts, "l2_bytes").value_or(0));
}

// Microseconds of the operations at peak rate; nullopt if no rate is known.
std::optional<double> PeakUs(const RegionWork& work, const Json& facts) {
  std::optional<double> longest;
  for (const auto& [name, flops] : work.flops) {
    const std::optional<double> rate = RateOf(facts, name);
    if (!rate || *rate <= 0) continue;
    longest = std::max(longest.value_or(0), flops / (*rate * 1e6));
  }
  return longest;
}

}  // namespace

RegionWork WorkOf(const OpSignature& signature) {
  RegionWork work;
  const std::vector<int64_t> read = ReadBytes(signature);
  std::set<size_t> shared;
  for (const std::vector<int>& group : signature.aliases) {
    // Slices of one packed tensor, or a tensor given twice: at most the span of the widest one.
    int64_t sum = 0;
    int64_t span = 0;
    for (const int input : group) {
      const auto i = static_cast<size_t>(input);
      shared.insert(i);
      sum += read[i];
      span = std::max(span, signature.inputs[i].StorageBytes());
    }
    work.needed_bytes += std::min(sum, span);
  }
  for (size_t i = 0; i < read.size(); ++i) {
    if (!shared.contains(i)) work.needed_bytes += read[i];
  }
  std::set<std::pair<int, int>> written;
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    if (!written.emplace(signature.outputs[o].node, signature.outputs[o].out).second) continue;
    work.needed_bytes += DistinctBytes(signature.output_spec(o));
  }
  for (const Node& node : signature.nodes) AddNode(signature, node, work);
  return work;
}

double FloorUs(const OpSignature& signature, const Json& facts) {
  const RegionWork work = WorkOf(signature);
  const auto bytes = static_cast<double>(work.needed_bytes);
  double us = PeakUs(work, facts).value_or(0);
  if (const auto bandwidth = Number(facts, "bandwidth_gb_s"); bandwidth && *bandwidth > 0) {
    const double cached = std::min(bytes, CacheBytes(facts));
    const double rate = Number(facts, "cached_gb_s").value_or(0);
    us = std::max(us,
                  (bytes - cached) / (*bandwidth * 1e3) + (rate > 0 ? cached / (rate * 1e3) : 0));
  }
  return us + Number(facts, "launch_us").value_or(0);
}

Json AtMeasuredTime(Json profile, double ns) {
  constexpr const char* kDuration = "gpu__time_duration.sum";
  if (!profile.is_object() || !profile.contains("metrics")) return profile;
  Json& metrics = profile["metrics"];
  const auto profiled_ns = JsonDouble(metrics, kDuration);
  if (!profiled_ns.ok() || *profiled_ns <= 0 || ns <= 0) return profile;
  for (auto& [name, value] : metrics.items()) {
    if (!name.ends_with("_elapsed") || !value.is_number()) continue;
    value = FloatToJson(std::min(100.0, value.get<double>() * *profiled_ns / ns));
  }
  metrics.erase(kDuration);
  return profile;
}

Json DerivedFacts(const Json& profile, const Json& facts, const OpSignature& signature, double ns) {
  const RegionWork work = WorkOf(signature);
  const auto needed = static_cast<double>(work.needed_bytes);
  Json derived = {{"needed_bytes", work.needed_bytes}};
  double flops = 0;
  for (const auto& [rate, count] : work.flops) flops += count;
  if (flops > 0) derived["needed_flops"] = flops;
  const Json& metrics = MemberOrNull(profile, "metrics");
  const std::optional<double> moved = MovedBytes(metrics);
  if (moved) {
    derived["moved_bytes"] = *moved;
    if (needed > 0) derived["moved_over_needed"] = *moved / needed;
  }
  const std::optional<double> bandwidth = Number(facts, "bandwidth_gb_s");
  const bool has_bandwidth = bandwidth && *bandwidth > 0;
  const std::optional<double> peak_us = PeakUs(work, facts);
  std::optional<double> floor_us = peak_us;
  if (has_bandwidth) floor_us = std::max(floor_us.value_or(0), needed / (*bandwidth * 1e3));
  if (floor_us) derived["floor_us"] = *floor_us;
  if (!std::isfinite(ns) || ns <= 0) return derived;

  const double us = ns / 1e3;
  const double achieved = std::max(needed, moved.value_or(0)) / ns;
  derived["achieved_gb_s"] = achieved;
  double memory = 0;
  double compute = 0;
  if (has_bandwidth) {
    memory = achieved / *bandwidth;
    derived["of_bandwidth"] = memory;
  }
  if (peak_us) {
    compute = *peak_us / us;
    derived["of_peak_flops"] = compute;
  }
  if (floor_us) derived["of_floor"] = *floor_us / us;
  const auto issued = Number(metrics, "smsp__issue_active.avg.pct_of_peak_sustained_active");
  compute = std::max(compute, issued.value_or(0) / 100);
  if (has_bandwidth || peak_us) {
    derived["limiter"] = std::max(memory, compute) < kBusy ? "latency"
                         : memory >= compute               ? "memory"
                                                           : "compute";
  }
  return derived;
}

}  // namespace cudaforge
