#include "base/config.h"

#include <cstdlib>
#include <cstring>

namespace cudaforge {
namespace {

std::string DefaultCacheDir(const char* (*getenv)(const char*)) {
  if (const char* xdg = getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/') {
    return std::string(xdg) + "/cudaforge";
  }
  const char* home = getenv("HOME");
  return std::string(home != nullptr && *home != '\0' ? home : "/tmp") + "/.cache/cudaforge";
}

void Warn(Config* config, const char* name, const char* value, const std::string& advice) {
  config->warnings.push_back(std::string(name) + "=" + std::string(value).substr(0, 80) +
                             " is not used: " + advice);
}

}  // namespace

const char* OnMissName(OnMiss on_miss) {
  switch (on_miss) {
    case OnMiss::kFallback:
      return "fallback";
    case OnMiss::kRecord:
      return "record";
    case OnMiss::kBackground:
      return "background";
    case OnMiss::kBlocking:
      return "blocking";
  }
  return "record";
}

Config ReadConfig(const char* (*getenv)(const char*)) {
  Config config;
  config.cache_dir = DefaultCacheDir(getenv);
  auto get = [&](const char* name) -> const char* {
    const char* value = getenv(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
  };
  if (const char* value = get("CUDAFORGE_DISABLE")) {
    if (std::strcmp(value, "1") == 0) {
      config.disabled = true;
    } else if (std::strcmp(value, "0") != 0) {
      Warn(&config, "CUDAFORGE_DISABLE", value, "expected 0 or 1; the backend stays on");
    }
  }
  if (const char* value = get("CUDAFORGE_ON_MISS")) {
    bool known = false;
    for (OnMiss choice :
         {OnMiss::kFallback, OnMiss::kRecord, OnMiss::kBackground, OnMiss::kBlocking}) {
      if (std::strcmp(value, OnMissName(choice)) == 0) {
        config.on_miss = choice;
        known = true;
      }
    }
    if (!known) {
      Warn(&config, "CUDAFORGE_ON_MISS", value,
           "expected fallback, record, background or blocking; using record");
    }
  }
  if (const char* value = get("CUDAFORGE_REGION_BUDGET_S")) {
    char* end = nullptr;
    const double seconds = std::strtod(value, &end);
    if (*end == '\0' && seconds > 0 && seconds < 1e9) {
      config.region_budget_s = seconds;
    } else {
      Warn(&config, "CUDAFORGE_REGION_BUDGET_S", value,
           "expected a number of seconds above 0; using 30");
    }
  }
  if (const char* value = get("CUDAFORGE_CACHE_DIR")) config.cache_dir = value;
  if (const char* value = get("CUDAFORGE_CXX")) config.cxx = value;
  if (const char* value = get("CUDAFORGE_LOG")) {
    std::string topics = std::string(value) + ",";
    for (size_t start = 0, comma; (comma = topics.find(',', start)) != std::string::npos;
         start = comma + 1) {
      const std::string topic = topics.substr(start, comma - start);
      if (topic == "all" || topic == "forge" || topic == "graph" || topic == "cache") {
        config.log.push_back(topic);
      } else if (!topic.empty()) {
        Warn(&config, "CUDAFORGE_LOG", topic.c_str(),
             "expected topics out of all, forge, graph, cache");
      }
    }
  }
  return config;
}

const Config& GlobalConfig() {
  static const Config* config =
      new Config(ReadConfig([](const char* name) -> const char* { return std::getenv(name); }));
  return *config;
}

}  // namespace cudaforge
