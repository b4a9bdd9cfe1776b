#include "worker/team.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <thread>
#include <vector>

#include "base/random.h"
#include "worker/split.h"

namespace cudaforge {
namespace {

constexpr int kMostRandomThreads = 8;
// Random pauses before a part: none, up to some microseconds, or tens of them.
constexpr uint64_t kLongestDelays[] = {1, 50, 1000};

// Nanoseconds until the first interruption of a kRandom thread.
constexpr int64_t kShortestRun = 20'000;
constexpr uint64_t kRunSpread = 100'000;

struct TeamState {
  RangeSplit split = RangeSplit::kServed;
  uint64_t seed = 0;
  int threads = 1;         // that share a range
  int cut_for = 1;         // threads
  bool main_works = true;  // the thread that called Start is one of them
  int helpers = 0;

  // One job at a time, written before `generation` changes.
  std::vector<RangePart> parts;
  RangeFn body = nullptr;
  void* context = nullptr;
  std::atomic<size_t> next{0};
  std::atomic<int> pending{0};
  std::atomic<int> arrived{0};  // kRandom: threads ready for their first part
  std::atomic<uint32_t> generation{0};
};

TeamState& State() {
  static auto* const state = new TeamState;
  return *state;
}

void Delay(uint64_t pauses) {
  for (uint64_t i = 0; i < pauses; ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
  }
}

// State of one thread.
struct Interruptions {
  timer_t timer = {};
  int64_t run_ns = 0;  // until the next one
};
thread_local Interruptions t_interruptions;

// A one-shot timer: a periodic one could always expire while other threads have the processor, and
// block this one. The delay grows with each interruption.
void InterruptLater() {
  Interruptions& own = t_interruptions;
  own.run_ns += own.run_ns / 20;
  const itimerspec once = {{0, 0},
                           {static_cast<time_t>(own.run_ns / 1'000'000'000),
                            static_cast<long>(own.run_ns % 1'000'000'000)}};
  timer_settime(own.timer, 0, &once, nullptr);
}

// Yields in the middle of a part. Otherwise, on a busy machine, one thread may run all parts before
// another begins, and races stay hidden. Async-signal-safe.
void GiveWay(int) {
  const int error = errno;
  sched_yield();
  InterruptLater();
  errno = error;
}

// Interrupts the calling thread repeatedly, until the process ends.
void InterruptThread(uint64_t seed) {
#if defined(__x86_64__)  // elsewhere a signal's return may need a page that the sandbox unmaps
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGALRM;
  event._sigev_un._tid = gettid();
  Interruptions& own = t_interruptions;
  if (timer_create(CLOCK_MONOTONIC, &event, &own.timer) != 0) return;
  own.run_ns = kShortestRun + static_cast<int64_t>(SplitMix(seed).Below(kRunSpread));
  InterruptLater();
#else
  static_cast<void>(seed);
#endif
}

void RunParts(TeamState& team, uint64_t delay_seed) {
  SplitMix random(delay_seed);
  if (team.split == RangeSplit::kRandom) {  // all start together
    ++team.arrived;
    while (team.arrived.load() < team.threads) std::this_thread::yield();
  }
  for (size_t i = team.next++; i < team.parts.size(); i = team.next++) {
    if (team.split == RangeSplit::kRandom) Delay(random.Below(kLongestDelays[team.seed % 3]));
    team.body(team.context, team.parts[i].begin, team.parts[i].end);
  }
}

void Help(TeamState& team, int index) {
  for (uint32_t seen = 0;; ++seen) {
    team.generation.wait(seen, std::memory_order_acquire);
    RunParts(team, team.seed + static_cast<uint64_t>(index) + 1);
    if (team.pending.fetch_sub(1, std::memory_order_acq_rel) == 1) team.pending.notify_one();
  }
}

void WaitUntilZero(std::atomic<int>& value) {
  for (int left = value.load(); left != 0; left = value.load()) value.wait(left);
}

}  // namespace

void Team::Start(const LaunchRequest& launch, int served_threads,
                 const std::function<void()>& prepare) {
  const RangeSplit split = launch.split;
  const uint64_t seed = launch.seed;
  TeamState& team = State();
  team.split = split;
  team.seed = seed;
  if (split == RangeSplit::kServed) team.threads = std::max(served_threads, 1);
  if (split == RangeSplit::kRandom)
    team.threads = std::clamp(served_threads, 2, kMostRandomThreads);
  team.cut_for = split == RangeSplit::kServed && launch.threads > 0 ? launch.threads : team.threads;
  // A served kernel may run on any thread, including the first of the process.
  const bool alone = split == RangeSplit::kWhole || split == RangeSplit::kItems;
  team.main_works = !alone || (seed & 1) == 0;
  team.helpers = team.threads - (team.main_works ? 1 : 0);
  team.pending = team.helpers;
  const bool interrupts = split == RangeSplit::kRandom;
  if (interrupts) {
    struct sigaction action = {};
    action.sa_handler = GiveWay;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    sigaction(SIGALRM, &action, nullptr);
  }
  for (int i = 0; i < team.helpers; ++i) {
    std::thread([&team, &prepare, interrupts, i] {
      prepare();
      if (interrupts) InterruptThread(team.seed + static_cast<uint64_t>(i) + 1);
      if (team.pending.fetch_sub(1) == 1) team.pending.notify_one();
      Help(team, i);
    }).detach();
  }
  WaitUntilZero(team.pending);
  if (interrupts && team.main_works) InterruptThread(seed);
}

void Team::ParallelFor(int64_t n, int64_t grain, RangeFn body, void* context) {
  TeamState& team = State();
  team.parts = CutRange(team.split, n, grain, team.cut_for, team.seed);
  team.body = body;
  team.context = context;
  team.next = 0;
  team.arrived = 0;
  team.pending = team.helpers;
  team.generation.fetch_add(1, std::memory_order_release);
  team.generation.notify_all();
  if (team.main_works) RunParts(team, team.seed);
  WaitUntilZero(team.pending);
}

}  // namespace cudaforge
