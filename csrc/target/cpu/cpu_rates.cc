#include "target/cpu/cpu_rates.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "target/cpu/cpu_compiler.h"
#include "target/cpu/cpu_executable.h"
#include "target/cpu/cpu_info.h"
#include "target/cpu/thread_pool.h"

namespace cudaforge {
namespace {

constexpr int kCompileMs = 60'000;
constexpr int kMostSamples = 15;
constexpr int kLeastSamples = 3;
constexpr std::chrono::milliseconds kBudget{250};
constexpr int64_t kLoops = 1'000'000;
constexpr int64_t kMiB = 1 << 20;

// One item of a loop stores {its operations, a sum that keeps the loop alive}.
constexpr char kRatesText[] = R"(
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif
#if defined(__AVX512F__)
typedef __m512 Floats;
typedef __m512d Doubles;
static inline Floats fuse(Floats x, Floats a, Floats b) { return _mm512_fmadd_ps(x, a, b); }
static inline Doubles fuse(Doubles x, Doubles a, Doubles b) { return _mm512_fmadd_pd(x, a, b); }
#elif defined(__FMA__)
typedef __m256 Floats;
typedef __m256d Doubles;
static inline Floats fuse(Floats x, Floats a, Floats b) { return _mm256_fmadd_ps(x, a, b); }
static inline Doubles fuse(Doubles x, Doubles a, Doubles b) { return _mm256_fmadd_pd(x, a, b); }
#else
typedef float Floats __attribute__((vector_size(16)));
typedef double Doubles __attribute__((vector_size(16)));
template <typename V> static inline V fuse(V x, V a, V b) { return x * a + b; }
#endif

template <typename V, typename T>
static inline void chains(double* out, int64_t loops) {
  const int64_t lanes = sizeof(V) / sizeof(T);
  T numbers[sizeof(V) / sizeof(T)];
  V x[12];
  V a, b;
  for (int64_t l = 0; l < lanes; ++l) numbers[l] = T(0.999);
  memcpy(&a, numbers, sizeof(V));
  for (int64_t l = 0; l < lanes; ++l) numbers[l] = T(0.001) * T(l + 1);
  memcpy(&b, numbers, sizeof(V));
  for (int k = 0; k < 12; ++k) {
    for (int64_t l = 0; l < lanes; ++l) numbers[l] = T(1 + k + l);
    memcpy(&x[k], numbers, sizeof(V));
  }
  V x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3], x4 = x[4], x5 = x[5];
  V x6 = x[6], x7 = x[7], x8 = x[8], x9 = x[9], x10 = x[10], x11 = x[11];
  for (int64_t i = 0; i < loops; ++i) {
    x0 = fuse(x0, a, b); x1 = fuse(x1, a, b); x2 = fuse(x2, a, b); x3 = fuse(x3, a, b);
    x4 = fuse(x4, a, b); x5 = fuse(x5, a, b); x6 = fuse(x6, a, b); x7 = fuse(x7, a, b);
    x8 = fuse(x8, a, b); x9 = fuse(x9, a, b); x10 = fuse(x10, a, b); x11 = fuse(x11, a, b);
  }
  const V sum = ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)) + ((x8 + x9) + (x10 + x11));
  memcpy(numbers, &sum, sizeof(V));
  out[0] = 2.0 * 12 * double(lanes) * double(loops);
  out[1] = double(numbers[0]);
}

extern "C" void fused32(void* const* buffers, const int64_t* ints, const double*, int64_t begin,
                        int64_t end) {
  for (int64_t i = begin; i < end; ++i) chains<Floats, float>((double*)buffers[0] + 2 * i, ints[0]);
}

extern "C" void fused64(void* const* buffers, const int64_t* ints, const double*, int64_t begin,
                        int64_t end) {
  for (int64_t i = begin; i < end; ++i) chains<Doubles, double>((double*)buffers[0] + 2 * i, ints[0]);
}

extern "C" void triad(void* const* buffers, const int64_t*, const double* floats, int64_t begin,
                      int64_t end) {
  double* __restrict a = (double*)buffers[0];
  const double* __restrict b = (const double*)buffers[1];
  const double* __restrict c = (const double*)buffers[2];
  const double s = floats[0];
  for (int64_t i = begin; i < end; ++i) a[i] = b[i] + s * c[i];
}
)";

// A launch of `kernel` over `range` items, with outputs 0, 1, ... as buffers.
Candidate RatesCandidate(const char* kernel, int buffers, int64_t range) {
  Launch launch;
  launch.kernel = kernel;
  for (int i = 0; i < buffers; ++i) {
    launch.args.push_back({LaunchArg::Kind::kOutput, i, {}, 0});
  }
  launch.args.push_back({LaunchArg::Kind::kInt, 0, kLoops, 0});
  launch.args.push_back({LaunchArg::Kind::kFloat, 0, {}, 0.5});
  launch.range = range;
  Candidate candidate;
  candidate.source.language = Language::kCpu;
  candidate.plan.launches.push_back(std::move(launch));
  return candidate;
}

// Median seconds of one launch on `buffers`.
Result<double> MedianSeconds(const std::string& binary, const char* kernel, int64_t range,
                             const std::vector<void*>& buffers) {
  const Candidate candidate = RatesCandidate(kernel, static_cast<int>(buffers.size()), range);
  CF_ASSIGN_OR_RETURN(const auto executable, LoadCpu(binary, candidate, OpSignature()));
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples;
  const auto deadline = Clock::now() + kBudget;
  for (int i = -1; i < kMostSamples && (i < kLeastSamples || Clock::now() < deadline); ++i) {
    const auto begin = Clock::now();
    CF_RETURN_IF_ERROR(executable->Launch({}, buffers, {}, {nullptr, PoolParallelFor}));
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    if (i >= 0) samples.push_back(seconds.count());
  }
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  if (!(*middle > 0)) return Status::Unavailable(std::string(kernel) + " took no time");
  return *middle;
}

Result<double> FusedTflops(const std::string& binary, const char* kernel) {
  const int threads = ThreadPool::Global().threads();
  std::vector<double> out(size_t{2} * static_cast<size_t>(threads));
  CF_ASSIGN_OR_RETURN(const double seconds, MedianSeconds(binary, kernel, threads, {out.data()}));
  double operations = 0;
  for (size_t i = 0; i < out.size(); i += 2) operations += out[i];
  return operations / seconds / 1e12;
}

Result<double> BandwidthGbPerS(const std::string& binary) {
  const int64_t free = int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const int64_t wanted = std::clamp(LastLevelCacheBytes() * 3 / 2, 64 * kMiB, 256 * kMiB);
  const int64_t bytes = std::min(wanted, free / 16) / 4096 * 4096;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> arrays;
  std::vector<void*> buffers;
  for (int i = 0; i < 3; ++i) {
    void* data = bytes < kMiB ? nullptr : std::aligned_alloc(4096, static_cast<size_t>(bytes));
    if (data == nullptr) return Status::Unavailable("no memory for it");
    arrays.emplace_back(data, &std::free);
    buffers.push_back(data);
    // Each thread touches its own part first, so that the pages are local to it.
    ThreadPool::Global().Run(
        bytes / 8, 1,
        [](void* context, int64_t begin, int64_t end) {
          std::fill(static_cast<double*>(context) + begin, static_cast<double*>(context) + end, 1);
        },
        data);
  }
  CF_ASSIGN_OR_RETURN(const double seconds, MedianSeconds(binary, "triad", bytes / 8, buffers));
  return 3.0 * static_cast<double>(bytes) / seconds / 1e9;
}

}  // namespace

Json MeasureCpuRates(const std::string& wanted_cxx) {
  const CompileResult compiled = CompileCpu(kRatesText, wanted_cxx, kCompileMs);
  if (!compiled.ok) {
    return Json{{"note", "nothing was measured: " +
                             (compiled.fault.ok() ? compiled.log : compiled.fault.message())}};
  }
  Json rates = Json::object();
  std::string note;
  const auto keep = [&](const char* name, const Result<double>& rate) {
    if (rate.ok()) {
      rates[name] = *rate;
    } else {
      note += (note.empty() ? "" : "; ") + std::string(name) + ": " + rate.status().message();
    }
  };
  keep("fp32_tflops", FusedTflops(compiled.binary, "fused32"));
  keep("fp64_tflops", FusedTflops(compiled.binary, "fused64"));
  keep("bandwidth_gb_s", BandwidthGbPerS(compiled.binary));
  rates["note"] = note;
  return rates;
}

}  // namespace cudaforge
