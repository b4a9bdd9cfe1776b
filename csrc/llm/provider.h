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

  // Whether a call that brings no reply may have written tokens that somebody pays for.
  virtual bool is_metered() const { return true; }

  // Whether replies are a recording's: nobody is asked, and nothing is spent.
  virtual bool is_replay() const { return false; }
};

struct ProviderSettings {
  // Of HTTP providers; where empty, the environment's: see ProviderVariables.
  std::string api_key;
  std::map<std::string, std::string> environment;  // name to value, of ProviderVariables
  std::vector<std::string> secrets;                // other keys that no provider may repeat
  bool stream = true;                              // ask for the reply in pieces
  RetryPolicy retry;
};

// Makes the provider that `spec` names: a kind, a colon and what the kind takes (ProvidersHelp).
// Opens no connection. None of them repeats a key of eight characters or more that `settings` has:
// "[key]" stands for it in replies and errors. Errors: kInvalidArgument for a spec, key, address or
// program that cannot be used; kIoError or kNotFound for a folder.
Result<std::unique_ptr<Provider>> MakeProvider(std::string_view spec,
                                               const ProviderSettings& settings);

// The variables that HTTP providers read, two for each service: PREFIX_BASE_URL, the address where
// the spec has none, else the service's own, and PREFIX_API_KEY, the key where the settings have
// none; an address in the spec is given it only when it is the service's own or the variable's.
std::vector<std::string> ProviderVariables();

// The specs there are, two columns of text for a person: "openai:MODEL[@URL]  ...".
std::string ProvidersHelp();

}  // namespace cudaforge
