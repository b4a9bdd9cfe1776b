// What a store knows for agents: what a session begins with, and whether regions are theirs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "cache/kernel_store.h"
#include "kernel/candidate.h"
#include "signature/op_signature.h"

namespace cudaforge {

// Whose kernel a session may start from: the region's winner, the fastest right one of its lineage,
// or the winner of a near region.
enum class StartOrigin { kNone, kWinner, kLineage, kNear };

struct SessionMemory {
  // Nodes of the last session where that was cut off (no end was noted): it is resumed.
  std::vector<Json> unfinished;
  std::string session;             // its name; empty where there is none
  std::optional<Candidate> start;  // the best kernel known for the region, else for a near one
  StartOrigin origin = StartOrigin::kNone;  // of `start`
  std::string near;  // the key of the near region that `start` is the winner of; else empty
};

// What `store` has for `signature` on `arch`: the winner's kernel, else the fastest right one of
// the region's lineage, else the winner of the same ops in the same order on other sizes whose
// inputs are nearest in size. With `resume` false nothing is unfinished.
SessionMemory RecallSession(KernelStore& store, const OpSignature& signature,
                            const std::string& arch, bool resume);

// What a session starts from: the region's own kernel by an agent, else what the generators have
// just made (nullptr: nothing), else whatever is known.
std::optional<Candidate> StartOf(const SessionMemory& memory, const Candidate* made_now);
// The key of the near region that StartOf's kernel was made for; empty where it was for this one.
std::string NearRegionOf(const SessionMemory& memory, const Candidate* made_now);

// The node that ends a session: {"kind":"end","session":..,"reason":..,"ledger":{..}}.
Json EndNode(const std::string& session, const std::string& reason, const Json& ledger);

// The right to go on with the sessions of a region (`key`, `arch`), until it is destroyed. Nothing
// where another process has it, or the store's location is no folder that can be written to.
std::optional<FileLock> LockSessions(const KernelStore& store, const std::string& key,
                                     const std::string& arch);

// Notes that `store` holds a winner for `signature`, where that is a region of agents: graphs are
// searched for such regions only where the store has some. Errors: as KernelStore::PutGraph.
Status NoteAgentRegion(KernelStore& store, const OpSignature& signature, const std::string& arch);
bool HasAgentRegions(KernelStore& store, const std::string& arch);

}  // namespace cudaforge
