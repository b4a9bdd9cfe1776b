// Where replies come from: an HTTP service, a program, a folder that someone answers in, a
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

// Told of the reply's text piece by piece, in order, by the thread that called Complete; the pieces
// make up Reply::content. A provider that does not stream calls it once.
using TextSink = std::function<void(std::string_view)>;

class Provider {
 public:
  Provider() = default;
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  virtual ~Provider() = default;

  // Asks and waits for the whole reply. `cancel` is looked at throughout: kCancelled within 0.5 s.
  // `on_text` may be empty. Thread-safe: calls may overlap.
  //
  // Errors, none of whose messages holds a key:
  //   kCancelled        `cancel` was set
  //   kTimeout          a limit of time or size in request.limits was reached
  //   kUnavailable      the service, program or folder cannot be reached or reports a fault of its
  //                     own, after retries where they make sense
  //   kInvalidArgument  the service refuses the request (bad key, unknown model, malformed)
  //   kCorruption       the answer is not what the protocol says, or ends in the middle
  //   kNotFound         a recording has no more replies, or another request than this one
  //   kIoError          a file cannot be read or written
  virtual Result<Reply> Complete(const LlmRequest& request, const Cancel& cancel,
                                 const TextSink& on_text) = 0;

  // The kind and the model or place, as in "openai:gpt-5"; never a key or a program's arguments.
  virtual std::string name() const = 0;
};

struct ProviderSettings {
  // Of HTTP providers; where empty, the environment's OPENAI_BASE_URL, OPENAI_API_KEY,
  // ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY, and then the service's own address. An address in the
  // spec comes before both.
  std::string base_url;
  std::string api_key;
  std::map<std::string, std::string> environment;  // name to value
  std::vector<std::string> secrets;                // other keys that no provider may repeat
  bool stream = true;                              // ask for the reply in pieces
  RetryPolicy retry;
};

// Makes the provider that `spec` names: a kind, a colon and what the kind takes (ProvidersHelp).
// Opens no connection. None of them repeats a key of eight characters or more that `settings` has:
// "[key]" stands for it in replies and errors. Errors: kInvalidArgument for a spec, key or address
// that cannot be used; kIoError or kNotFound for a folder.
Result<std::unique_ptr<Provider>> MakeProvider(std::string_view spec,
                                               const ProviderSettings& settings);

// The specs there are, two columns of text for a person: "openai:MODEL[@URL]  ...".
std::string ProvidersHelp();

}  // namespace cudaforge
