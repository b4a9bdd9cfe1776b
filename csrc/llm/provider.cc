#include "llm/provider.h"

#include <vector>

#include "llm/chat_protocol.h"
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
  constexpr std::string_view kBlanks = " \t\r\n";
  std::vector<std::string> words;
  for (size_t at = text.find_first_not_of(kBlanks); at != std::string_view::npos;) {
    const size_t end = text.find_first_of(kBlanks, at);
    words.emplace_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBlanks, end);
  }
  return words;
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
  if (kind == "openai" || kind == "anthropic") {
    return MakeService(kind == "openai", rest, settings);
  }
  if (kind == "mailbox") return MakeMailboxProvider(rest);
  if (kind == "replay") return MakeReplayProvider(rest);
  if (kind == "command") {
    std::vector<std::string> argv = SplitAtWhiteSpace(rest);
    if (argv.empty()) return BadSpec("provider \"command\": no program");
    return MakeCommandProvider(std::move(argv));
  }
  const size_t second = rest.find(':');
  if (second == std::string::npos || second == 0) return BadSpec("provider \"record\": no folder");
  CF_ASSIGN_OR_RETURN(auto inner, MakeProvider(rest.substr(second + 1), settings));
  // Programs inherit the environment and may repeat what is in it.
  std::vector<std::string> secrets = {settings.api_key};
  for (const char* variable : {"OPENAI_API_KEY", "ANTHROPIC_API_KEY"}) {
    secrets.push_back(SettingOr("", settings, variable));
  }
  return MakeRecordingProvider(rest.substr(0, second), std::move(inner), std::move(secrets));
}

}  // namespace cudaforge
