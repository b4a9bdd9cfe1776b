// The budget of a session of agents, and the limits of one call.
#pragma once

#include <cstdint>
#include <string>

#include "forge/agent/ledger.h"
#include "llm/message.h"
#include "llm/prices.h"

namespace cudaforge {

// The limit that is reached first ends the session.
struct AgentBudget {
  int rounds = 10;         // replies of the Coder
  double seconds = 1800;   // no call continues after it; the candidate under test is finished
  int64_t tokens = 0;      // input and output of both agents; 0: no limit
  double usd = 0;          // of both agents; 0: no limit
  int patience = 4;        // rounds in a row without a gain
  double roofline = 0.95;  // share of the device's limit that the best kernel reaches; 0: no limit
};

// The limits for a call, or why none may be made.
struct Allowance {
  ReplyLimits limits;
  std::string refusal;  // empty: the call may be made
  std::string limit;    // of a refusal, the limit that leaves too little: "seconds", "tokens" or
                        // "usd"
};

// Lowers `wanted` until the call's worst case fits into what `budget` leaves after `spent`. The
// worst case is the estimated input plus max_output_tokens. Refuses if that is below `least_output`
// tokens. A call can exceed the budget by the error of the input estimate. `price`: of the model.
// With a limit in dollars and no price, every call is refused.
Allowance AllowCall(const AgentBudget& budget, const LedgerSum& spent, double seconds_spent,
                    int64_t input_tokens, const Price* price, int64_t least_output,
                    const ReplyLimits& wanted);

}  // namespace cudaforge
