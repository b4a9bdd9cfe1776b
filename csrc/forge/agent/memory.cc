#include "forge/agent/memory.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/sha256.h"
#include "forge/trial.h"
#include "generators/generator.h"

namespace cudaforge {
namespace {

constexpr const char* kEnd = "end";

// Stored under a graph's key that belongs to no graph.
const std::string& AgentRegionsName() {
  static const std::string kName = Sha256Hex("agent regions");
  return kName;
}

bool IsEnd(const Json& node) { return MemberOrNull(node, "kind") == kEnd; }

std::optional<Candidate> KernelOf(const CacheRecord& record) {
  if (!record.has_kernel()) return std::nullopt;
  const auto json = ParseJson(record.variants[0].candidate);
  auto candidate = json.ok() ? Candidate::FromJson(*json) : Result<Candidate>(json.status());
  if (!candidate.ok()) return std::nullopt;
  return *std::move(candidate);
}

std::optional<Candidate> FastestRight(const std::vector<Json>& lineage) {
  std::optional<Candidate> fastest;
  double ns = std::numeric_limits<double>::infinity();
  for (const Json& json : SettledNodes(lineage)) {
    auto node = Trial::FromJson(json);
    if (!node.ok() || !node->correct() || !node->candidate.has_value() || *node->ns >= ns) continue;
    ns = *node->ns;
    fastest = std::move(node->candidate);
  }
  return fastest;
}

std::vector<std::string> OpsOf(const OpSignature& signature) {
  std::vector<std::string> ops;
  for (const Node& node : signature.nodes) ops.push_back(node.op);
  return ops;
}

// The distance of two regions' input sizes: the sum of |log2| of their ratios. Infinite if they
// differ in number, dtype or rank.
double DistanceOf(const OpSignature& a, const OpSignature& b) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  if (a.inputs.size() != b.inputs.size()) return kFar;
  double distance = 0;
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    const TensorSpec& x = a.inputs[i];
    const TensorSpec& y = b.inputs[i];
    if (x.dtype != y.dtype || x.sizes.size() != y.sizes.size()) return kFar;
    for (size_t d = 0; d < x.sizes.size(); ++d) {
      const auto size = [](int64_t n) { return std::log2(static_cast<double>(n) + 1); };
      distance += std::abs(size(x.sizes[d]) - size(y.sizes[d]));
    }
  }
  return distance;
}

void FindNear(KernelStore& store, const OpSignature& signature, const std::string& arch,
              SessionMemory* memory) {
  const std::vector<std::string> ops = OpsOf(signature);
  double nearest = std::numeric_limits<double>::infinity();
  (void)store.ForEach(arch, [&](const CacheRecord& record) {
    const auto other = OpSignature::Parse(record.signature);
    if (!other.ok() || other->device != signature.device || OpsOf(*other) != ops) return true;
    const double distance = DistanceOf(signature, *other);
    if (distance >= nearest) return true;
    if (auto candidate = KernelOf(record)) {
      nearest = distance;
      memory->start = std::move(candidate);
      memory->origin = StartOrigin::kNear;
      memory->near = record.key;
    }
    return true;
  });
}

}  // namespace

SessionMemory RecallSession(KernelStore& store, const OpSignature& signature,
                            const std::string& arch, bool resume) {
  SessionMemory memory;
  const std::string key = signature.Key();
  const std::vector<Json> lineage = store.Lineage(key, arch);
  if (resume) {
    std::vector<Json> last = LastSession(lineage);
    if (!last.empty() && std::none_of(last.begin(), last.end(), &IsEnd)) {
      memory.session = last.back().value("session", "");
      memory.unfinished = std::move(last);
    }
  }
  if (const auto record = store.Get(key, arch); record != nullptr) {
    memory.start = KernelOf(*record);
    if (memory.start.has_value()) memory.origin = StartOrigin::kWinner;
  }
  if (!memory.start.has_value()) {
    memory.start = FastestRight(lineage);
    if (memory.start.has_value()) memory.origin = StartOrigin::kLineage;
  }
  if (!memory.start.has_value()) FindNear(store, signature, arch, &memory);
  return memory;
}

std::optional<Candidate> StartOf(const SessionMemory& memory, const Candidate* made_now) {
  const bool own = memory.origin == StartOrigin::kWinner || memory.origin == StartOrigin::kLineage;
  if ((own && IsByAgent(memory.start->author)) || made_now == nullptr) return memory.start;
  return *made_now;
}

std::string NearRegionOf(const SessionMemory& memory, const Candidate* made_now) {
  return made_now == nullptr ? memory.near : "";
}

Json EndNode(const std::string& session, const std::string& reason, const Json& ledger) {
  return {{"kind", kEnd}, {"session", session}, {"reason", reason}, {"ledger", ledger}};
}

std::optional<FileLock> LockSessions(const KernelStore& store, const std::string& key,
                                     const std::string& arch) {
  const std::string folder = store.location();
  if (!PathExists(folder) || !MakeDirs(folder + "/sessions").ok()) return std::nullopt;
  Result<FileLock> lock = FileLock::Acquire(folder + "/sessions/" + key + " " + arch, 0);
  if (!lock.ok()) return std::nullopt;
  return std::optional<FileLock>(*std::move(lock));
}

Status NoteAgentRegion(KernelStore& store, const OpSignature& signature, const std::string& arch) {
  if (!IsAgentRegion(signature).ok() || HasAgentRegions(store, arch)) return Status::Ok();
  return store.PutGraph(AgentRegionsName(), arch, {{"agent_regions", true}}, {});
}

bool HasAgentRegions(KernelStore& store, const std::string& arch) {
  return store.GetGraph(AgentRegionsName(), arch).has_value();
}

}  // namespace cudaforge
