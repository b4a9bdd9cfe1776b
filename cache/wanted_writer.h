// WantedWriter: adds regions to a store's wanted list in its own thread, in batches. One write
// takes longer than thousands of calls that miss.
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

// Thread-safe. REQUIRES: used and destroyed in the process that made it, because a forked child
// lacks the thread. OfProcess makes one per process.
class WantedWriter {
 public:
  // `failed` is called with the error of each failed write, in the writing thread.
  explicit WantedWriter(std::function<void(const Status&)> failed);
  // As End.
  ~WantedWriter();
  WantedWriter(const WantedWriter&) = delete;
  WantedWriter& operator=(const WantedWriter&) = delete;

  // `store` is not null. If the system has no thread to give, and after End, the caller's thread
  // writes. It may wait for the cache's lock (KernelStore::AddWanted).
  void Add(std::shared_ptr<KernelStore> store, WantedRegion region);
  // Writes everything that was added, or waits until the thread has.
  void Flush();
  // Flushes and ends the thread, for the end of the process. If called several times, the first
  // call waits.
  void End();

 private:
  using Batch = std::map<std::shared_ptr<KernelStore>, std::vector<WantedRegion>>;
  void Work();

  const std::function<void(const Status&)> failed_;

  std::mutex writes_;  // held while a batch is written; taken before mutex_
  std::mutex mutex_;   // guards the members below
  std::condition_variable to_do_;
  Batch waiting_;
  bool ends_ = false;
  std::thread writer_;
};

}  // namespace cudaforge
