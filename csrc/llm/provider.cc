#include "llm/provider.h"

#include <algorithm>
#include <span>
#include <sstream>
#include <vector>

#include "llm/chat_protocol.h"
#include "llm/discreet_provider.h"
#include "llm/endpoint.h"
#include "llm/http_provider.h"
#include "llm/local_provider.h"
#include "llm/transcript.h"

namespace cudaforge {
namespace {

// A kind of provider: what stands before the colon of a spec, and what becomes of the rest.
struct Kind {
  std::string_view name;
  std::string_view takes;
  std::string_view help;  // lines
  Result<std::unique_ptr<Provider>> (*make)(const std::string& rest, const ProviderSettings&);
};
std::span<const Kind> Kinds();

Status BadSpec(const std::string& what) {
  std::string known;
  for (const Kind& kind : Kinds()) {
    known += (known.empty() ? "" : ", ") + std::string(kind.name) + ":" + std::string(kind.takes);
  }
  return Status::InvalidArgument(what + "; known are " + known);
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

// "MODEL" or "MODEL@URL".
Result<std::unique_ptr<Provider>> MakeService(bool openai, const std::string& rest,
                                              const ProviderSettings& settings) {
  const std::string prefix = openai ? "OPENAI" : "ANTHROPIC";
  const std::string own = openai ? "https://api.openai.com/v1" : "https://api.anthropic.com";
  const size_t at = rest.find("@http");
  const std::string model = rest.substr(0, at);
  const std::string spec = (openai ? "openai:" : "anthropic:") + model;
  if (model.empty()) return BadSpec("provider \"" + spec + "\": no model");
  HttpProviderOptions options;
  const std::string url = at != std::string::npos
                              ? rest.substr(at + 1)
                              : SettingOr(settings.base_url, settings, prefix + "_BASE_URL");
  CF_ASSIGN_OR_RETURN(options.endpoint, ParseEndpoint(url.empty() ? own : url));
  options.key = SettingOr(settings.api_key, settings, prefix + "_API_KEY");
  options.stream = settings.stream;
  options.retry = settings.retry;
  const bool own_service = options.endpoint.url == own;
  if (options.key.empty() && (own_service || !openai)) {
    return Status::InvalidArgument(spec + " needs a key: set " + prefix + "_API_KEY");
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
  std::vector<std::string> values = settings.secrets;
  for (const std::string& value : {settings.api_key, SettingOr("", settings, "OPENAI_API_KEY"),
                                   SettingOr("", settings, "ANTHROPIC_API_KEY")}) {
    values.push_back(value);
  }
  std::vector<std::string> secrets;
  for (std::string& value : values) {
    value.erase(value.find_last_not_of(kBlanks) + 1);  // npos + 1 is 0
    value.erase(0, value.find_first_not_of(kBlanks));
    if (value.size() >= kShortestSecret) secrets.push_back(std::move(value));
  }
  std::sort(secrets.begin(), secrets.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  return secrets;
}

Result<std::unique_ptr<Provider>> MakeRecording(const std::string& rest,
                                                const ProviderSettings& settings) {
  const size_t colon = rest.find(':');
  if (colon == std::string::npos || colon == 0) return BadSpec("provider \"record\": no folder");
  CF_ASSIGN_OR_RETURN(auto inner, MakeProvider(rest.substr(colon + 1), settings));
  return MakeRecordingProvider(rest.substr(0, colon), std::move(inner), SecretsOf(settings));
}

constexpr Kind kKinds[] = {
    {"openai", "MODEL[@URL]",
     "OPENAI_API_KEY; @URL, or OPENAI_BASE_URL, for another server that\n"
     "speaks its protocol (vLLM, SGLang, llama.cpp, DeepSeek, Together, ...)",
     [](const std::string& rest, const ProviderSettings& settings) {
       return MakeService(true, rest, settings);
     }},
    {"anthropic", "MODEL[@URL]", "ANTHROPIC_API_KEY; ANTHROPIC_BASE_URL",
     [](const std::string& rest, const ProviderSettings& settings) {
       return MakeService(false, rest, settings);
     }},
    {"command", "PROGRAM [ARGS]",
     "a program, started anew for each request, without a shell: one JSON\n"
     "object {role, messages, limits} on its standard input, one {content,\n"
     "usage} on its standard output",
     [](const std::string& rest,
        const ProviderSettings& settings) -> Result<std::unique_ptr<Provider>> {
       std::vector<std::string> argv = SplitAtWhiteSpace(rest);
       if (argv.empty()) return BadSpec("provider \"command\": no program");
       return MakeCommandProvider(std::move(argv), SecretsOf(settings));
     }},
    {"mailbox", "DIR",
     "a folder in which an agent or a person answers NNNN-ROLE.request.json\n"
     "with NNNN-ROLE.reply.txt",
     [](const std::string& rest, const ProviderSettings& settings) {
       return MakeMailboxProvider(rest, SecretsOf(settings));
     }},
    {"record", "DIR:PROVIDER",
     "another provider, with every exchange saved in DIR (a name without a\n"
     "colon)",
     &MakeRecording},
    {"replay", "DIR", "the exchanges saved there, without network",
     [](const std::string& rest, const ProviderSettings&) { return MakeReplayProvider(rest); }},
};

std::span<const Kind> Kinds() { return kKinds; }

}  // namespace

Result<std::unique_ptr<Provider>> MakeProvider(std::string_view spec,
                                               const ProviderSettings& settings) {
  const size_t colon = spec.find(':');
  const std::string name(spec.substr(0, colon));
  const std::string rest(colon == std::string_view::npos ? "" : spec.substr(colon + 1));
  const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                 [&](const Kind& known) { return known.name == name; });
  if (kind == std::end(kKinds)) return BadSpec("unknown provider \"" + name + "\"");
  if (rest.empty()) return BadSpec("provider \"" + name + "\": nothing after the colon");
  CF_ASSIGN_OR_RETURN(auto bare, kind->make(rest, settings));
  return MakeDiscreetProvider(std::move(bare), SecretsOf(settings));
}

std::string ProvidersHelp() {
  constexpr size_t kColumn = 26;
  std::string text;
  for (const Kind& kind : kKinds) {
    std::string line = "  " + std::string(kind.name) + ":" + std::string(kind.takes);
    std::istringstream help{std::string(kind.help)};
    for (std::string words; std::getline(help, words); line.clear()) {
      line.resize(std::max(line.size() + 1, kColumn), ' ');
      text += line + words + "\n";
    }
  }
  return text;
}

}  // namespace cudaforge
