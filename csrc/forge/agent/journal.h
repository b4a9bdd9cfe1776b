// What a session has done so far: its nodes, what they cost, and what they gained.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "forge/agent/agent_calls.h"
#include "forge/agent/ledger.h"
#include "forge/agent/node.h"
#include "llm/prices.h"

namespace cudaforge {

// Called with every node as soon as it is finished, from the session's thread: the caller stores it
// (KernelStore::AddLineage).
using NodeSink = std::function<void(const Json& node)>;

// Not thread-safe. All that is passed in must outlive it.
class Journal {
 public:
  struct Settings {
    std::string session;  // its name
    std::string author;   // of the nodes, unless they say otherwise
    // Of what must be beaten; nothing: unknown.
    std::optional<double> rival_ns;
    std::function<double()> clock;  // seconds
    const NodeSink* sink;
    std::function<void(const Json& event)> progress;  // may be empty
  };
  Journal(Settings settings, AgentCalls* calls);

  // Takes over the nodes of the session that is resumed, and what they spent, and tells of it:
  // {"event":"resumed","nodes","ledger"}. What cannot be read is passed over. Errors:
  // kInvalidArgument where a limit in dollars meets spending whose price is unknown.
  Status Load(const std::vector<Json>& earlier, const Prices& prices);
  // An earlier node's candidate was run again, with this result: its findings are today's. Where it
  // is right, the other nodes, which were slower then, stay slower. Where it is not, it and its
  // duplicates are stored again in their own place, and each is told:
  // {"event":"rejudged","round","before","verdict","message"}.
  void Refresh(size_t index, const Findings& today);

  // From now on what must be beaten takes `ns`.
  void SetRival(double ns) { settings_.rival_ns = ns; }
  std::optional<double> rival_ns() const { return settings_.rival_ns; }

  // A node with the next number.
  AgentNode NewNode(StepKind kind, const AgentNode* parent) const;
  // The node that ran this candidate, or nullptr.
  const AgentNode* FindTried(const Candidate& candidate) const;
  // From now on FindTried finds `candidate` in node `id`.
  void NoteTried(const Candidate& candidate, int id);
  // Stores a node whose candidate is about to be run, for the session that finishes this one if it
  // is killed.
  void KeepUnevaluated(AgentNode node) const;
  // Stores a node whose Coder is about to be asked, for what was spent on it if the session is
  // killed.
  void KeepUnanswered(AgentNode node) const;
  // How many nodes hold this candidate, and no verdict because the session was cut off.
  int Interrupted(const Candidate& candidate) const;
  // The node is complete: charged with the calls and the time since the last one, stored in place
  // of what was kept under its id, and told: {"event":"candidate","round","kind","verdict",
  // "message","ns","speedup","best","duplicate_of","advice","seconds","device_seconds"} with its
  // calls' "input_tokens","cached_input_tokens","output_tokens","replayed","usd", as LedgerSum has
  // them; "advice" is null where there was none, "usd" where the price of a call is unknown. Of a
  // profile without any hardware counter also "no_counters": why.
  void Finish(AgentNode node);

  const std::vector<AgentNode>& nodes() const { return nodes_; }  // oldest first, earlier included
  const AgentNode* best() const { return BestNode(nodes_); }
  std::vector<Json> TakeLineage() { return std::move(lineage_); }  // of nodes finished here
  // Calls were made that belong to no node yet.
  bool has_open_calls() const { return calls_->ledger().entries().size() > entered_; }
  double seconds() const { return spent_before_ + settings_.clock() - began_; }  // all sessions'
  int rounds() const { return rounds_; }                                         // Coder's replies
  int without_gain() const { return without_gain_; }                             // the last of them
  // Of all sessions, with the work of their nodes up to now.
  Ledger Costs() const;

 private:
  void Charge(AgentNode* node) const;
  // Stores a node that is not complete.
  void KeepOpen(AgentNode node) const;
  // Refresh of a node that is refused now.
  void Refuse(AgentNode* node, const Findings& today);
  // Whether it was a round, and whether it gained something.
  void Count(const AgentNode& node);

  Settings settings_;
  AgentCalls* const calls_;
  const double began_;
  double marked_;              // when the last node was finished
  double spent_before_ = 0;    // seconds, of the session that is resumed
  double device_seconds_ = 0;  // of all nodes
  std::vector<AgentNode> nodes_;
  std::vector<Json> lineage_;
  std::map<std::string, int> tried_;  // digests of candidates that were run, to their node
  size_t entered_ = 0;                // ledger entries that belong to a node
  int rounds_ = 0;
  int without_gain_ = 0;
  // The time that the next gain is measured against.
  double gained_ns_ = std::numeric_limits<double>::infinity();
};

}  // namespace cudaforge
