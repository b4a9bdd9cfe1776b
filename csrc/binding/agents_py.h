// Python's settings of an agents' session.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "forge/agent/agents.h"
#include "llm/provider.h"

namespace cudaforge::binding {

struct AgentsPy {
  std::unique_ptr<Provider> coder, judge;
  AgentSettings settings;  // of those two
  bool resume = true;
};

// Parses a dict of cudaforge_backend.agents.Agents.settings(). Throws if the agents cannot be used;
// makes no call. `hints` is called with the GIL, and must outlive the settings. REQUIRES: the GIL.
AgentsPy ReadAgents(const pybind11::dict& settings, const pybind11::object& hints);

}  // namespace cudaforge::binding
