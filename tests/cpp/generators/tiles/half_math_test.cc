#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/file.h"
#include "base/subprocess.h"
#include "generators/rows/cuda/prelude.h"
#include "generators/tiles/device_texts.h"

namespace cudaforge::tiles {
namespace {

// The functions of half_math.cuh, compiled for the host, with its divisions and powers of 2.
class HalfMath : public testing::Test {
 protected:
  using Function = float (*)(float);

  void SetUp() override {
    const Result<TempDir> folder = TempDir::Create("half_math");
    const std::string source = folder->path() + "/h.cc", library = folder->path() + "/h.so";
    std::string text = "#include \"" CUDAFORGE_SOURCE_DIR "/tests/cpp/generators/cuda_shim.h\"\n" +
                       std::string(rows::CudaPrelude()) + DeviceText({"tiles/half_math.cuh"});
    for (const char* name : {"exp", "sigmoid", "tanh", "erf", "gelu", "gelu_tanh"}) {
      text += std::string("extern \"C\" float ") + name + "_of(float x) { return half_math::cf_" +
              name + "(x); }\n";
    }
    ASSERT_TRUE(WriteFileAtomic(source, text).ok());
    const Result<ProcessResult> compiled =
        RunProcess({"c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-w", "-o", library, source},
                   {.timeout_ms = 240'000, .join_errors = true});
    ASSERT_EQ(compiled->exit_code, 0) << compiled->output.substr(0, 4000);
    library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  void TearDown() override {
    if (library_ != nullptr) dlclose(library_);
  }

  Function Of(const char* name) { return reinterpret_cast<Function>(dlsym(library_, name)); }

  // The largest error over max(|f(x)|, least), from -limit to limit.
  template <class F>
  double Worst(const char* name, F f, double limit, double least) {
    const Function function = Of(name);
    double worst = 0;
    for (int i = -40000; i <= 40000; ++i) {
      const float x = static_cast<float>(i * limit / 40000);
      const double want = f(static_cast<double>(x));
      worst = std::max(worst, std::fabs(function(x) - want) / std::max(std::fabs(want), least));
    }
    return worst;
  }

 private:
  void* library_ = nullptr;
};

double ExactGelu(double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); }

TEST_F(HalfMath, IsFarMoreAccurateThanHalves) {
  constexpr double kBits17 = 1.0 / (1 << 17), kBits14 = 1.0 / (1 << 14);
  EXPECT_LT(Worst(
                "exp_of", [](double x) { return std::exp(x); }, 80, 0),
            kBits17);
  EXPECT_LT(Worst(
                "sigmoid_of", [](double x) { return 1 / (1 + std::exp(-x)); }, 80, 0),
            kBits17);
  EXPECT_LT(Worst(
                "tanh_of", [](double x) { return std::tanh(x); }, 20, 0.004),
            kBits14);
  EXPECT_LT(Worst(
                "tanh_of", [](double x) { return std::tanh(x); }, 0.01, 0),
            kBits14);
  EXPECT_LT(Worst(
                "erf_of", [](double x) { return std::erf(x); }, 6, 0.01),
            kBits14);
  EXPECT_LT(Worst(
                "erf_of", [](double x) { return std::erf(x); }, 0.05, 0),
            1.0 / (1 << 12));
  EXPECT_LT(Worst("gelu_of", ExactGelu, 6, 0.1), 1.0 / (1 << 16));
  EXPECT_LT(Worst("gelu_of", ExactGelu, 0.5, 0), kBits14);
  EXPECT_LT(Worst(
                "gelu_tanh_of",
                [](double x) {
                  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
                  return x / (1 + std::exp(-2 * u));
                },
                6, 0.1),
            1.0 / (1 << 16));
}

TEST_F(HalfMath, KeepsSpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const char* name : {"exp_of", "sigmoid_of", "tanh_of", "erf_of", "gelu_of", "gelu_tanh_of"})
    EXPECT_TRUE(std::isnan(Of(name)(NAN))) << name;
  EXPECT_EQ(Of("exp_of")(kInf), kInf);
  EXPECT_EQ(Of("exp_of")(-kInf), 0);
  EXPECT_EQ(Of("sigmoid_of")(kInf), 1);
  EXPECT_EQ(Of("sigmoid_of")(-kInf), 0);
  EXPECT_EQ(Of("tanh_of")(kInf), 1);
  EXPECT_EQ(Of("tanh_of")(-kInf), -1);
  EXPECT_EQ(Of("erf_of")(kInf), 1);
  EXPECT_EQ(Of("erf_of")(-kInf), -1);
  for (const char* name : {"gelu_of", "gelu_tanh_of"}) {
    EXPECT_EQ(Of(name)(kInf), kInf) << name;
    EXPECT_TRUE(std::isnan(Of(name)(-kInf))) << name << ": ATen multiplies it by zero";
    EXPECT_EQ(Of(name)(0), 0) << name;
    EXPECT_EQ(Of(name)(-1e4f), 0) << name;
    EXPECT_EQ(Of(name)(-8.5f), 0) << name << ": as 1 + erf and 1 + tanh in float32";
    EXPECT_LT(Of(name)(-4.0f), 0) << name;
  }
  EXPECT_GT(Of("sigmoid_of")(-88.5f), 0);
  EXPECT_EQ(Of("sigmoid_of")(-89), 0) << "exp(89) is infinite";
  EXPECT_GT(Of("exp_of")(-88), 0);
}

}  // namespace
}  // namespace cudaforge::tiles
