// AppendOnlyTable: finds entries by hash without a lock while others are added.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"

namespace cudaforge {

// 2^64 divided by the golden ratio. In a product with it, the high bits depend on all bits of the
// other factor (Knuth, The Art of Computer Programming, volume 3, 6.4).
inline constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15u;

// Hashes a value with little entropy in its low bits, such as an address.
inline size_t Spread(uint64_t value) { return value * kGoldenRatio >> 32; }

// Open addressing, at most half full. Entries are not owned and never removed: they must outlive
// the table. Find may be called in any thread at any time. It sees every entry inserted before the
// call. Insert must be called under a lock of the caller's.
template <typename Entry>
class AppendOnlyTable {
 public:
  // REQUIRES: a power of two.
  explicit AppendOnlyTable(size_t first_slots) { Grow(first_slots); }
  AppendOnlyTable(const AppendOnlyTable&) = delete;
  AppendOnlyTable& operator=(const AppendOnlyTable&) = delete;

  // Returns the entry with this hash for which `matches`(const Entry&) is true, or null. `matches`
  // may be called with entries of other hashes.
  template <typename Matches>
  Entry* Find(size_t hash, Matches matches) const {
    const Slots* slots = current_.load(std::memory_order_acquire);
    for (size_t i = hash;; ++i) {
      Entry* entry = slots->at[i & slots->mask].load(std::memory_order_acquire);
      if (entry == nullptr || matches(*entry)) return entry;
    }
  }

  // REQUIRES: the entry is not in the table.
  void Insert(size_t hash, Entry* entry) {
    entries_.emplace_back(hash, entry);
    if (entries_.size() * 2 > kept_.back()->mask + 1) {
      Grow((kept_.back()->mask + 1) * 2);
    } else {
      kept_.back()->Put(hash, entry);
    }
  }

 private:
  struct Slots {
    explicit Slots(size_t count)
        : mask(count - 1), at(std::make_unique<std::atomic<Entry*>[]>(count)) {}

    void Put(size_t hash, Entry* entry) {
      size_t i = hash;
      while (at[i & mask].load(std::memory_order_relaxed) != nullptr) ++i;
      at[i & mask].store(entry, std::memory_order_release);
    }

    const size_t mask;
    const std::unique_ptr<std::atomic<Entry*>[]> at;
  };

  void Grow(size_t count) {
    CF_CHECK(std::has_single_bit(count)) << count << " slots";
    auto grown = std::make_unique<Slots>(count);
    for (const auto& [hash, entry] : entries_) grown->Put(hash, entry);
    current_.store(grown.get(), std::memory_order_release);
    kept_.push_back(std::move(grown));  // older slots are kept too: a reader may be using them
  }

  std::atomic<const Slots*> current_{nullptr};
  std::vector<std::unique_ptr<Slots>> kept_;
  std::vector<std::pair<size_t, Entry*>> entries_;
};

}  // namespace cudaforge
