// Removes keys from a provider's output. Programs inherit the environment, and services, people and
// recordings may repeat keys.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "llm/provider.h"

namespace cudaforge {

// Passes requests to `inner`. Replaces each of `secrets` by "[key]" in errors, text (also when
// streamed), model and finish reason. Shortens model and finish reason to printable ASCII.
std::unique_ptr<Provider> MakeDiscreetProvider(std::unique_ptr<Provider> inner,
                                               std::vector<std::string> secrets);

}  // namespace cudaforge
