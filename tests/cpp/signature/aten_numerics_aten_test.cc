#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "signature/aten_numerics.h"

namespace cudaforge {
namespace {

// Every combination of settings has its own word, equal for equal JSON.
TEST(Numerics, EverySettingHasItsWord) {
  using Backend = at::Float32Backend;
  using Op = at::Float32Op;
  using Precision = at::Float32Precision;
  at::Context& context = at::globalContext();
  const auto of_backend = [&context](Backend backend, Op op, Precision precision) {
    return [&context, backend, op, precision] {
      const Precision before = context.float32Precision(backend, op);
      context.setFloat32Precision(backend, op, precision);
      return std::function<void()>(
          [&context, backend, op, before] { context.setFloat32Precision(backend, op, before); });
    };
  };
  std::vector<std::function<std::function<void()>()>> settings = {
      [] { return std::function<void()>([] {}); },
      [&] {
        const bool before = context.allowTF32CuDNN(Op::CONV);
        context.setAllowTF32CuDNN(!before);
        return std::function<void()>([&context, before] { context.setAllowTF32CuDNN(before); });
      },
      [&] {
        context.setAllowFP16AccumulationCuBLAS(true);
        return std::function<void()>([&] { context.setAllowFP16AccumulationCuBLAS(false); });
      },
      of_backend(Backend::CUDA, Op::MATMUL, Precision::TF32),
      of_backend(Backend::MKLDNN, Op::MATMUL, Precision::BF16),
      of_backend(Backend::MKLDNN, Op::CONV, Precision::BF16),
  };
  const uint64_t other = NumericsWord(false);
  std::map<uint64_t, Json> seen;
  for (const auto& set : settings) {
    const std::function<void()> restore = set();
    const uint64_t word = NumericsWord(true);
    const Json json = NumericsInForce({"aten::mm"});
    EXPECT_EQ(MatrixNumericsWord(json), word) << json;
    EXPECT_TRUE(seen.emplace(word, json).second) << json;
    EXPECT_EQ(NumericsWord(false), other);
    restore();
  }
  std::set<std::string> texts;
  for (const auto& [word, json] : seen) texts.insert(json.dump());
  EXPECT_EQ(texts.size(), settings.size());
  EXPECT_EQ(NumericsInForce({"aten::sum"}).size(), 1u);
  EXPECT_EQ(MatrixNumericsWord(NumericsInForce({"aten::sum"})), std::nullopt);
}

TEST(Numerics, TheMatmulPrecisionIsPyTorchs) {
  at::Context& context = at::globalContext();
  const auto before = context.float32MatmulPrecision();
  for (const auto& [precision, name] :
       std::vector<std::pair<at::Float32MatmulPrecision, std::string>>{
           {at::Float32MatmulPrecision::HIGH, "high"},
           {at::Float32MatmulPrecision::MEDIUM, "medium"},
           {at::Float32MatmulPrecision::HIGHEST, "highest"}}) {
    context.setFloat32MatmulPrecision(name);
    EXPECT_EQ(context.float32MatmulPrecision(), precision);
    const Json json = NumericsInForce({"aten::mm"});
    EXPECT_EQ(json["float32_matmul_precision"], name);
    EXPECT_EQ(json.size(), 5u) << json;
    EXPECT_EQ(MatrixNumericsWord(json), NumericsWord(true));
  }
  EXPECT_EQ(before, at::Float32MatmulPrecision::HIGHEST);
}

}  // namespace
}  // namespace cudaforge
