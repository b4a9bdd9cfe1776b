#include "worker/race_watch.h"

#include <ucontext.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "worker/split.h"

namespace cudaforge {
namespace {

constexpr int64_t kComparedBytes = int64_t{256} << 20;  // of a launch, over all parts
constexpr int64_t kFewestParts = 4, kMostParts = 1024;
constexpr size_t kMostWatched = 16;      // bytes, in single steps
constexpr int64_t kMostSteps = 200'000;  // per process; about 2 us each

// An output or a scratch buffer.
struct Watched {
  std::string name;
  unsigned char* data = nullptr;
  std::vector<unsigned char> before;   // its contents before the current part
  std::vector<unsigned char> changed;  // 1: by a part of this launch
};

struct WatchState {
  std::vector<Watched> buffers;
  int64_t bytes = 0;
  uint64_t seed = 0;
  bool uses_atomics = false;
  std::string found;
};

WatchState& Watch() {
  static auto* const state = new WatchState;
  return *state;
}

// Bytes changed by an earlier part and by this one.
struct Clash {
  const Watched* buffer = nullptr;
  size_t byte = 0;
};

// Used by the SIGTRAP handler.
struct Steps {
  volatile bool wanted = false;
  bool unlocked = false;
  const unsigned char* last = nullptr;  // the current instruction
  const unsigned char* watched[kMostWatched] = {};
  unsigned char values[kMostWatched] = {};
  size_t count = 0;
  int64_t left = kMostSteps;
} g_steps;

#if defined(__x86_64__)
// Returns true for a LOCK prefix, or an exchange with memory, which is always locked.
bool IsLocked(const unsigned char* code) {
  for (int i = 0; i < 14; ++i, ++code) {
    if (*code == 0xf0) return true;
    const bool prefix = *code == 0x66 || *code == 0x67 || *code == 0xf2 || *code == 0xf3 ||
                        *code == 0x2e || *code == 0x36 || *code == 0x3e || *code == 0x26 ||
                        *code == 0x64 || *code == 0x65 || (*code & 0xf0) == 0x40;
    if (!prefix) break;
  }
  return *code == 0x86 || *code == 0x87;
}

// Async-signal-safe.
void OnStep(int, siginfo_t*, void* context) {
  constexpr greg_t kTrapFlag = 0x100;
  Steps& steps = g_steps;
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  for (size_t i = 0; i < steps.count; ++i) {
    const unsigned char now = *steps.watched[i];
    if (now == steps.values[i]) continue;
    steps.values[i] = now;
    if (steps.last != nullptr && !IsLocked(steps.last)) steps.unlocked = true;
  }
  steps.last = reinterpret_cast<const unsigned char*>(registers[REG_RIP]);
  if (steps.wanted && !steps.unlocked && --steps.left > 0) {
    registers[REG_EFL] |= kTrapFlag;
  } else {
    registers[REG_EFL] &= ~kTrapFlag;
  }
}

// Runs a part in single steps. Returns true if a non-atomic instruction changed a byte of
// `clashes`.
bool StepsShowRace(const std::vector<Clash>& clashes, RangeFn body, void* context,
                   const RangePart& part) {
  Steps& steps = g_steps;
  steps.count = std::min(clashes.size(), kMostWatched);
  for (size_t i = 0; i < steps.count; ++i) {
    steps.watched[i] = clashes[i].buffer->data + clashes[i].byte;
    steps.values[i] = *steps.watched[i];
  }
  steps.last = nullptr;
  steps.wanted = true;
  asm volatile("int3" : : : "memory");
  body(context, part.begin, part.end);
  steps.wanted = false;
  steps.count = 0;
  return steps.unlocked;
}
#endif

// Finds the bytes that the last part changed, and records them. Returns at most kMostWatched
// clashes.
std::vector<Clash> Compare(WatchState& watch) {
  std::vector<Clash> clashes;
  for (Watched& one : watch.buffers) {
    const size_t bytes = one.before.size();
    unsigned char* const before = one.before.data();
    for (size_t at = 0; at < bytes; at += 64) {
      const size_t length = std::min<size_t>(64, bytes - at);
      if (std::memcmp(one.data + at, before + at, length) == 0) continue;
      for (size_t i = at; i < at + length; ++i) {
        if (one.data[i] == before[i]) continue;
        if (one.changed[i] != 0 && clashes.size() < kMostWatched) clashes.push_back({&one, i});
      }
    }
  }
  return clashes;
}

void Accept(WatchState& watch) {
  for (Watched& one : watch.buffers) {
    unsigned char* const before = one.before.data();
    for (size_t at = 0; at < one.before.size(); at += 64) {
      const size_t length = std::min<size_t>(64, one.before.size() - at);
      if (std::memcmp(one.data + at, before + at, length) == 0) continue;
      for (size_t i = at; i < at + length; ++i) {
        one.changed[i] |= one.data[i] != before[i] ? 1 : 0;
      }
      std::memcpy(before + at, one.data + at, length);
    }
  }
}

bool IsRace(WatchState& watch, const std::vector<Clash>& clashes, RangeFn body, void* context,
            const RangePart& part) {
  if (!watch.uses_atomics) return true;
#if defined(__x86_64__)
  for (Watched& one : watch.buffers) std::copy(one.before.begin(), one.before.end(), one.data);
  return StepsShowRace(clashes, body, context, part);
#else
  static_cast<void>(clashes);
  static_cast<void>(body);
  static_cast<void>(context);
  static_cast<void>(part);
  return false;
#endif
}

std::string RaceText(const Clash& clash, const RangePart& part, int64_t range) {
  const bool one = part.end - part.begin == 1;
  return "a race: " + (one ? "item " : "items " + std::to_string(part.begin) + " to ") +
         std::to_string(part.end - 1) + " of a launch over " + std::to_string(range) +
         " changed byte " + std::to_string(clash.byte) + " of " + clash.buffer->name +
         ", which other items had changed in the same launch. Parts run at once, in any order: "
         "give each item a place of its own, add up in another launch, or use atomic operations";
}

}  // namespace

void RaceWatch::Start(const LaunchBuffers& buffers, uint64_t seed, bool uses_atomics) {
  WatchState& watch = Watch();
  watch.seed = seed;
  watch.uses_atomics = uses_atomics;
  for (const LaunchBuffer& buffer : buffers.all) {
    if (buffer.is_input || buffer.bytes == 0) continue;
    const auto bytes = static_cast<size_t>(buffer.bytes);
    watch.buffers.push_back({buffer.name, static_cast<unsigned char*>(buffer.data),
                             std::vector<unsigned char>(bytes), std::vector<unsigned char>(bytes)});
    watch.bytes += buffer.bytes;
  }
#if defined(__x86_64__)
  struct sigaction action = {};
  action.sa_sigaction = OnStep;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  if (uses_atomics) sigaction(SIGTRAP, &action, nullptr);
#endif
}

void RaceWatch::ParallelFor(int64_t n, int64_t grain, RangeFn body, void* context) {
  WatchState& watch = Watch();
  for (Watched& one : watch.buffers) {
    std::copy_n(one.data, one.before.size(), one.before.begin());
    std::fill(one.changed.begin(), one.changed.end(), 0);
  }
  const auto most = static_cast<int>(
      std::clamp(kComparedBytes / std::max<int64_t>(watch.bytes, 1), kFewestParts, kMostParts));
  for (const RangePart& part : CutRange(RangeSplit::kApart, n, grain, most, watch.seed)) {
    body(context, part.begin, part.end);
    if (!watch.found.empty()) continue;
    const std::vector<Clash> clashes = Compare(watch);
    if (!clashes.empty() && IsRace(watch, clashes, body, context, part)) {
      watch.found = RaceText(clashes[0], part, n);
    }
    Accept(watch);
  }
}

Status RaceWatch::Found() {
  const std::string& found = Watch().found;
  return found.empty() ? Status::Ok() : Status::Unsupported(found);
}

}  // namespace cudaforge
