// Keeps keys out of what a provider says, whatever its kind: programs inherit the environment, and
// services, people and recordings may repeat what is in it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "llm/provider.h"

namespace cudaforge {

// Passes requests on to `inner`. In errors, in the text, piece by piece too, and in the reply's
// model and finish reason "[key]" stands where one of `secrets` was; model and finish reason are
// short printable ASCII.
std::unique_ptr<Provider> MakeDiscreetProvider(std::unique_ptr<Provider> inner,
                                               std::vector<std::string> secrets);

}  // namespace cudaforge
