// A worker with one input and one output mapped, and kernels that skipped the source scan.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "target/cpu/cpu_memory.h"
#include "tests/cpp/unchecked_library.h"
#include "tests/cpp/worker/fake_target.h"
#include "worker/worker_client.h"

namespace cudaforge {

// The library of `body`, which runs for items [begin, end) with float* x and y.
inline std::string UncheckedBinary(const std::string& body, const std::string& before = "") {
  return UncheckedLibrary(
      "#include <cstdint>\n" + before +
      "\nextern \"C\" void candidate(void* const* b, const int64_t* n, const double* f,\n"
      "                          int64_t begin, int64_t end) {\n"
      "  float* x = static_cast<float*>(b[0]);\n"
      "  float* y = static_cast<float*>(b[1]);\n" +
      body + "\n}\n");
}

class WorkerLaunch : public ::testing::Test {
 protected:
  static constexpr int64_t kBytes = 4000;
  static constexpr int64_t kItems = kBytes / 4;

  static WorkerOptions Options() {
    WorkerOptions options;
    options.executable = std::string(CUDAFORGE_BINARY_DIR) + "/cudaforge-worker";
    options.run_timeout_ms = 5000;
    return options;
  }

  void SetUp() override {
    for (int64_t i = 0; i < kItems; ++i) X()[i] = static_cast<float>(i) - 3;
    const auto x = client_.Map(x_, false, 0);
    const auto y = client_.Map(y_, true, 0);
    ASSERT_TRUE(x.ok() && y.ok()) << x.status().ToString() << y.status().ToString();
    x_id_ = *x;
    y_id_ = *y;
  }

  // At the end of the mapping or at its start.
  LaunchRequest At(bool end, RangeSplit split = RangeSplit::kWhole, uint64_t seed = 0) const {
    const int64_t at = end ? x_.bytes() - kBytes : 0;
    return {{{x_id_, at}}, {{y_id_, at}}, {}, split, seed};
  }
  float* X(bool end = false) const { return Floats(x_, end); }
  float* Y(bool end = false) const { return Floats(y_, end); }

  Verdict Load(const std::string& binary) {
    const auto loaded = client_.Load(binary, candidate_, signature_);
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return loaded.ok() ? loaded->verdict : Verdict{VerdictKind::kNotJudged, ""};
  }
  Verdict Launch(const LaunchRequest& launch) {
    const auto verdict = client_.Launch(launch);
    EXPECT_TRUE(verdict.ok()) << verdict.status().ToString();
    return verdict.ok() ? *verdict : Verdict{VerdictKind::kNotJudged, ""};
  }
  // Compiles, loads and launches `body`. The worker must survive it.
  Verdict RunBody(const std::string& body, const std::string& before = "", bool end = false,
                  RangeSplit split = RangeSplit::kWhole) {
    const Verdict loaded = Load(UncheckedBinary(body, before));
    EXPECT_TRUE(loaded.accepted()) << loaded.message;
    const Verdict verdict = Launch(At(end, split));
    EXPECT_EQ(client_.started(), 1) << body;
    return verdict;
  }

  SharedMemory x_ = *ShareHostMemory(kBytes);
  SharedMemory y_ = *ShareHostMemory(kBytes);
  OpSignature signature_ = ReluSignature(kItems);
  Candidate candidate_ = CpuCandidate("", 1, std::to_string(kItems), 1);
  int x_id_ = 0, y_id_ = 0;
  WorkerClient client_{Options()};

 private:
  static float* Floats(const SharedMemory& memory, bool end) {
    return reinterpret_cast<float*>(static_cast<char*>(memory.data()) +
                                    (end ? memory.bytes() - kBytes : 0));
  }
};

}  // namespace cudaforge
