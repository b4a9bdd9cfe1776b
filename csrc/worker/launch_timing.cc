#include "worker/launch_timing.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "base/random.h"

namespace cudaforge {
namespace {

constexpr int kRunsOfPreparing = 3;
constexpr int kRunsAsLeft = 2;                // on the output of the previous run
constexpr int kPairsInDoubt = 8;              // one run as left and one ordinary run each
constexpr double kSuspicious = 2;             // ratio of times
constexpr int64_t kBlock = 256;               // bytes
constexpr int64_t kPlaces = 32;               // blocks overwritten per buffer on a GPU
constexpr int64_t kWhole = int64_t{1} << 20;  // this much of scratch is overwritten completely

// Inverts one word in each block, which is enough to change the data.
void SpoilHost(unsigned char* data, int64_t bytes, SplitMix& random) {
  for (int64_t at = 0; at < bytes; at += kBlock) {
    const int64_t room = std::min(kBlock, bytes - at);
    const int64_t length = std::min<int64_t>(room, 8);
    const auto words = static_cast<uint64_t>(room / length);
    unsigned char* const word = data + at + static_cast<int64_t>(random.Below(words)) * length;
    for (int64_t i = 0; i < length; ++i) word[i] = static_cast<unsigned char>(~word[i]);
  }
}

// Writes random bytes over some blocks.
Status SpoilDevice(Target& target, unsigned char* data, int64_t bytes, SplitMix& random) {
  unsigned char block[kBlock];
  for (int64_t place = 0; place < kPlaces; ++place) {
    for (unsigned char& byte : block) byte = static_cast<unsigned char>(random.Next());
    const int64_t length = std::min(kBlock, bytes);
    const auto at = static_cast<int64_t>(random.Below(static_cast<uint64_t>(bytes - length + 1)));
    CF_RETURN_IF_ERROR(target.CopyIn(data + at, block, length));
    if (length == bytes) break;
  }
  return Status::Ok();
}

Status Spoil(Target& target, const LaunchBuffers& launch, bool host, SplitMix& random,
             std::vector<uint64_t>& words) {
  for (const LaunchBuffer& buffer : launch.all) {
    if (buffer.is_input || buffer.is_prepared || buffer.bytes == 0) continue;
    auto* const data = static_cast<unsigned char*>(buffer.data);
    if (host) {
      SpoilHost(data, buffer.bytes, random);
    } else {
      CF_RETURN_IF_ERROR(SpoilDevice(target, data, buffer.bytes, random));
    }
    if (!buffer.is_scratch) continue;
    const int64_t whole = std::min(buffer.bytes, kWhole);
    for (int64_t i = 0; i < (whole + 7) / 8; ++i) words[static_cast<size_t>(i)] = random.Next();
    CF_RETURN_IF_ERROR(target.CopyIn(data, words.data(), whole));
  }
  return Status::Ok();
}

// The fastest time of preparing the first launch's operands. Prepares the others too.
Result<double> TimePreparing(Target& target, const TimedLaunches& launches) {
  double fastest = std::numeric_limits<double>::infinity();
  for (size_t which = 0; which < launches.bound.size(); ++which) {
    const auto enqueue = [&] { return launches.bound[which]->Prepare(target.launch_context()); };
    for (int i = 0; i < (which == 0 ? kRunsOfPreparing : 1); ++i) {
      CF_ASSIGN_OR_RETURN(const double ns, target.TimeOnce(enqueue));
      if (which == 0) fastest = std::min(fastest, ns);
    }
  }
  return fastest;
}

// Compares runs of launch `which` on its last outputs with ordinary runs; `fastest`: of the latter.
// Noise alone does not make half of the former much faster than all others.
template <typename Run>
Status CompareAsLeft(const Run& run, size_t which, double fastest) {
  double quickest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRunsAsLeft; ++i) {
    CF_ASSIGN_OR_RETURN(const double ns, run(which, true));
    quickest = std::min(quickest, ns);
  }
  int quick = 0, slow = 0;
  while (quickest * kSuspicious < fastest && slow < kPairsInDoubt / 2 &&
         quick + slow < kPairsInDoubt) {
    CF_ASSIGN_OR_RETURN(const double ns, run(which, false));
    fastest = std::min(fastest, ns);
    CF_ASSIGN_OR_RETURN(const double as_left, run(which, true));
    ++(as_left * kSuspicious < fastest ? quick : slow);
  }
  if (quick <= kPairsInDoubt / 2) return Status::Ok();
  return Status::Unsupported(
      "does less work if its outputs and scratch buffers are unchanged since its last run: " +
      std::to_string(static_cast<int64_t>(quickest)) + " ns, otherwise at least " +
      std::to_string(static_cast<int64_t>(fastest)) + " ns");
}

}  // namespace

Result<std::vector<std::vector<WarmBytes>>> WarmOf(const Json& body,
                                                   const std::vector<LaunchBuffers>& launches) {
  CF_ASSIGN_OR_RETURN(const Json indices, JsonField(body, "warm_inputs"));
  if (!indices.is_array()) return Status::InvalidArgument("warm_inputs: expected an array");
  std::vector<std::vector<WarmBytes>> warm(launches.size());
  for (const Json& entry : indices) {
    if (!entry.is_number_unsigned()) return Status::InvalidArgument("warm_inputs: an index");
    const auto index = entry.get<uint64_t>();
    for (size_t l = 0; l < launches.size(); ++l) {
      if (index >= launches[l].inputs.size()) {
        return Status::InvalidArgument("warm_inputs: no such input");
      }
      const LaunchBuffer& input = launches[l].all[index];  // inputs are first
      warm[l].push_back({input.data, input.bytes});
    }
  }
  return warm;
}

Result<LaunchTimes> TimeLaunches(Target& target, const TimedLaunches& launches,
                                 const TimingPlan& plan, uint64_t seed) {
  const bool host = target.launch_context().parallel_for != nullptr;
  SplitMix random(seed);
  std::vector<uint64_t> words(kWhole / 8);
  LaunchTimes found;
  if (launches.prepares) {
    CF_ASSIGN_OR_RETURN(found.prepare_ns, TimePreparing(target, launches));
  }
  const auto run = [&](size_t which, bool as_left) -> Result<double> {
    if (!as_left) {
      CF_RETURN_IF_ERROR(Spoil(target, launches.buffers[which], host, random, words));
    }
    const auto enqueue = [&] { return launches.bound[which]->Run(target.launch_context()); };
    CF_ASSIGN_OR_RETURN(const double ns, target.TimeWarm(enqueue, launches.warm[which]));
    if (!(ns > 0)) return Status::Unsupported("a run of it took no time, by the clock");
    found.total_ns += ns;
    return ns;
  };
  std::vector<double> times;
  times.reserve(static_cast<size_t>(plan.samples));
  size_t which = 0;
  double fastest = std::numeric_limits<double>::infinity();
  bool abandoned = false;
  for (int i = 0; i < plan.samples; ++i) {
    which = static_cast<size_t>(i) % launches.bound.size();
    CF_ASSIGN_OR_RETURN(const double ns, run(which, false));
    times.push_back(ns);
    fastest = std::min(fastest, ns);
    if (i + 1 >= plan.least && found.total_ns >= plan.total_ns) break;
    abandoned = i == 1 && fastest > plan.abandon_ns;
    if (abandoned) break;
  }
  if (!abandoned) CF_RETURN_IF_ERROR(CompareAsLeft(run, which, fastest));
  auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  found.median_ns = *middle;
  return found;
}

}  // namespace cudaforge
