// Drawn sets for tests of their contents.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "signature/roles.h"
#include "tests/cpp/verify/spec.h"
#include "verify/drawer.h"
#include "verify/elements.h"

namespace cudaforge {

// A region of one call.
inline OpSignature Call(std::string op, Json args, std::vector<TensorSpec> inputs,
                        std::vector<TensorSpec> outputs, Json kwargs = Json::object()) {
  OpSignature signature;
  signature.inputs = std::move(inputs);
  signature.nodes = {{std::move(op), std::move(args), std::move(kwargs), std::move(outputs)}};
  for (size_t o = 0; o < signature.nodes[0].outputs.size(); ++o) {
    signature.outputs.push_back({0, static_cast<int>(o)});
  }
  return signature;
}
inline Json Arg(int input) { return {{"in", input}}; }

struct Drawn {
  DrawSet set;
  std::vector<std::string> bytes;  // each input's storage
};

inline std::vector<std::string> DrawBytes(const OpSignature& signature, const DrawSet& set,
                                          uint64_t seed) {
  std::vector<std::string> bytes;
  std::vector<void*> storage;
  for (const TensorSpec& spec : signature.inputs) {
    bytes.emplace_back(static_cast<size_t>(spec.StorageBytes()), '\x5a');
  }
  for (std::string& b : bytes) storage.push_back(b.data());
  const auto drawer = Drawer::Create(DeviceType::kCpu, nullptr);
  CF_CHECK((*drawer)->Draw(set, signature, seed, storage).ok());
  return bytes;
}

inline std::vector<Drawn> DrawAll(const OpSignature& signature, uint64_t seed = 7) {
  const Result<std::vector<InputRole>> roles = FindRoles(signature);
  CF_CHECK(roles.ok()) << roles.status().ToString();
  std::vector<Drawn> all;
  std::vector<DrawSet> sets = *PlanDraws(signature, *roles, seed);
  for (DrawSet& set : sets) {
    std::vector<std::string> bytes = DrawBytes(signature, set, seed);
    all.push_back({std::move(set), std::move(bytes)});
  }
  return all;
}

// The sets whose names start with `name`.
inline std::vector<Drawn> DrawNamed(const OpSignature& signature, std::string_view name,
                                    uint64_t seed = 7) {
  std::vector<Drawn> named = DrawAll(signature, seed);
  std::erase_if(named, [&](const Drawn& drawn) { return !drawn.set.name.starts_with(name); });
  return named;
}

// Row-major.
inline std::vector<double> DrawnValues(const TensorSpec& spec, const std::string& bytes) {
  std::vector<double> values;
  for (ElementWalk walk(spec); !walk.done(); walk.Next()) {
    values.push_back(LoadElement(spec.dtype, bytes.data() + walk.offset() * DTypeSize(spec.dtype)));
  }
  return values;
}

}  // namespace cudaforge
