#include "dispatch/resolver.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/append_only_table.h"
#include "base/fork.h"
#include "base/integers.h"
#include "base/own_work.h"
#include "base/sha256.h"
#include "signature/aten_numerics.h"

namespace cudaforge {
namespace {

constexpr size_t kFirstSlots = 256;

Result<std::unique_ptr<RegionEntry>> MakeEntry(int64_t id, std::string_view text,
                                               int device_index) {
  CF_ASSIGN_OR_RETURN(OpSignature signature, OpSignature::Parse(text));
  auto entry = std::make_unique<RegionEntry>();
  entry->key = signature.Key();
  if (RegionId(entry->key) != id) return OtherRegion(id);
  CF_ASSIGN_OR_RETURN(entry->program, RegionProgram::Create(signature));
  entry->id = id;
  entry->device_index = device_index;
  entry->contract = InputContract(signature, device_index);
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    entry->output_dtypes.push_back(ToScalarType(signature.output_spec(i).dtype));
  }
  entry->labels = FindLabels(signature);
  entry->matrix_numerics = MatrixNumericsWord(signature.numerics);
  entry->signature = std::move(signature);
  return entry;
}

// Prepares constraints and scratch sizes for the hot path.
void Prepare(const OpSignature& signature, Winner* winner) {
  winner->alignment_masks.clear();
  for (const TensorSpec& input : signature.inputs) {
    winner->alignment_masks.push_back(
        static_cast<uintptr_t>(std::max<int64_t>(input.alignment, 1)) - 1);
  }
  for (const Constraint& constraint : winner->constraints) {
    const auto index = static_cast<size_t>(constraint.index);
    CF_CHECK(constraint.index >= 0 && index < winner->alignment_masks.size() &&
             IsPowerOfTwo(constraint.value))
        << "constraint on input " << constraint.index;
    winner->alignment_masks[index] |= static_cast<uintptr_t>(constraint.value) - 1;
  }
  winner->scratch_offsets.clear();
  winner->scratch_bytes = winner->prepared_bytes = 0;
  const std::span<const int64_t> bytes = winner->executable->scratch_bytes();
  const size_t prepared = winner->executable->prepared_count();
  for (size_t i = 0; i < bytes.size(); ++i) {
    int64_t& sum = i < bytes.size() - prepared ? winner->scratch_bytes : winner->prepared_bytes;
    winner->scratch_offsets.push_back(sum);
    sum += RoundUp(bytes[i], kScratchAlignment);
  }
  winner->frozen_inputs.clear();
  for (size_t i = 0; prepared > 0 && i < signature.inputs.size(); ++i) {
    if (signature.inputs[i].frozen) winner->frozen_inputs.push_back(i);
  }
}

// Ids are bits of a SHA-256, which need no mixing.
size_t Hash(int64_t id, int device_index) {
  return static_cast<size_t>(id) + Spread(static_cast<uint64_t>(device_index));
}

}  // namespace

struct Resolver::Impl {
  AppendOnlyTable<RegionEntry> table{kFirstSlots};  // inserted under the mutex
  std::atomic<bool> has_loader{false};
  std::array<std::atomic<int64_t>, std::size(kFallbackNames)> fallbacks{};

  // Guards everything below. Never held while foreign code runs: a fork waits for it.
  std::mutex mutex;
  std::vector<std::unique_ptr<RegionEntry>> entries;
  std::vector<std::unique_ptr<const Winner>> winners;
  LoadWinner load;
  std::function<void(const RegionEntry&)> on_unaligned;
  std::function<void(const std::string&)> sink;
};

Resolver::Resolver() : impl_(new Impl) { HoldAcrossForks<Resolver>(&impl_->mutex); }

Resolver& Resolver::Get() {
  static Resolver* resolver = new Resolver;
  return *resolver;
}

void Resolver::SetLoader(LoadWinner load) {
  std::lock_guard lock(impl_->mutex);
  impl_->load = std::move(load);
  impl_->has_loader.store(impl_->load != nullptr, std::memory_order_release);
}

void Resolver::RetryMissing() {
  std::lock_guard lock(impl_->mutex);
  for (const auto& entry : impl_->entries) {
    if (entry->winner.load() != nullptr || entry->quarantined.load()) continue;
    entry->asked.store(false);
  }
}

RegionEntry* Resolver::Find(int64_t id, int device_index) const {
  device_index = std::max(device_index, 0);
  return impl_->table.Find(Hash(id, device_index), [=](const RegionEntry& entry) {
    return entry.id == id && entry.device_index == device_index;
  });
}

bool Resolver::WouldLoad(const RegionEntry& entry) const {
  return !entry.asked.load(std::memory_order_acquire) &&
         impl_->has_loader.load(std::memory_order_acquire);
}

Result<RegionEntry*> Resolver::Resolve(int64_t id, std::string_view canonical_signature,
                                       int device_index, bool may_load) {
  device_index = std::max(device_index, 0);
  RegionEntry* entry = Find(id, device_index);
  if (entry == nullptr) {
    // Made outside the lock, because a fork waits for that. If two threads make it, one is dropped.
    CF_ASSIGN_OR_RETURN(std::unique_ptr<RegionEntry> made,
                        MakeEntry(id, canonical_signature, device_index));
    std::lock_guard lock(impl_->mutex);
    entry = Find(id, device_index);
    if (entry == nullptr) {
      entry = made.get();
      impl_->entries.push_back(std::move(made));
      impl_->table.Insert(Hash(id, device_index), entry);
    }
  } else if (Sha256Hex(canonical_signature) != entry->key) {
    return OtherRegion(id);
  }
  if (may_load && WouldLoad(*entry)) AskLoader(entry);
  return entry;
}

void Resolver::AskLoader(RegionEntry* entry) {
  if (entry->asked.exchange(true)) return;
  LoadWinner load;
  {
    std::lock_guard lock(impl_->mutex);
    load = impl_->load;
  }
  if (load == nullptr) return;
  const std::string what =
      "cudaforge: no kernel could be loaded for " + entry->signature.Describe() + ": ";
  try {
    auto winner = load(*entry);
    if (!winner.ok()) {
      Warn(what + winner.status().ToString());
    } else if (*winner != nullptr) {
      Install(entry, std::move(winner).value());
    }
  } catch (const std::exception& error) {
    Warn(what + error.what());
  }
}

RegionEntry* Resolver::Unaligned(RegionEntry* entry, bool may_load) {
  RegionEntry* found = entry->unaligned.load(std::memory_order_acquire);
  if (found == entry) return nullptr;
  if (found != nullptr && !(may_load && WouldLoad(*found))) return found;
  OpSignature signature = entry->signature;
  for (TensorSpec& input : signature.inputs) input.alignment = DTypeSize(input.dtype);
  const std::string key = signature.Key();
  const auto other = Resolve(RegionId(key), signature.Canonical(), entry->device_index, may_load);
  if (!other.ok() || *other == entry) {  // an error: its id is in use
    entry->unaligned.store(entry, std::memory_order_release);
    return nullptr;
  }
  entry->unaligned.store(*other, std::memory_order_release);
  if (may_load && (*other)->winner.load() == nullptr) {
    std::function<void(const RegionEntry&)> notify;
    {
      std::lock_guard lock(impl_->mutex);
      notify = impl_->on_unaligned;
    }
    if (notify) notify(**other);
  }
  return *other;
}

void Resolver::SetOnUnaligned(std::function<void(const RegionEntry&)> notify) {
  std::lock_guard lock(impl_->mutex);
  impl_->on_unaligned = std::move(notify);
}

const Winner* Resolver::Adopt(const RegionEntry& entry, std::unique_ptr<Winner> winner) {
  CF_CHECK(winner->executable != nullptr) << "a winner without an executable";
  Prepare(entry.signature, winner.get());
  std::lock_guard lock(impl_->mutex);
  return impl_->winners.emplace_back(std::move(winner)).get();
}

void Resolver::Promote(RegionEntry* entry, const Winner* adopted, bool compiled, bool eager) {
  std::lock_guard lock(impl_->mutex);
  if (entry->quarantined.load(std::memory_order_relaxed)) return;
  if (compiled) entry->winner.store(adopted, std::memory_order_release);
  if (eager) entry->for_eager.store(adopted, std::memory_order_release);
}

void Resolver::Install(RegionEntry* entry, std::unique_ptr<Winner> winner) {
  if (winner == nullptr) return Promote(entry, nullptr);
  entry->saved_ns = winner->saved_ns;
  const bool compiled = winner->compiled, eager = winner->eager;
  Promote(entry, Adopt(*entry, std::move(winner)), compiled, eager);
}

void Resolver::Quarantine(RegionEntry* entry, const std::string& why) {
  {
    std::lock_guard lock(impl_->mutex);
    if (entry->quarantined.exchange(true)) return;
    entry->winner.store(nullptr, std::memory_order_release);
    entry->for_eager.store(nullptr, std::memory_order_release);
    entry->quarantined_for = why;
  }
  Warn("cudaforge: the kernel of " + entry->signature.Describe() +
       " is disabled, and PyTorch runs instead: " + why);
}

void Resolver::CountFallback(RegionEntry* entry, Fallback reason) {
  if (OwnWork::InForce()) return;
  entry->fallbacks.fetch_add(1, std::memory_order_relaxed);
  impl_->fallbacks[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

Json Resolver::Stats() const {
  std::lock_guard lock(impl_->mutex);
  int64_t hits = 0;
  int64_t unserved = 0;
  double saved_ns = 0;
  Json regions = Json::array();
  for (const auto& entry : impl_->entries) {
    const double saved = static_cast<double>(entry->hits.load()) * entry->saved_ns.load();
    regions.push_back(
        {{"key", entry->key},
         {"describe", entry->signature.Describe()},
         {"device", entry->contract.device().str()},
         {"hits", entry->hits.load()},
         {"unserved", entry->unserved.load()},
         {"fallbacks", entry->fallbacks.load()},
         {"own_hits", entry->own_hits.load()},
         {"saved_ns", saved},
         {"quarantined", entry->quarantined ? Json(entry->quarantined_for) : Json(nullptr)}});
    hits += entry->hits.load();
    unserved += entry->unserved.load();
    saved_ns += saved;
  }
  Json fallbacks = Json::object();
  for (size_t reason = 0; reason < std::size(kFallbackNames); ++reason) {
    const int64_t count = impl_->fallbacks[reason].load();
    if (count > 0) fallbacks[kFallbackNames[reason]] = count;
  }
  return {{"hits", hits},
          {"unserved", unserved},
          {"fallbacks", std::move(fallbacks)},
          {"saved_ns", saved_ns},
          {"regions", std::move(regions)}};
}

void Resolver::ResetStats() {
  std::lock_guard lock(impl_->mutex);
  for (auto& count : impl_->fallbacks) count = 0;
  for (const auto& entry : impl_->entries) {
    entry->hits = 0;
    entry->unserved = 0;
    entry->fallbacks = 0;
  }
}

void Resolver::SetWarningSink(std::function<void(const std::string&)> sink) {
  std::lock_guard lock(impl_->mutex);
  impl_->sink = std::move(sink);
}

void Resolver::Warn(const std::string& message) {
  std::function<void(const std::string&)> sink;
  {
    std::lock_guard lock(impl_->mutex);
    sink = impl_->sink;
  }
  if (sink) {
    sink(message);
  } else {
    TORCH_WARN(message);
  }
}

}  // namespace cudaforge
