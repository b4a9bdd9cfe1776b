#include "cache/wanted_writer.h"

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
  waiting_[std::move(store)].push_back(std::move(region));
  bool at_once = ends_;
  try {
    if (!at_once && !writer_.joinable()) writer_ = std::thread([this] { Work(); });
  } catch (const std::system_error&) {  // the system has no thread for this process
    at_once = true;
  }
  lock.unlock();
  if (at_once) Flush();
  to_do_.notify_all();
}

void WantedWriter::Flush() {
  const std::lock_guard writes(writes_);
  Batch batch;
  {
    const std::lock_guard lock(mutex_);
    batch.swap(waiting_);
  }
  for (const auto& [store, regions] : batch) {
    if (const Status added = store->AddWanted(regions); !added.ok()) failed_(added);
  }
}

void WantedWriter::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    to_do_.wait(lock, [this] { return !waiting_.empty() || ends_; });
    to_do_.wait_for(lock, kBatchDelay, [this] { return ends_; });
    if (waiting_.empty() && ends_) return;
    lock.unlock();
    Flush();
    lock.lock();
  }
}

}  // namespace cudaforge
