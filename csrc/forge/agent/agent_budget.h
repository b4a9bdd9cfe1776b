// What a session of agents may spend, and what one call may spend of it.
#pragma once

#include <cstdint>
#include <string>

#include "forge/agent/ledger.h"
#include "llm/message.h"
#include "llm/prices.h"

namespace cudaforge {

// Whichever comes first ends the session.
struct AgentBudget {
  int rounds = 10;         // replies of the Coder
  double seconds = 1800;   // no call goes on beyond it; the candidate under test is finished
  int64_t tokens = 0;      // input and output of both agents; 0: no limit
  double usd = 0;          // of both agents; 0: no limit
  int patience = 4;        // rounds in a row without gain
  double roofline = 0.95;  // of what the device allows, reached by the best kernel; 0: no limit
};

// The limits that a call may be made with, or why none may.
struct Allowance {
  ReplyLimits limits;
  std::string refusal;  // empty: it may be made
  std::string limit;    // of a refusal, which leaves too little: "seconds", "tokens" or "usd"
};

// Lowers `wanted` until the call's worst case (its input as estimated, and max_output_tokens of
// output) stays within what `budget` leaves after `spent`, which may not go below `least_output`
// tokens. A call can still pass the budget by as much as the service counts more input tokens than
// were estimated. `price`: of the model asked; with a limit in dollars and no price, no call may be
// made.
Allowance AllowCall(const AgentBudget& budget, const LedgerSum& spent, double seconds_spent,
                    int64_t input_tokens, const Price* price, int64_t least_output,
                    const ReplyLimits& wanted);

}  // namespace cudaforge
