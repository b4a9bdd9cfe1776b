// What a store knows that a session of agents begins with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cache/kernel_store.h"
#include "kernel/candidate.h"
#include "signature/op_signature.h"

namespace cudaforge {

struct SessionMemory {
  // Nodes of the last session where that was cut off (no end was noted): it is resumed.
  std::vector<Json> unfinished;
  std::string session;             // its name; empty where there is none
  std::optional<Candidate> start;  // the best kernel known for the region, else for a near one
  std::string origin;              // of `start`: "winner", "lineage", "near KEY"; empty without one
};

// What `store` has for `signature` on `arch`: the winner's kernel, else the fastest right one of
// the region's lineage, else the winner of the same ops in the same order on other sizes whose
// inputs are nearest in size. With `resume` false nothing is unfinished.
SessionMemory RecallSession(KernelStore& store, const OpSignature& signature,
                            const std::string& arch, bool resume);

// What a session starts from: the region's own kernel by an agent, else what the generators have
// just made (nullptr: nothing), else whatever is known.
std::optional<Candidate> StartOf(const SessionMemory& memory, const Candidate* made_now);

// The node that ends a session: {"kind":"end","session":..,"reason":..,"ledger":{..}}.
Json EndNode(const std::string& session, const std::string& reason, const Json& ledger);

}  // namespace cudaforge
