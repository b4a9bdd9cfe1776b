// WantedWriter: puts regions on a store's wanted list from a thread of its own, those of a short
// while in one write, as a write takes longer than thousands of the calls that miss.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "cache/kernel_store.h"

namespace cudaforge {

// Thread-safe. REQUIRES: used, and destroyed, in the process that made it, which has its thread;
// OfProcess gives each process one.
class WantedWriter {
 public:
  // `failed` is told of a write that failed, in the thread that wrote.
  explicit WantedWriter(std::function<void(const Status&)> failed);
  // As End.
  ~WantedWriter();
  WantedWriter(const WantedWriter&) = delete;
  WantedWriter& operator=(const WantedWriter&) = delete;

  // `store` is not null. Where the system has no thread to give, and after End, the caller's thread
  // writes: that may wait for the cache's lock (KernelStore::AddWanted).
  void Add(std::shared_ptr<KernelStore> store, WantedRegion region);
  // Writes what was added before, or waits for the thread that does.
  void Flush();
  // Writes what was added and ends the thread: the process ends. Of several callers the first
  // waits for that.
  void End();

 private:
  using Batch = std::map<std::shared_ptr<KernelStore>, std::vector<WantedRegion>>;
  void Work();

  const std::function<void(const Status&)> failed_;

  std::mutex writes_;  // held while a batch is written; taken before mutex_
  std::mutex mutex_;   // guards what follows
  std::condition_variable to_do_;
  Batch waiting_;
  bool ends_ = false;
  std::thread writer_;
};

}  // namespace cudaforge
