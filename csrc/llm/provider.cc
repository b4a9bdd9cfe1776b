#include "llm/provider.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/text.h"
#include "llm/chat_protocol.h"
#include "llm/discreet_provider.h"
#include "llm/endpoint.h"
#include "llm/http_provider.h"
#include "llm/local_provider.h"
#include "llm/secrets.h"
#include "llm/transcript.h"

namespace cudaforge {
namespace {

// A kind of provider: the part of a spec before the colon, and a factory for the rest.
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

constexpr std::string_view kBlanks = " \t\r\n";

// A chat service over HTTP.
struct Service {
  std::string_view name;
  std::string_view prefix;  // of its two variables
  std::string_view url;     // its own
  bool needs_key;           // also at another address
  std::unique_ptr<ChatProtocol> (*make_protocol)(const std::string& model, const std::string& url);

  std::string UrlVariable() const { return std::string(prefix) + "_BASE_URL"; }
  std::string KeyVariable() const { return std::string(prefix) + "_API_KEY"; }
};

constexpr Service kOpenAi = {"openai", "OPENAI", "https://api.openai.com/v1", false,
                             [](const std::string& model, const std::string& url) {
                               return MakeOpenAiProtocol(model, /*own_service=*/url == kOpenAi.url);
                             }};
constexpr Service kAnthropic = {"anthropic", "ANTHROPIC", "https://api.anthropic.com", true,
                                [](const std::string& model, const std::string& url) {
                                  return MakeAnthropicProtocol(
                                      model, /*versioned_url=*/url.ends_with("/v1"));
                                }};
constexpr Service kServices[] = {kOpenAi, kAnthropic};

// Returns the variable's value, else "".
std::string Variable(const ProviderSettings& settings, const std::string& name) {
  const auto it = settings.environment.find(name);
  return it == settings.environment.end() ? "" : it->second;
}

// The position of the '@' before an address in "MODEL" or "MODEL@URL"; npos: no address.
Result<size_t> FindAddress(const std::string& rest) {
  const size_t at = std::min(rest.find("@http://"), rest.find("@https://"));
  const size_t first = rest.find('@');
  // A model name may contain '@', but no colon after it: that is another form of address.
  if (first != std::string::npos && first != at && rest.substr(0, at).find(':', first) < at) {
    return Status::InvalidArgument("the address behind @ begins with http:// or https://");
  }
  return at;
}

// Returns true if the service's variable has this address.
bool IsVariableUrl(const Service& service, const ProviderSettings& settings,
                   const Endpoint& endpoint) {
  const Result<Endpoint> known = ParseEndpoint(Variable(settings, service.UrlVariable()));
  return known.ok() && known->url == endpoint.url;
}

// "MODEL" or "MODEL@URL".
Result<std::unique_ptr<Provider>> MakeService(const Service& service, const std::string& rest,
                                              const ProviderSettings& settings) {
  CF_ASSIGN_OR_RETURN(const size_t at, FindAddress(rest));
  const std::string model = rest.substr(0, at);
  const std::string spec = std::string(service.name) + ":" + model;
  if (model.empty()) return BadSpec("provider \"" + spec + "\": no model");
  HttpProviderOptions options;
  std::string url =
      at != std::string::npos ? rest.substr(at + 1) : Variable(settings, service.UrlVariable());
  if (url.empty()) url = service.url;
  CF_ASSIGN_OR_RETURN(options.endpoint, ParseEndpoint(url));
  const bool own = options.endpoint.url == service.url;
  // The key of the environment is for its service only, not for another address in the spec.
  const bool stranger =
      at != std::string::npos && !own && !IsVariableUrl(service, settings, options.endpoint);
  options.key = settings.api_key;
  if (options.key.empty() && !stranger) options.key = Variable(settings, service.KeyVariable());
  options.stream = settings.stream;
  options.retry = settings.retry;
  if (options.key.empty() && (service.needs_key || own)) {
    return Status::InvalidArgument(
        spec + " needs a key: set " +
        (stranger ? "CUDAFORGE_CODER_API_KEY or CUDAFORGE_JUDGE_API_KEY" : service.KeyVariable()));
  }
  CF_RETURN_IF_ERROR(CheckKey(options.endpoint, options.key));
  auto protocol = service.make_protocol(model, options.endpoint.url);
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

// All keys that must not be repeated, the longest first.
std::vector<std::string> SecretsOf(const ProviderSettings& settings) {
  std::vector<std::string> values = settings.secrets;
  values.push_back(settings.api_key);
  for (const Service& service : kServices) {
    values.push_back(Variable(settings, service.KeyVariable()));
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
    {kOpenAi.name, "MODEL[@URL]",
     "OPENAI_API_KEY, OPENAI_BASE_URL; @URL for another server of its kind\n"
     "(vLLM, DeepSeek, ...), given only CUDAFORGE_CODER/JUDGE_API_KEY",
     [](const std::string& rest, const ProviderSettings& settings) {
       return MakeService(kOpenAi, rest, settings);
     }},
    {kAnthropic.name, "MODEL[@URL]", "ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL; @URL as above",
     [](const std::string& rest, const ProviderSettings& settings) {
       return MakeService(kAnthropic, rest, settings);
     }},
    {"command", "PROGRAM [ARGS]",
     "a program, started for each request, without a shell: one JSON\n"
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

std::vector<std::string> ProviderVariables() {
  std::vector<std::string> names;
  for (const Service& service : kServices) {
    names.push_back(service.UrlVariable());
    names.push_back(service.KeyVariable());
  }
  return names;
}

std::string ProvidersHelp() {
  constexpr size_t kColumn = 26;
  std::string text;
  for (const Kind& kind : kKinds) {
    std::string line = "  " + std::string(kind.name) + ":" + std::string(kind.takes);
    for (const std::string_view words : Split(kind.help, '\n')) {
      line.resize(std::max(line.size() + 1, kColumn), ' ');
      text += line + std::string(words) + "\n";
      line.clear();
    }
  }
  return text;
}

}  // namespace cudaforge
