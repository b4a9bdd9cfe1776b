// The source of replies: an HTTP service, a program, a folder in which someone answers, a
// recording.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "llm/message.h"
#include "llm/retry.h"

namespace cudaforge {

// Called with the reply's text in pieces, in order, by the thread that called Complete. The pieces
// make up Reply::content. Without streaming it is called once.
using TextSink = std::function<void(std::string_view)>;

class Provider {
 public:
  Provider() = default;
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  virtual ~Provider() = default;

  // Sends the request and waits for the whole reply. Thread-safe: calls may overlap. `on_text` may
  // be empty. No error's message holds a key. kCancelled: `cancel` was set, at most 0.5 s ago.
  // kTimeout: a limit in request.limits. kUnavailable: service, program or folder unreachable or
  // failing, after sensible retries. kInvalidArgument: refused (bad key, unknown model, malformed).
  // kCorruption: an invalid or incomplete answer. kNotFound: a recording has no more replies, or
  // another request. kIoError: a file cannot be read or written.
  virtual Result<Reply> Complete(const LlmRequest& request, const Cancel& cancel,
                                 const TextSink& on_text) = 0;

  // The kind and the model or place, as in "openai:gpt-5"; never a key or a program's arguments.
  virtual std::string name() const = 0;

  // Returns true if a failed call may cost tokens.
  virtual bool is_metered() const { return true; }

  // Returns true if replies come from a recording, without costs.
  virtual bool is_replay() const { return false; }
};

struct ProviderSettings {
  // For HTTP providers; empty: from the environment, see ProviderVariables.
  std::string api_key;
  std::map<std::string, std::string> environment;  // name to value, of ProviderVariables
  std::vector<std::string> secrets;                // other keys that must not be repeated
  bool stream = true;                              // request the reply in pieces
  RetryPolicy retry;
};

// Makes the provider named by `spec`: a kind, a colon and its argument (ProvidersHelp). Opens no
// connection. Replaces keys in `settings` of at least eight characters by "[key]" in replies and
// errors. kInvalidArgument: an unusable spec, key, address or program. kIoError, kNotFound: a
// folder.
Result<std::unique_ptr<Provider>> MakeProvider(std::string_view spec,
                                               const ProviderSettings& settings);

// The variables that HTTP providers read, for each service: PREFIX_BASE_URL (default address) and
// PREFIX_API_KEY (default key). An address in the spec gets that key only if it is the service's
// own or PREFIX_BASE_URL.
std::vector<std::string> ProviderVariables();

// All specs as two columns of text for display: "openai:MODEL[@URL]  ...".
std::string ProvidersHelp();

}  // namespace cudaforge
