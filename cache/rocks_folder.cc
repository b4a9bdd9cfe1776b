#include "cache/rocks_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <thread>

#include "base/bytes.h"
#include "base/file.h"

namespace cudaforge {
namespace {

constexpr int kLockTimeoutMs = 60'000;

// To a writer, a missing folder is one that could not be made.
Status AsIoError(const Status& status) {
  return status.code() == StatusCode::kNotFound ? Status::IoError(status.message()) : status;
}

}  // namespace

Status RocksFolder::Check() const {
  struct stat info;
  for (const std::string& folder : {path_, db_path_}) {
    if (stat(folder.c_str(), &info) != 0) {
      return errno == ENOENT ? Status::Ok() : ErrnoStatus(folder, errno);
    }
    if (!S_ISDIR(info.st_mode)) return Status::IoError(folder + ": a file is in the way");
  }
  return Status::Ok();
}

uint64_t RocksFolder::Generation() const {
  UniqueFd fd(open((path_ + "/generation").c_str(), O_RDONLY | O_CLOEXEC));
  char bytes[8] = {};
  if (!fd.valid() || pread(fd.get(), bytes, sizeof(bytes), 0) != sizeof(bytes)) return 0;
  return LittleEndianAt<uint64_t>(std::string_view(bytes, sizeof(bytes)), 0);
}

Result<std::shared_ptr<const Database>> RocksFolder::OpenReader() const {
  if (!PathExists(db_path_)) return Status::NotFound(db_path_);
  auto reader = RocksDb::OpenReader(db_path_);
  // Retried, because a concurrent writer's compaction may remove files between two steps of an
  // open.
  for (int wait_ms : {2, 10, 30}) {
    if (reader.ok() || reader.status().code() == StatusCode::kUnsupported) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    reader = RocksDb::OpenReader(db_path_);
  }
  CF_RETURN_IF_ERROR(reader.status());
  return std::shared_ptr<const Database>(std::move(reader).value());
}

Status RocksFolder::Write(const MakeWrites& make, std::vector<std::string>* warnings) {
  CF_RETURN_IF_ERROR(AsIoError(MakeDirs(path_)));
  CF_RETURN_IF_ERROR(Check());
  auto lock = FileLock::Acquire(path_ + "/lock", kLockTimeoutMs);
  if (!lock.ok()) return AsIoError(lock.status());
  if (!PathExists(db_path_)) CF_RETURN_IF_ERROR(CreateFresh());
  Status status = Session(make);
  if (status.code() == StatusCode::kCorruption) {
    CF_ASSIGN_OR_RETURN(const std::string aside, MoveAside());
    warnings->push_back("the cache database " + db_path_ + " was damaged (" + status.message() +
                        "); moved to " + aside + ", starting with an empty one");
    CF_RETURN_IF_ERROR(CreateFresh());
    status = Session(make);
  }
  CF_RETURN_IF_ERROR(status);
  Status counted = NextGeneration();
  if (!counted.ok()) {
    warnings->push_back("other processes may not notice a change: " + counted.message());
  }
  return Status::Ok();
}

Status RocksFolder::Session(const MakeWrites& make) const {
  // Opens for reading first, to leave a newer version's database unchanged.
  CF_RETURN_IF_ERROR(RocksDb::OpenReader(db_path_).status());
  CF_ASSIGN_OR_RETURN(auto writer, RocksDb::OpenWriter(db_path_));
  CF_ASSIGN_OR_RETURN(const std::vector<DbWrite> writes, make(*writer));
  return writer->Write(writes);
}

Status RocksFolder::CreateFresh() const {
  // Created elsewhere and renamed, so that no reader sees an incomplete database.
  const std::string fresh = db_path_ + ".new";
  std::error_code failed;
  std::filesystem::remove_all(fresh,
                              failed);  // of a writer that was killed here; it is empty
  Status status = RocksDb::Create(fresh);
  if (status.ok() && rename(fresh.c_str(), db_path_.c_str()) != 0) {
    status = ErrnoStatus(db_path_, errno);
  }
  return AsIoError(status);
}

Result<std::string> RocksFolder::MoveAside() const {
  std::string aside;
  for (int n = 1; aside.empty() || PathExists(aside); ++n) {
    aside = db_path_ + ".damaged-" + std::to_string(n);
  }
  if (rename(db_path_.c_str(), aside.c_str()) != 0) {
    return AsIoError(ErrnoStatus(db_path_, errno));
  }
  return aside;
}

Status RocksFolder::NextGeneration() const {
  // Eight bytes in place, so readers see the old or the new number.
  const std::string path = path_ + "/generation";
  std::string bytes;
  AppendLittleEndian(&bytes, Generation() + 1);
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus(path, errno);
  const ssize_t written = pwrite(fd.get(), bytes.data(), bytes.size(), 0);
  return written == static_cast<ssize_t>(bytes.size()) ? Status::Ok() : ErrnoStatus(path, errno);
}

}  // namespace cudaforge
