#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/clock.h"
#include "base/json.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "llm/local_provider.h"
#include "llm/secrets.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxLastWords = 500;  // of the last line of a program's standard error
constexpr size_t kKeptErrors = 4096;   // searched for keys

// Removes keys from the last kKeptErrors bytes of standard error, also a key whose start is cut
// off.
std::string ErrorsWithoutKeys(const std::string& errors, const std::vector<std::string>& secrets) {
  std::string text = WithoutKeys(errors, secrets);
  if (errors.size() < kKeptErrors) return text;
  size_t longest = 0;
  for (const std::string& secret : secrets) longest = std::max(longest, secret.size());
  return text.substr(std::min(text.size(), longest));
}

// The last non-empty line, which usually says why a program failed.
std::string LastWords(std::string_view errors) {
  const size_t end = errors.find_last_not_of(" \t\r\n");
  if (end == std::string_view::npos) return "";
  errors = errors.substr(0, end + 1);
  errors.remove_prefix(errors.rfind('\n') + 1);  // npos + 1 is 0
  return ": " + Printable(errors, kMaxLastWords);
}

// Where a program of this name is searched.
std::string LookedFor(const std::string& program) {
  if (program.find('/') == std::string::npos) return " (looked for on PATH)";
  if (program.starts_with('/')) return "";
  std::error_code error;
  const std::string folder = std::filesystem::current_path(error).string();
  return " (looked for from the current folder, " + Printable(folder, 500) + ")";
}

class CommandProvider : public Provider {
 public:
  CommandProvider(std::vector<std::string> argv, std::vector<std::string> secrets)
      : argv_(std::move(argv)), secrets_(std::move(secrets)) {}

  // Without the folder, because records with this name go to other machines.
  std::string name() const override {
    return "command:" + argv_[0].substr(argv_[0].rfind('/') + 1);
  }

  Result<Reply> Complete(const LlmRequest& request, const Cancel& cancel,
                         const TextSink& on_text) override {
    const double start = SteadySeconds();
    const std::string input = CanonicalJson(ToJson(request)) + "\n";
    ProcessOptions options;
    options.input = input;
    options.timeout_ms =
        static_cast<int>(std::clamp(request.limits.total_s * 1000, 1.0, 2'000'000'000.0));
    options.max_output = MostJsonBytes(request.limits.max_reply_bytes);
    options.keep_errors = kKeptErrors;
    options.cancel = &cancel;
    const Result<ProcessResult> run = RunProcess(argv_, options);
    if (!run.ok()) return run.status();
    if (run->cancelled) return Status::Cancelled(name() + ": cancelled");
    const std::string words = LastWords(ErrorsWithoutKeys(run->errors, secrets_));
    if (run->timed_out) return Status::Timeout(name() + " did not answer in time" + words);
    if (run->too_large) {
      return Status::Timeout(name() + ": its answer is over the limit of " +
                             std::to_string(options.max_output) + " bytes");
    }
    if (run->term_signal != 0 || run->exit_code != 0) {
      const bool signal = run->term_signal != 0;
      return Status::Unavailable(
          name() + (signal ? " ended by signal " : " ended with exit code ") +
          std::to_string(signal ? run->term_signal : run->exit_code) + words);
    }
    Result<Reply> reply = ReadReply(run->output, name(), request.limits.max_reply_bytes, secrets_);
    if (!reply.ok()) {
      const bool unreadable = reply.status().code() == StatusCode::kCorruption;
      const std::string advice = unreadable ? "; the program must print {\"content\": TEXT}" : "";
      return Status(reply.status().code(), reply.status().message() + advice + words);
    }
    reply->attempts = 1;
    reply->seconds = SteadySeconds() - start;
    if (on_text) on_text(reply->content);
    return reply;
  }

 private:
  const std::vector<std::string> argv_;
  const std::vector<std::string> secrets_;
};

}  // namespace

Result<std::unique_ptr<Provider>> MakeCommandProvider(std::vector<std::string> argv,
                                                      std::vector<std::string> secrets) {
  CF_CHECK(!argv.empty()) << "a command needs a program";
  if (!IsProgram(argv[0])) {
    return Status::InvalidArgument("command: " + Printable(WithoutKeys(argv[0], secrets), 500) +
                                   ": no such program, or not executable" +
                                   WithoutKeys(LookedFor(argv[0]), secrets));
  }
  return std::unique_ptr<Provider>(
      std::make_unique<CommandProvider>(std::move(argv), std::move(secrets)));
}

}  // namespace cudaforge
