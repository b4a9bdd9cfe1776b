#include "dispatch/kernel_on_trial.h"

#include <utility>

#include "base/own_work.h"

namespace cudaforge {

thread_local const KernelOnTrial* KernelOnTrial::innermost_ = nullptr;

KernelOnTrial::KernelOnTrial(RegionEntry* entry, std::unique_ptr<Winner> kernel)
    : entry_(entry),
      kernel_(Resolver::Get().Adopt(*entry, std::move(kernel))),
      outer_(std::exchange(innermost_, this)) {}

KernelOnTrial::~KernelOnTrial() { innermost_ = outer_; }

void KernelOnTrial::Promote(bool compiled, bool eager) {
  Resolver::Get().Promote(entry_, kernel_, compiled, eager);
}

const Winner* KernelOnTrial::WinnerOf(const RegionEntry& entry) {
  if (OwnWork::InForce()) {
    for (const KernelOnTrial* trial = innermost_; trial != nullptr; trial = trial->outer_) {
      if (trial->entry_ == &entry) return trial->kernel_;
    }
  }
  return entry.winner.load(std::memory_order_acquire);
}

}  // namespace cudaforge
