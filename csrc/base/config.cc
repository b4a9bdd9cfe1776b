#include "base/config.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/text.h"

namespace cudaforge {
namespace {

using Environment = std::map<std::string, std::string>;

// The settings in docs/options.md.
constexpr const char* kSettings[] = {"CUDAFORGE_CACHE_DIR",
                                     "CUDAFORGE_CODER_API_KEY",
                                     "CUDAFORGE_CUDA_PATH",
                                     "CUDAFORGE_CXX",
                                     "CUDAFORGE_DISABLE",
                                     "CUDAFORGE_EAGER",
                                     "CUDAFORGE_GRAPH_BUDGET_S",
                                     "CUDAFORGE_JUDGE_API_KEY",
                                     "CUDAFORGE_LOG",
                                     "CUDAFORGE_ON_MISS",
                                     "CUDAFORGE_REGION_BUDGET_S",
                                     "CUDAFORGE_WORKER"};
// Settings of the build and test scripts.
constexpr const char* kOfScripts[] = {"CUDAFORGE_BUILD_DIR", "CUDAFORGE_BUILD_TESTS",
                                      "CUDAFORGE_REQUIRE_GPU", "CUDAFORGE_USE_CURRENT_ENV",
                                      "CUDAFORGE_WERROR"};

constexpr size_t kMaxShown = 80;  // bytes of a name or a value in a warning

// Returns the value, or nullptr if it is unset or empty.
const char* Find(const Environment& environment, const char* name) {
  const auto it = environment.find(name);
  return it == environment.end() || it->second.empty() ? nullptr : it->second.c_str();
}

// The non-empty parts of a variable's list; none if it is unset.
std::vector<std::string> List(const Environment& environment, const char* name, char separator) {
  const char* value = Find(environment, name);
  std::vector<std::string> parts;
  for (const std::string_view part : Split(value != nullptr ? value : "", separator)) {
    if (!part.empty()) parts.emplace_back(part);
  }
  return parts;
}

// A name without a slash is looked up on PATH.
std::string Program(const std::string& name) {
  return name.find('/') == std::string::npos ? name : AbsolutePath(name);
}

std::string DefaultCacheDir(const Environment& environment) {
  if (const char* xdg = Find(environment, "XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/') {
    return std::string(xdg) + "/cudaforge";
  }
  const char* home = Find(environment, "HOME");
  return AbsolutePath(home != nullptr ? home : "/tmp") + "/.cache/cudaforge";
}

void Warn(Config* config, const char* name, const char* value, const std::string& advice) {
  config->warnings.push_back(std::string(name) + "=" + Escaped(value, kMaxShown) +
                             " is not used: " + advice);
}

// Leaves out values: one may be a key under a mistyped name.
void WarnOfUnknownNames(Config* config, const Environment& environment) {
  const std::string prefix = "CUDAFORGE_";
  for (auto it = environment.lower_bound(prefix); it != environment.end(); ++it) {
    const std::string& name = it->first;
    if (name.compare(0, prefix.size(), prefix) != 0) return;
    auto is_name = [&name](const char* known) { return name == known; };
    if (std::any_of(std::begin(kSettings), std::end(kSettings), is_name) ||
        std::any_of(std::begin(kOfScripts), std::end(kOfScripts), is_name)) {
      continue;
    }
    std::string warning = Escaped(name, kMaxShown) + " is not used: unknown setting; known:";
    for (const char* known : kSettings) warning += std::string(" ") + known;
    config->warnings.push_back(warning);
  }
}

}  // namespace

Config ReadConfig(const std::map<std::string, std::string>& environment) {
  Config config;
  config.cache_dir = DefaultCacheDir(environment);
  auto get = [&](const char* name) { return Find(environment, name); };
  const auto read_switch = [&](const char* name, bool* setting, const char* otherwise) {
    const char* value = get(name);
    if (value == nullptr) return;
    *setting = std::strcmp(value, "1") == 0;
    if (!*setting && std::strcmp(value, "0") != 0) {
      Warn(&config, name, value, std::string("expected 0 or 1; ") + otherwise);
    }
  };
  read_switch("CUDAFORGE_DISABLE", &config.disabled, "the backend stays on");
  read_switch("CUDAFORGE_EAGER", &config.eager, "eager calls are not intercepted");
  if (const char* value = get("CUDAFORGE_ON_MISS")) {
    std::string known;
    for (const char* choice : kOnMiss) {
      if (std::strcmp(value, choice) == 0) config.on_miss = choice;
      known += (known.empty() ? "" : ", ") + std::string(choice);
    }
    if (config.on_miss != value) {
      Warn(&config, "CUDAFORGE_ON_MISS", value, "expected one of " + known + "; using the default");
    }
  }
  const auto read_seconds = [&](const char* name, double* setting) {
    const char* value = get(name);
    if (value == nullptr) return;
    const double seconds = ParseDouble(value).value_or(0);
    if (seconds > 0 && seconds < 1e9) {
      *setting = seconds;
    } else {
      Warn(&config, name, value,
           "expected a number of seconds above 0; using " + std::to_string(std::lround(*setting)));
    }
  };
  read_seconds("CUDAFORGE_REGION_BUDGET_S", &config.region_budget_s);
  read_seconds("CUDAFORGE_GRAPH_BUDGET_S", &config.graph_budget_s);
  if (const char* value = get("CUDAFORGE_CACHE_DIR")) config.cache_dir = AbsolutePath(value);
  if (const char* value = get("CUDAFORGE_CXX")) {
    if (const std::string cxx = Program(value); IsUtf8(cxx)) {
      config.cxx = cxx;
    } else {  // it is sent to the worker in JSON
      Warn(&config, "CUDAFORGE_CXX", value, "expected UTF-8; looking for g++, c++ and clang++");
    }
  }
  if (const char* value = get("CUDAFORGE_WORKER")) config.worker = Program(value);
  for (const std::string& folder : List(environment, "CUDAFORGE_CUDA_PATH", ':')) {
    std::error_code ignored;
    if (std::filesystem::is_directory(folder, ignored)) {
      config.cuda_path.push_back(AbsolutePath(folder));
    } else {
      Warn(&config, "CUDAFORGE_CUDA_PATH", folder.c_str(), "there is no such folder");
    }
  }
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    for (const std::string& folder : List(environment, name, ':')) {
      config.cuda_home.push_back(AbsolutePath(folder));
    }
  }
  if (const char* value = get("OMP_NUM_THREADS")) {  // "4", or "4,2": by level of nesting
    std::string_view first = Split(value, ',').front();
    first.remove_prefix(std::min(first.find_first_not_of(" \t"), first.size()));
    first = first.substr(0, first.find_first_not_of("0123456789"));
    config.threads = std::min(ParseInteger<int>(first).value_or(0), 1 << 30);
  }
  for (const std::string& topic : List(environment, "CUDAFORGE_LOG", ',')) {
    std::string known = "all";
    for (const char* one : kLogTopics) known += std::string(", ") + one;
    if (topic == "all" || IsIn(topic, kLogTopics)) {
      config.log.push_back(topic);
    } else {
      Warn(&config, "CUDAFORGE_LOG", topic.c_str(), "expected topics out of " + known);
    }
  }
  WarnOfUnknownNames(&config, environment);
  return config;
}

const Config& GlobalConfig() {
  static const Config* config = [] {
    Environment environment;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const size_t equals = text.find('=');
      if (equals != std::string::npos)
        environment[text.substr(0, equals)] = text.substr(equals + 1);
    }
    return new Config(ReadConfig(environment));
  }();
  return *config;
}

}  // namespace cudaforge
