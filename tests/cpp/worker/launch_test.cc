// A real worker on its client's memory.
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "tests/cpp/worker/launch_fixture.h"

namespace cudaforge {
namespace {

constexpr char kRelu[] = "for (int64_t i = begin; i < end; ++i) y[i] = x[i] > 0 ? x[i] : 0;";

std::vector<int> ChildrenOf(int pid) {
  std::ifstream list("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
  std::vector<int> children;
  for (int child = 0; list >> child;) children.push_back(child);
  return children;
}

TEST_F(WorkerLaunch, EverySplitComputesInPlace) {
  ASSERT_TRUE(Load(UncheckedBinary(kRelu)).accepted());
  for (const RangeSplit split : {RangeSplit::kServed, RangeSplit::kWhole, RangeSplit::kItems,
                                 RangeSplit::kRandom, RangeSplit::kApart}) {
    for (const uint64_t seed : {0, 1, 2}) {
      const bool end = seed == 1;
      std::fill_n(Y(end), kItems, -1.0f);
      if (end) std::copy_n(X(), kItems, X(true));  // upwards by less than their length
      const Verdict verdict = Launch(At(end, split, seed));
      ASSERT_TRUE(verdict.accepted()) << SplitName(split) << ": " << verdict.message;
      for (int64_t i = 0; i < kItems; ++i) {
        ASSERT_EQ(Y(end)[i], std::max(X(end)[i], 0.0f)) << SplitName(split) << " item " << i;
      }
    }
  }
  EXPECT_EQ(client_.started(), 1);
}

cpu_set_t OneProcessor() {
  cpu_set_t all, one;
  CPU_ZERO(&one);
  EXPECT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &all)) ++cpu;
  CPU_SET(cpu, &one);
  return one;
}

void PinWorkers(const cpu_set_t& processors) {
  const std::vector<int> workers = ChildrenOf(getpid());
  ASSERT_EQ(workers.size(), 1u);
  ASSERT_EQ(sched_setaffinity(workers[0], sizeof(processors), &processors), 0);
}

// A single processor runs one thread at a time: races only show if parts are interrupted.
TEST_F(WorkerLaunch, PartsAreInterrupted) {
  const cpu_set_t one = OneProcessor();
  PinWorkers(one);
  ASSERT_TRUE(Load(UncheckedBinary("volatile float* shared = y;\n"
                                   "for (int64_t i = begin; i < end; ++i) {\n"
                                   "  shared[0] = x[i];\n"
                                   "  for (volatile int wait = 0; wait < 1000; ++wait) {}\n"
                                   "  y[i] = shared[0];\n"
                                   "}"))
                  .accepted());
  int wrong = 0;
  for (uint64_t seed = 0; seed < 20 && wrong == 0; ++seed) {
    ASSERT_TRUE(Launch(At(false, RangeSplit::kRandom, seed)).accepted());
    for (int64_t i = 1; i < kItems; ++i) wrong += Y()[i] != X()[i] ? 1 : 0;
  }
#if defined(__x86_64__)
  EXPECT_GT(wrong, 0);
#endif
}

// Other programs may have the processor for longer than the time between interruptions.
TEST_F(WorkerLaunch, YieldingThreadsFinish) {
  const cpu_set_t one = OneProcessor();
  PinWorkers(one);
  std::atomic<bool> over = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&] {
      sched_setaffinity(0, sizeof(one), &one);
      while (!over) {
      }
    });
  }
  EXPECT_TRUE(Load(UncheckedBinary("for (int64_t i = begin; i < end; ++i) {\n"
                                   "  for (volatile int work = 0; work < 20000; ++work) {}\n"
                                   "  y[i] = x[i];\n"
                                   "}"))
                  .accepted());
  const Verdict verdict = Launch(At(false, RangeSplit::kRandom, 1));
  over = true;
  for (std::thread& other : others) other.join();
  EXPECT_TRUE(verdict.accepted()) << verdict.message;
}

TEST_F(WorkerLaunch, SplitsForAnotherMachine) {
  ASSERT_TRUE(Load(UncheckedBinary("y[begin] = end;")).accepted());
  for (const int threads : {3, 8, 64}) {
    std::fill_n(Y(), kItems, -1.0f);
    LaunchRequest launch = At(false, RangeSplit::kServed);
    launch.threads = threads;
    ASSERT_TRUE(Launch(launch).accepted());
    const int64_t chunk = (kItems + threads - 1) / threads;
    EXPECT_EQ(Y()[0], chunk);
    EXPECT_EQ(Y()[chunk], 2 * chunk);
    EXPECT_EQ(kItems - std::count(Y(), Y() + kItems, -1.0f), (kItems + chunk - 1) / chunk);
  }
}

// A timed run must not find its last outputs and scratch buffers, and a kernel that exploits them
// is refused.
TEST_F(WorkerLaunch, TimedRunsFindChangedBuffers) {
  const std::string work =
      "volatile float sum = 0;\n"
      "for (int i = 0; i < 200000; ++i) sum = sum + x[i % 1000];\n"
      "for (int i = 0; i < 1000; ++i) y[i] = x[i];";
  candidate_ = CpuCandidate("", 1, "1", 1);
  ASSERT_TRUE(Load(UncheckedBinary("bool same = true;\n"
                                   "for (int i = 0; i < 1000; ++i) same &= y[i] == x[i];\n"
                                   "if (same) return;\n" +
                                   work))
                  .accepted());
  const auto quick = client_.Time({At(false)}, {}, {});
  EXPECT_EQ(quick.status().code(), StatusCode::kUnsupported) << quick.status().ToString();
  ASSERT_TRUE(Load(UncheckedBinary(work)).accepted());
  const auto honest = client_.Time({At(false)}, {}, {});
  ASSERT_TRUE(honest.ok()) << honest.status().ToString();
  EXPECT_GT(*honest, 100'000);
  EXPECT_EQ(Y()[10], 7);
}

// The process that runs a kernel times it, and the kernel may overwrite its stack.
TEST_F(WorkerLaunch, TimedKernelCannotFindTheStartTime) {
  const auto seconds = static_cast<int64_t>(SteadySeconds());
  candidate_ = CpuCandidate("", 1, "1", seconds);
  ASSERT_TRUE(
      Load(UncheckedBinary("volatile float sum = 0;\n"
                           "for (int i = 0; i < 200000; ++i) sum = sum + x[i % 1000];\n"
                           "volatile uint64_t here = 0, *p = &here;\n"
                           "const uint64_t now = 1000000000ul * n[0];\n"
                           "for (int i = 1; i < 300; ++i)\n"
                           "  if (p[i] > now && p[i] - now < 60000000000ul) p[i] += 10000000;\n"
                           "y[10] = x[10];"))
          .accepted());
  const auto time = client_.Time({At(false)}, {}, {});
  ASSERT_TRUE(time.ok()) << time.status().ToString();
  EXPECT_GT(*time, 100'000);
}

// The parts need memory, which the process must have before it enters the sandbox.
TEST_F(WorkerLaunch, ARangeOfManyItems) {
  const std::string binary =
      UncheckedBinary("for (int64_t i = begin; i < end && i < 1000; ++i) y[i] = x[i] + 1;");
  for (const char* range : {"65536", "65537", "1000000000"}) {
    candidate_ = CpuCandidate("", 1, range, 1);
    ASSERT_TRUE(Load(binary).accepted());
    for (const RangeSplit split : {RangeSplit::kItems, RangeSplit::kRandom, RangeSplit::kApart}) {
      std::fill_n(Y(), kItems, -1.0f);
      const Verdict verdict = Launch(At(false, split, 6));
      ASSERT_TRUE(verdict.accepted()) << range << SplitName(split) << verdict.message;
      for (int64_t i = 0; i < kItems; ++i) ASSERT_EQ(Y()[i], X()[i] + 1);
    }
  }
}

TEST_F(WorkerLaunch, CancelledRunLeavesNoProcess) {
  ASSERT_TRUE(Load(UncheckedBinary("while (*(volatile float*)x != 99) {}")).accepted());
  Cancel cancel;
  client_.Limit(60'000, 60'000, &cancel);
  const std::vector<int> workers = ChildrenOf(getpid());
  ASSERT_EQ(workers.size(), 1u);
  std::vector<int> runs;
  std::thread canceller([&] {
    while ((runs = ChildrenOf(workers[0])).empty()) std::this_thread::yield();
    cancel.Set();
  });
  const auto verdict = client_.Launch(At(false));
  canceller.join();
  EXPECT_EQ(verdict.status().code(), StatusCode::kCancelled);
  ASSERT_EQ(runs.size(), 1u);
  const auto gone = [&] {
    const auto status = ReadFile("/proc/" + std::to_string(runs[0]) + "/status");
    return !status.ok() || status->find("State:\tZ") != std::string::npos;
  };
  for (int i = 0; i < 100 && !gone(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(gone());
  client_.Limit(60'000, 5'000, nullptr);
}

TEST_F(WorkerLaunch, TimesAndProfiles) {
  ASSERT_TRUE(Load(UncheckedBinary(kRelu)).accepted());
  const auto copy = client_.Map(y_, true, 0);
  ASSERT_TRUE(copy.ok());
  LaunchRequest other = At(false);
  other.outputs[0].mapping = *copy;
  std::fill_n(Y(), kItems, -1.0f);
  const auto time = client_.Time({At(false), other}, {.samples = 5}, {0});
  ASSERT_TRUE(time.ok()) << time.status().ToString();
  EXPECT_GT(*time, 0);
  EXPECT_EQ(Y()[10], 7);  // a timed run's output can be compared
  const auto profile = client_.Profile(At(false), 1);
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  EXPECT_EQ((*profile)["kernels"].size(), 1u);
  EXPECT_TRUE((*profile)["tier"] == 1 || (*profile)["note"] != "") << *profile;
  EXPECT_FALSE(client_.Time({At(false)}, {}, {7}).ok());  // no such input
  EXPECT_FALSE(client_.Profile(At(false), 77).ok());
  EXPECT_EQ(client_.started(), 1);
}

TEST_F(WorkerLaunch, ScratchIsTheClientsMemory) {
  candidate_.plan.scratch_bytes = {ScratchBuffer(512, /*is_zeroed=*/true)};
  LaunchArg scratch;
  scratch.kind = LaunchArg::Kind::kScratch;
  candidate_.plan.launches[0].args.push_back(scratch);
  const auto loaded = client_.Load(UncheckedBinary("float* s = static_cast<float*>(b[2]);\n"
                                                   "y[begin] = s[0]; s[0] = 5;"),
                                   candidate_, signature_);
  ASSERT_TRUE(loaded.ok() && loaded->verdict.accepted());
  EXPECT_EQ(loaded->scratch_bytes, std::vector<int64_t>{512});
  const SharedMemory memory = *ShareHostMemory(512);
  std::memset(memory.data(), 1, 512);
  const auto id = client_.Map(memory, true, 0);
  ASSERT_TRUE(id.ok());
  EXPECT_FALSE(client_.Launch(At(false)).ok());  // a buffer is missing
  LaunchRequest launch = At(false);
  launch.scratch = {{*id, 0}};
  ASSERT_TRUE(Launch(launch).accepted());
  EXPECT_EQ(Y()[0], 0);
  EXPECT_EQ(*static_cast<float*>(memory.data()), 5);
}

TEST_F(WorkerLaunch, InvalidBuffersAreErrors) {
  ASSERT_TRUE(Load(UncheckedBinary(kRelu)).accepted());
  LaunchRequest launch = At(false);
  launch.outputs[0].mapping = x_id_;  // read-only
  EXPECT_FALSE(client_.Launch(launch).ok());
  launch = At(false);
  launch.inputs[0].offset = x_.bytes() - kBytes + 4;
  EXPECT_FALSE(client_.Launch(launch).ok());
  launch.inputs[0] = {12345, 0};
  EXPECT_FALSE(client_.Launch(launch).ok());
  ASSERT_TRUE(client_.Unmap(y_id_).ok());
  EXPECT_FALSE(client_.Unmap(y_id_).ok());
  EXPECT_FALSE(client_.Launch(At(false)).ok());
  ASSERT_TRUE(client_.Unload().ok());
  EXPECT_FALSE(client_.Launch(At(false)).ok());
  EXPECT_EQ(client_.started(), 1);
}

TEST_F(WorkerLaunch, UnloadableBinaryIsAVerdict) {
  EXPECT_EQ(Load("no ELF").kind, VerdictKind::kLaunchError);
  EXPECT_EQ(Load(UncheckedBinary("static int64_t calls; y[0] = ++calls;")).kind,
            VerdictKind::kRefused);
  EXPECT_EQ(Load(UncheckedBinary("y[0] = getpid();", "extern \"C\" int getpid();")).kind,
            VerdictKind::kRefused);
  EXPECT_EQ(Load(UncheckedBinary("y[0] = Chosen();",
                                 "static int One() { return 1; }\n"
                                 "extern \"C\" int (*Choose())() { return One; }\n"
                                 "__attribute__((visibility(\"hidden\"), ifunc(\"Choose\")))\n"
                                 "int Chosen();"))
                .kind,
            VerdictKind::kRefused);
  const std::string good = UncheckedBinary(kRelu);
  candidate_.plan.launches[0].kernel = "another";
  EXPECT_FALSE(Load(good).accepted());
  EXPECT_FALSE(client_.Launch(At(false)).ok());
}

// Unmapped memory is freed when its owner drops it: neither client nor worker keeps it.
TEST_F(WorkerLaunch, UnmapFreesTheMemory) {
  const auto shared = [] {
    std::ifstream facts("/proc/meminfo");
    for (std::string line; std::getline(facts, line);) {
      if (line.starts_with("Shmem:")) return std::stoll(line.substr(6));
    }
    return 0ll;
  };
  constexpr int64_t kLarge = int64_t{256} << 20;
  const auto before = shared();
  {
    const SharedMemory memory = *ShareHostMemory(kLarge);
    const auto id = client_.Map(memory, true, 0);
    ASSERT_TRUE(id.ok());
    EXPECT_GT(shared() - before, 200 << 10);
    ASSERT_TRUE(client_.Unmap(*id).ok());
  }
  EXPECT_LT(shared() - before, 100 << 10);
}

TEST_F(WorkerLaunch, MappingsAndKernelAreRestoredInNewWorker) {
  ASSERT_TRUE(Load(UncheckedBinary(kRelu)).accepted());
  ASSERT_TRUE(Launch(At(false)).accepted());
  const std::vector<int> workers = ChildrenOf(getpid());
  ASSERT_EQ(workers.size(), 1u);
  kill(workers[0], SIGKILL);
  std::fill_n(Y(), kItems, -1.0f);
  auto verdict = client_.Launch(At(false));
  if (!verdict.ok()) verdict = client_.Launch(At(false));  // it died during the request
  ASSERT_TRUE(verdict.ok()) << verdict.status().ToString();
  EXPECT_EQ(client_.started(), 2);
  EXPECT_EQ(Y()[10], 7);
  const auto again = client_.Map(x_, false, 0);
  ASSERT_TRUE(again.ok());
  EXPECT_NE(*again, x_id_);
  EXPECT_TRUE(Launch(At(false)).accepted());
}

// The system kills processes when memory runs out; that is not a verdict.
TEST_F(WorkerLaunch, KilledRunIsUnavailable) {
  ASSERT_TRUE(Load(UncheckedBinary("while (*(volatile float*)x != 99) {}")).accepted());
  const std::vector<int> workers = ChildrenOf(getpid());
  ASSERT_EQ(workers.size(), 1u);
  std::thread killer([&] {
    std::vector<int> runs;
    while ((runs = ChildrenOf(workers[0])).empty()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kill(runs[0], SIGKILL);
  });
  const auto verdict = client_.Launch(At(false));
  killer.join();
  EXPECT_EQ(verdict.status().code(), StatusCode::kUnavailable);
  X()[0] = 99;
  EXPECT_TRUE(Launch(At(false)).accepted());
  EXPECT_EQ(client_.started(), 1);
}

}  // namespace
}  // namespace cudaforge
