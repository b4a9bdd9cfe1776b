#include <map>
#include <mutex>
#include <utility>

#include "cache/database.h"

namespace cudaforge {
namespace {

struct Values final : Database {
  Result<std::string> Get(Family family, const std::string& key) const override {
    const auto found = all.find({family, key});
    return found == all.end() ? Result<std::string>(Status::NotFound(key)) : found->second;
  }
  Status Scan(Family family, const std::string& prefix,
              const std::function<bool(std::string_view, std::string_view)>& visit) const override {
    for (auto it = all.lower_bound({family, prefix}); it != all.end(); ++it) {
      const auto& [of, key] = it->first;
      if (of != family || !key.starts_with(prefix) || !visit(key, it->second)) break;
    }
    return Status::Ok();
  }

  std::map<std::pair<Family, std::string>, std::string> all;
};

class Memory final : public Storage {
 public:
  uint64_t Generation() const override {
    const std::lock_guard lock(mutex_);
    return generation_;
  }
  Result<std::shared_ptr<const Database>> OpenReader() const override {
    const std::lock_guard lock(mutex_);
    return std::shared_ptr<const Database>(values_);
  }
  Status Write(const MakeWrites& make, std::vector<std::string>* /*warnings*/) override {
    const std::lock_guard lock(mutex_);
    CF_ASSIGN_OR_RETURN(std::vector<DbWrite> writes, make(*values_));
    auto next = std::make_shared<Values>(*values_);  // readers keep the old one
    for (DbWrite& write : writes) {
      std::pair place{write.family, std::move(write.key)};
      if (write.value.has_value()) {
        next->all[std::move(place)] = *std::move(write.value);
      } else {
        next->all.erase(place);
      }
    }
    values_ = std::move(next);
    ++generation_;
    return Status::Ok();
  }
  std::string location() const override { return "memory"; }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Values> values_ = std::make_shared<Values>();
  uint64_t generation_ = 0;
};

}  // namespace

std::unique_ptr<KernelStore> MakeMemoryKernelStore() {
  return MakeKernelStore(std::make_unique<Memory>(), /*writable=*/true);
}

}  // namespace cudaforge
