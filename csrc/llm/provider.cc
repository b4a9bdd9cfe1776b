#include "llm/provider.h"

#include <algorithm>
#include <vector>

#include "llm/chat_protocol.h"
#include "llm/discreet_provider.h"
#include "llm/endpoint.h"
#include "llm/http_provider.h"
#include "llm/local_provider.h"
#include "llm/transcript.h"

namespace cudaforge {
namespace {

constexpr std::string_view kKnownSpecs =
    "openai:MODEL, anthropic:MODEL, command:PROGRAM [ARGS], mailbox:DIR, record:DIR:SPEC, "
    "replay:DIR";

Status BadSpec(const std::string& what) {
  return Status::InvalidArgument(what + "; known are " + std::string(kKnownSpecs));
}

// Shorter values are no keys: servers that want none are given "EMPTY" or "x", and blotting those
// out would spoil replies.
constexpr size_t kShortestSecret = 8;

constexpr std::string_view kBlanks = " \t\r\n";

// The setting where it is given, else the variable's value, else "".
std::string SettingOr(const std::string& setting, const ProviderSettings& settings,
                      const std::string& variable) {
  if (!setting.empty()) return setting;
  const auto it = settings.environment.find(variable);
  return it == settings.environment.end() ? "" : it->second;
}

Result<std::unique_ptr<Provider>> MakeService(bool openai, const std::string& model,
                                              const ProviderSettings& settings) {
  const std::string prefix = openai ? "OPENAI" : "ANTHROPIC";
  const std::string own = openai ? "https://api.openai.com/v1" : "https://api.anthropic.com";
  HttpProviderOptions options;
  const std::string url = SettingOr(settings.base_url, settings, prefix + "_BASE_URL");
  CF_ASSIGN_OR_RETURN(options.endpoint, ParseEndpoint(url.empty() ? own : url));
  options.key = SettingOr(settings.api_key, settings, prefix + "_API_KEY");
  options.stream = settings.stream;
  options.retry = settings.retry;
  const bool own_service = options.endpoint.url == own;
  if (options.key.empty() && (own_service || !openai)) {
    return Status::InvalidArgument((openai ? "openai:" : "anthropic:") + model +
                                   " needs a key: set " + prefix + "_API_KEY");
  }
  CF_RETURN_IF_ERROR(CheckKey(options.endpoint, options.key));
  auto protocol = openai ? MakeOpenAiProtocol(model, own_service)
                         : MakeAnthropicProtocol(model, options.endpoint.url.ends_with("/v1"));
  return MakeHttpProvider(std::move(protocol), std::move(options));
}

std::vector<std::string> SplitAtWhiteSpace(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = text.find_first_not_of(kBlanks); at != std::string_view::npos;) {
    const size_t end = text.find_first_of(kBlanks, at);
    words.emplace_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

// What no provider may repeat, the longest first.
std::vector<std::string> SecretsOf(const ProviderSettings& settings) {
  std::vector<std::string> secrets;
  for (std::string value : {settings.api_key, SettingOr("", settings, "OPENAI_API_KEY"),
                            SettingOr("", settings, "ANTHROPIC_API_KEY")}) {
    value.erase(value.find_last_not_of(kBlanks) + 1);  // npos + 1 is 0
    value.erase(0, value.find_first_not_of(kBlanks));
    if (value.size() >= kShortestSecret) secrets.push_back(std::move(value));
  }
  std::sort(secrets.begin(), secrets.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  return secrets;
}

// Of any kind but record, as it is.
Result<std::unique_ptr<Provider>> MakeBare(const std::string& kind, const std::string& rest,
                                           const ProviderSettings& settings) {
  if (kind == "openai" || kind == "anthropic") {
    return MakeService(kind == "openai", rest, settings);
  }
  if (kind == "mailbox") return MakeMailboxProvider(rest, SecretsOf(settings));
  if (kind == "replay") return MakeReplayProvider(rest);
  std::vector<std::string> argv = SplitAtWhiteSpace(rest);
  if (argv.empty()) return BadSpec("provider \"command\": no program");
  return MakeCommandProvider(std::move(argv), SecretsOf(settings));
}

}  // namespace

Result<std::unique_ptr<Provider>> MakeProvider(std::string_view spec,
                                               const ProviderSettings& settings) {
  const size_t colon = spec.find(':');
  const std::string kind(spec.substr(0, colon));
  const std::string rest(colon == std::string_view::npos ? "" : spec.substr(colon + 1));
  const bool known = kind == "openai" || kind == "anthropic" || kind == "command" ||
                     kind == "mailbox" || kind == "record" || kind == "replay";
  if (!known) return BadSpec("unknown provider \"" + kind + "\"");
  if (rest.empty()) return BadSpec("provider \"" + kind + "\": nothing after the colon");
  if (kind != "record") {
    CF_ASSIGN_OR_RETURN(auto bare, MakeBare(kind, rest, settings));
    return MakeDiscreetProvider(std::move(bare), SecretsOf(settings));
  }
  const size_t second = rest.find(':');
  if (second == std::string::npos || second == 0) return BadSpec("provider \"record\": no folder");
  CF_ASSIGN_OR_RETURN(auto inner, MakeProvider(rest.substr(second + 1), settings));
  return MakeRecordingProvider(rest.substr(0, second), std::move(inner), SecretsOf(settings));
}

}  // namespace cudaforge
