#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "llm/local_provider.h"
#include "llm/numbered_files.h"

namespace cudaforge {
namespace {

constexpr auto kPollTime = std::chrono::milliseconds(50);
constexpr double kSettleSeconds = 0.3;

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

// Waits for one file that another process writes.
class Letter {
 public:
  Letter(std::string path, size_t max_bytes) : path_(std::move(path)), max_bytes_(max_bytes) {}

  const std::string& path() const { return path_; }

  // Returns its bytes once it is complete, nullopt before. kCorruption: not a plain file. kTimeout:
  // too large.
  Result<std::optional<std::string>> Look() {
    struct stat now;
    if (lstat(path_.c_str(), &now) != 0) {
      since_.reset();
      if (errno == ENOENT) return std::optional<std::string>();
      return ErrnoStatus(path_, errno);
    }
    CF_RETURN_IF_ERROR(Check(now));
    if (!since_.has_value() || !SameFile(now, seen_)) {
      since_ = SteadySeconds();
      seen_ = now;
    }
    if (now.st_size == 0 || SteadySeconds() - *since_ < kSettleSeconds) {
      return std::optional<std::string>();
    }
    CF_ASSIGN_OR_RETURN(std::string bytes, Read());
    return std::optional(std::move(bytes));
  }

 private:
  Status Check(const struct stat& info) const {
    if (!S_ISREG(info.st_mode)) return Status::Corruption(path_ + " is not a plain file");
    if (info.st_size > static_cast<off_t>(max_bytes_)) return TooLarge();
    return Status::Ok();
  }
  Status TooLarge() const {
    return Status::Timeout(path_ + " is over the limit of " + std::to_string(max_bytes_) +
                           " bytes");
  }
  // Re-checks the opened file, because the name may now refer to another one.
  Result<std::string> Read() const {
    const UniqueFd fd(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat info;
    if (!fd.valid() || fstat(fd.get(), &info) != 0) return ErrnoStatus(path_, errno);
    CF_RETURN_IF_ERROR(Check(info));
    std::string bytes(max_bytes_ + 1, '\0');
    size_t size = 0;
    while (size < bytes.size()) {
      const ssize_t n = read(fd.get(), bytes.data() + size, bytes.size() - size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(path_, errno);
      if (n == 0) break;
      size += static_cast<size_t>(n);
    }
    if (size > max_bytes_) return TooLarge();
    bytes.resize(size);
    return bytes;
  }

  std::string path_;
  size_t max_bytes_;
  std::optional<double> since_;  // when it was first seen in this state
  struct stat seen_ = {};
};

class MailboxProvider : public Provider {
 public:
  MailboxProvider(const std::string& folder, std::vector<std::string> secrets)
      : name_("mailbox:" + folder), folder_(AbsolutePath(folder)), secrets_(std::move(secrets)) {}

  std::string name() const override { return name_; }
  bool is_metered() const override { return false; }

  Result<Reply> Complete(const LlmRequest& request, const Cancel& cancel,
                         const TextSink& on_text) override {
    const double start = SteadySeconds();
    const std::string role = "-" + std::string(AgentRoleName(request.role));
    CF_ASSIGN_OR_RETURN(
        const std::string number,
        WriteNumbered(folder_, role + ".request.json", ToJson(request).dump(1) + "\n", cancel));
    const std::string stem = folder_ + "/" + number + role + ".reply.";
    const size_t max_text = request.limits.max_reply_bytes;
    Letter json(stem + "json", MostJsonBytes(max_text));
    Letter text(stem + "txt", max_text);
    Result<Reply> reply = Status::Internal("no reply");
    while (true) {
      CF_ASSIGN_OR_RETURN(const std::optional<std::string> object, json.Look());
      if (object.has_value()) {
        reply = ReadReply(*object, json.path(), max_text, secrets_);
        break;
      }
      CF_ASSIGN_OR_RETURN(const std::optional<std::string> plain, text.Look());
      if (plain.has_value()) {
        reply = ReadText(*plain, text.path());
        break;
      }
      if (cancel.IsSet()) return Status::Cancelled(name() + ": cancelled");
      if (SteadySeconds() - start >= request.limits.total_s) {
        return Status::Timeout(name() + ": no reply in time to " + number + role + ".request.json");
      }
      std::this_thread::sleep_for(kPollTime);
    }
    CF_RETURN_IF_ERROR(reply.status());
    reply->attempts = 1;
    reply->seconds = SteadySeconds() - start;
    if (on_text) on_text(reply->content);
    return reply;
  }

 private:
  static Result<Reply> ReadText(const std::string& bytes, const std::string& path) {
    if (!IsUtf8(bytes)) return Status::Corruption(path + ": is not UTF-8");
    Reply reply;
    reply.content = bytes;
    return reply;
  }

  const std::string name_;
  const std::string folder_;
  const std::vector<std::string> secrets_;
};

}  // namespace

Result<std::unique_ptr<Provider>> MakeMailboxProvider(const std::string& folder,
                                                      std::vector<std::string> secrets) {
  CF_RETURN_IF_ERROR(MakeDirs(folder));
  return std::unique_ptr<Provider>(std::make_unique<MailboxProvider>(folder, std::move(secrets)));
}

}  // namespace cudaforge
