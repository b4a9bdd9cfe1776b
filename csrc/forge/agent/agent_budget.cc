#include "forge/agent/agent_budget.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"

namespace cudaforge {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
// Tolerance for rounding when dollars are converted to a whole number of tokens.
constexpr double kRounding = 1e-6;

// The number of output tokens that `usd_left` can pay; negative: it cannot pay the input.
int64_t OutputTokensFor(double usd_left, const Price& price, int64_t input_tokens) {
  const double input_rate = std::max(price.input, price.cached_input);
  const double left = usd_left * 1e6 - static_cast<double>(input_tokens) * input_rate;
  if (left < -kRounding) return -1;
  if (price.output <= 0) return kNoLimit;
  const double tokens = std::floor(std::max(left, 0.0) / price.output + kRounding);
  return tokens < 1e15 ? static_cast<int64_t>(tokens) : kNoLimit;
}

}  // namespace

Allowance AllowCall(const AgentBudget& budget, const LedgerSum& spent, double seconds_spent,
                    int64_t input_tokens, const Price* price, int64_t least_output,
                    const ReplyLimits& wanted) {
  Allowance out{wanted, "", ""};
  const double seconds_left = budget.seconds - seconds_spent;
  if (seconds_left <= 0) {
    out.refusal = "the time of the budget is spent";
    out.limit = "seconds";
    return out;
  }
  out.limits.total_s = std::min(wanted.total_s, seconds_left);
  int64_t most = wanted.max_output_tokens;
  least_output = std::min(least_output, most);
  const std::string needs = ": the next call takes " + std::to_string(input_tokens) +
                            " tokens of input and " + std::to_string(least_output) +
                            " of output or more";
  if (budget.tokens > 0) {
    const int64_t left = budget.tokens - std::min(budget.tokens, spent.tokens());
    most = std::min(most, left - input_tokens);
    if (most < least_output) {
      out.refusal = "the tokens of the budget are spent, " + std::to_string(spent.tokens()) +
                    " of " + std::to_string(budget.tokens) + needs;
      out.limit = "tokens";
      return out;
    }
  }
  if (budget.usd > 0) {
    most = price == nullptr ? -1
                            : std::min(most, OutputTokensFor(budget.usd - spent.charged_usd(),
                                                             *price, input_tokens));
    if (most < least_output) {
      out.refusal = price == nullptr
                        ? "a limit in dollars needs the price of the model"
                        : "the dollars of the budget are spent, " + Fixed(spent.charged_usd(), 4) +
                              " of " + Fixed(budget.usd, 4) + needs;
      out.limit = "usd";
      return out;
    }
  }
  out.limits.max_output_tokens = most;
  return out;
}

}  // namespace cudaforge
