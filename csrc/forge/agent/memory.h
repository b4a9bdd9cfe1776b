// The store's data for agents: how a session starts, and which regions agents wrote kernels for.
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

// The kernel that a session starts from: the region's winner, the fastest correct one of its
// lineage, or the winner of a similar region.
enum class StartOrigin { kNone, kWinner, kLineage, kNear };

struct SessionMemory {
  // Nodes of the last session if it was interrupted (has no end node), for the next one to resume.
  std::vector<Json> unfinished;
  std::string session;             // its name; empty: none
  std::optional<Candidate> start;  // the best known kernel for the region, else for a similar one
  StartOrigin origin = StartOrigin::kNone;  // of `start`
  std::string near;  // the key of the similar region whose winner `start` is; else empty
};

// Looks up `signature` on `arch`: the winner's kernel, else the fastest correct one of the lineage,
// else a winner of the same ops in the same order, with the closest input sizes. `resume` false:
// ignores an interrupted session.
SessionMemory RecallSession(KernelStore& store, const OpSignature& signature,
                            const std::string& arch, bool resume);

// Returns what a session starts from: the region's own kernel by an agent, else the generators' new
// kernel (nullptr: none), else another known one.
std::optional<Candidate> StartOf(const SessionMemory& memory, const Candidate* made_now);
// The key of the similar region that StartOf's kernel was made for; empty if it was this one.
std::string NearRegionOf(const SessionMemory& memory, const Candidate* made_now);

// The node that ends a session: {"kind":"end","session":..,"reason":..,"ledger":{..}}.
Json EndNode(const std::string& session, const std::string& reason, const Json& ledger);

// An exclusive lock on the sessions of a region (`key`, `arch`). Empty if another process has it,
// or the store has no writable folder.
std::optional<FileLock> LockSessions(const KernelStore& store, const std::string& key,
                                     const std::string& arch);

// Notes that `store` holds a winner for `signature`, if agents made it. Graphs are searched for
// these regions only if the store has some. Errors: as KernelStore::PutGraph.
Status NoteAgentRegion(KernelStore& store, const OpSignature& signature, const std::string& arch);
bool HasAgentRegions(KernelStore& store, const std::string& arch);

}  // namespace cudaforge
