#include "cache/wanted_writer.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

namespace cudaforge {
namespace {

constexpr auto kBatchDelay = std::chrono::milliseconds(500);  // a write takes up to 100

}  // namespace

WantedWriter::WantedWriter(std::function<void(const Status&)> failed)
    : failed_(std::move(failed)) {}

WantedWriter::~WantedWriter() { End(); }

void WantedWriter::End() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ends_, true)) return;
  }
  to_do_.notify_all();
  if (writer_.joinable()) writer_.join();
}

void WantedWriter::Add(std::shared_ptr<KernelStore> store, WantedRegion region) {
  std::unique_lock lock(mutex_);
  if (!HasThread()) {
    lock.unlock();
    Batch batch;
    batch[std::move(store)].push_back(std::move(region));
    return Write(batch);
  }
  waiting_[std::move(store)].push_back(std::move(region));
  ++added_;
  to_do_.notify_all();
}

bool WantedWriter::HasThread() {
  if (ends_) return false;
  try {
    if (!writer_.joinable()) writer_ = std::thread([this] { Work(); });
  } catch (const std::system_error&) {  // the system has no more threads for this process
    return false;
  }
  return true;
}

void WantedWriter::Flush() {
  std::unique_lock lock(mutex_);
  const uint64_t added = added_;
  hurried_ = std::max(hurried_, added);
  to_do_.notify_all();
  done_.wait(lock, [&] { return written_ >= added; });
}

void WantedWriter::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    to_do_.wait(lock, [this] { return !waiting_.empty() || ends_; });
    if (waiting_.empty()) return;
    to_do_.wait_for(lock, kBatchDelay, [this] { return hurried_ > written_ || ends_; });
    const Batch batch = std::exchange(waiting_, {});
    const uint64_t added = added_;
    lock.unlock();
    Write(batch);
    lock.lock();
    written_ = added;
    done_.notify_all();
  }
}

void WantedWriter::Write(const Batch& batch) const {
  for (const auto& [store, regions] : batch) {
    if (const Status added = store->AddWanted(regions); !added.ok()) failed_(added);
  }
}

}  // namespace cudaforge
