#include "dispatch/prepared_forms.h"

#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "dispatch/cuda_driver.h"
#include "dispatch/prepared_form.h"

namespace cudaforge {
namespace {

constexpr int64_t kShareOfMemory = 10;
constexpr int kMostShortLived = 16;

}  // namespace

struct PreparedForms::Impl {
  using FormPtr = std::shared_ptr<PreparedForm>;
  using Forms = std::unordered_map<FormKey, FormPtr, FormKey::Hash>;

  std::atomic<int64_t> made{0}, per_call{0};

  // Guards everything below. Not held while anything is prepared or freed: a fork waits for it.
  mutable std::mutex mutex;
  Forms forms;
  std::vector<FormPtr> pinned;   // of storages that died
  std::map<int, int64_t> bytes;  // by device index; -1: the CPU
  // Forms that were used once at most. A caller with many gives a new copy of a weight each time.
  std::unordered_map<const Winner*, int> short_lived;
  int64_t limit = -1;

  int64_t LimitOf(c10::Device device) const {
    return limit >= 0 ? limit : MemoryOf(device) / kShareOfMemory;
  }

  Forms::iterator Remove(Forms::iterator at, std::vector<FormPtr>* removed) {
    const FormPtr& form = at->second;
    if (form->pinned) {
      pinned.push_back(form);
    } else {
      bytes[form->device.index()] -= form->winner->prepared_bytes;
      if (form->uses < 2) ++short_lived[form->winner];
      removed->push_back(form);
    }
    return forms.erase(at);
  }

  void RemoveDead(std::vector<FormPtr>* removed) {
    for (auto at = forms.begin(); at != forms.end();) {
      at = at->second->IsDead() && at->second->state != PreparedForm::State::kMaking
               ? Remove(at, removed)
               : std::next(at);
    }
  }

  // Returns the form to make now, or null. `ready`: takes one that needs no making.
  FormPtr Take(const RegionEntry& entry, const Winner& winner, const TensorPointers& inputs,
               std::span<void* const> pointers, bool capturing, FormPtr* ready,
               std::vector<FormPtr>* removed) {
    FormKey key(winner, pointers);
    const std::lock_guard lock(mutex);
    auto found = forms.find(key);
    if (found != forms.end() && found->second->HasStorages(inputs)) {
      const FormPtr& form = found->second;
      if (form->state == PreparedForm::State::kReady && form->HasVersions(inputs)) {
        ++form->uses;
        form->pinned = form->pinned || capturing;
        *ready = form;
        return nullptr;
      }
      if (form->state == PreparedForm::State::kMaking || capturing) return nullptr;
      form->state = PreparedForm::State::kMaking;
      return form;
    }
    if (capturing) return nullptr;
    if (found != forms.end()) Remove(found, removed);  // of a storage that died
    RemoveDead(removed);
    int64_t& used = bytes[entry.contract.device().index()];
    if (used + winner.prepared_bytes > LimitOf(entry.contract.device())) return nullptr;
    if (const auto wasted = short_lived.find(&winner);
        wasted != short_lived.end() && wasted->second > kMostShortLived) {
      return nullptr;
    }
    FormPtr form = PreparedForm::Of(entry, winner, inputs, pointers);
    form->state = PreparedForm::State::kMaking;
    used += winner.prepared_bytes;
    forms.emplace(std::move(key), form);
    return form;
  }

  // After an attempt to fill it. Returns true if the form may be used.
  bool Settle(const FormPtr& form, bool filled) {
    const std::lock_guard lock(mutex);
    const bool good = filled && !std::exchange(form->changed, false);
    form->state = good ? PreparedForm::State::kReady : PreparedForm::State::kStale;
    if (good) ++form->uses;
    return good;
  }
};

PreparedForms::PreparedForms() : impl_(new Impl) { HoldAcrossForks<PreparedForms>(&impl_->mutex); }

PreparedForms& PreparedForms::Get() {
  static auto* const forms = new PreparedForms;
  return *forms;
}

Result<std::shared_ptr<void>> PreparedForms::Find(const RegionEntry& entry, const Winner& winner,
                                                  const TensorPointers& inputs,
                                                  std::span<void* const> pointers) {
  using FormPtr = Impl::FormPtr;
  const auto memory = [](const FormPtr& form) {
    return std::shared_ptr<void>(form, form->memory.data());
  };
  const c10::Device device = entry.contract.device();
  FormPtr ready;
  std::vector<FormPtr> removed;  // freed after the lock
  const FormPtr form =
      impl_->Take(entry, winner, inputs, pointers, IsCapturing(device), &ready, &removed);
  if (ready != nullptr) return memory(ready);
  if (form == nullptr) {
    impl_->per_call.fetch_add(1, std::memory_order_relaxed);
    return std::shared_ptr<void>();
  }
  form->TakeVersions(inputs);  // before the values are read: a later change is then noticed
  const Status filled = form->Fill(/*whole_device=*/false);
  const bool good = impl_->Settle(form, filled.ok());
  if (!filled.ok() && filled.code() != StatusCode::kNoMemory) return filled;
  if (good) {
    impl_->made.fetch_add(1, std::memory_order_relaxed);
    return memory(form);
  }
  impl_->per_call.fetch_add(1, std::memory_order_relaxed);
  return std::shared_ptr<void>();
}

Result<int64_t> PreparedForms::WeightsChanged() {
  std::vector<Impl::FormPtr> forms, removed;
  {
    const std::lock_guard lock(impl_->mutex);
    for (const auto& [key, form] : impl_->forms) {
      if (IsCapturing(form->device)) {
        return Status::Unavailable("weights_changed() was called while a CUDA graph is captured");
      }
    }
    impl_->RemoveDead(&removed);
    for (const auto& [key, form] : impl_->forms) {
      form->changed = form->state == PreparedForm::State::kMaking;
      if (form->changed) continue;
      form->state = PreparedForm::State::kMaking;
      forms.push_back(form);
    }
  }
  Status failed;
  int64_t made = 0;
  for (const Impl::FormPtr& form : forms) {
    std::vector<c10::intrusive_ptr<c10::StorageImpl>> alive;
    bool there = true;
    for (const FrozenInput& input : form->inputs) {
      alive.push_back(input.storage.lock());
      there = there && alive.back() != nullptr && alive.back()->data() == input.base;
    }
    const Status filled =
        there ? form->Fill(/*whole_device=*/true) : Status::NotFound("its weight is gone");
    impl_->Settle(form, filled.ok());
    if (filled.ok()) ++made;
    if (there && !filled.ok()) failed = filled;
  }
  impl_->made.fetch_add(made, std::memory_order_relaxed);
  if (!failed.ok()) return failed;
  return made;
}

void PreparedForms::SetLimit(int64_t bytes) {
  const std::lock_guard lock(impl_->mutex);
  impl_->limit = bytes;
}

Json PreparedForms::Stats() const {
  const std::lock_guard lock(impl_->mutex);
  int64_t bytes = 0;
  for (const auto& [device, used] : impl_->bytes) bytes += used;
  return {{"kept", impl_->forms.size() + impl_->pinned.size()},
          {"bytes", bytes},
          {"made", impl_->made.load()},
          {"per_call", impl_->per_call.load()}};
}

void PreparedForms::ResetStats() {
  impl_->made = 0;
  impl_->per_call = 0;
}

}  // namespace cudaforge
