// Retries: which failures to retry, and how long to wait.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/cancel.h"
#include "base/status.h"

namespace cudaforge {

struct RetryPolicy {
  int max_attempts = 6;
  double first_wait_s = 1;  // longest wait after the first failure; doubled after each further one
  double max_wait_s = 60;
};

// Clock, random numbers and sleep, replaceable in tests.
struct RetryClock {
  std::function<double()> now;          // seconds of a steady clock
  std::function<double()> unix_now;     // seconds since 1970
  std::function<double()> random;       // uniform in [0, 1)
  std::function<bool(double s)> sleep;  // false: cancelled
};

// The system's. `cancel` must outlive the result.
RetryClock RealClock(const Cancel& cancel);

// The result of one attempt.
struct Attempt {
  Status status;  // ok: done
  bool worth_retry = false;
  std::string retry_after;  // the header's value, if the server sent one
};

// Returns true for HTTP statuses that may be temporary: 408, 409, 429 and 5xx.
bool IsTransientHttpStatus(int status);

// Parses a Retry-After header: seconds, or an HTTP date (RFC 9110) relative to `unix_now`. 0 for a
// past date; nullopt: malformed.
std::optional<double> ParseRetryAfter(std::string_view value, double unix_now);

// Calls `attempt` until it succeeds, fails permanently, or the policy or `deadline_s` (on the
// clock's now) is exhausted. Waits as the server requests, else a random time below a limit that
// doubles. Does not begin a wait that ends after the deadline. Adds the number of calls to
// *attempts. Errors: the last attempt's; kCancelled: a sleep was interrupted.
Status RunWithRetries(const RetryPolicy& policy, const RetryClock& clock, double deadline_s,
                      const std::function<Attempt()>& attempt, int* attempts);

}  // namespace cudaforge
