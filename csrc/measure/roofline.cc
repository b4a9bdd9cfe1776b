#include "measure/roofline.h"

namespace cudaforge {

Json DerivedFacts(const Json& profile, const Json& facts, const OpSignature& signature, double ns) {
  int64_t bytes = 0;
  for (const TensorSpec& input : signature.inputs) bytes += input.StorageBytes();
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    bytes += signature.output_spec(i).StorageBytes();
  }
  Json derived = {{"needed_bytes", bytes}};
  const auto bandwidth = JsonDouble(facts, "bandwidth_gb_s");
  if (bandwidth.ok() && *bandwidth > 0) {
    const double floor_ns = static_cast<double>(bytes) / *bandwidth;
    derived["floor_us"] = floor_ns / 1e3;
    if (ns > 0) derived["of_floor"] = floor_ns / ns;
    derived["limiter"] = "memory";
  }
  return derived;
}

}  // namespace cudaforge
