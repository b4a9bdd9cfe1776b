// What running a candidate has shown.
#pragma once

#include <optional>

#include "base/json.h"
#include "verify/verdict.h"

namespace cudaforge {

struct Findings {
  Verdict verdict;
  std::optional<double> ns;  // timed on the first input set
  Json resources = Json::object();
  Json profile;  // null: not profiled
  Json derived;  // null without a time
};

}  // namespace cudaforge
