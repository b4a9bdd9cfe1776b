// Trying again: which faults are worth it, and how long to wait in between.
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
  double first_wait_s = 1;  // the longest wait after the first failure; doubled after each other
  double max_wait_s = 60;
};

// Time and chance, replaceable in tests.
struct RetryClock {
  std::function<double()> now;          // seconds of a steady clock
  std::function<double()> unix_now;     // seconds since 1970
  std::function<double()> random;       // evenly spread over [0, 1)
  std::function<bool(double s)> sleep;  // false: cancelled meanwhile
};

// The real ones. `cancel` must outlive the result.
RetryClock RealClock(const Cancel& cancel);

// What one attempt came to.
struct Attempt {
  Status status;  // ok: done
  bool worth_retry = false;
  std::string retry_after;  // the header's value, if the server sent one
};

// True for the HTTP statuses that may go away by themselves: 408, 409, 429 and 5xx.
bool IsTransientHttpStatus(int status);

// Seconds to wait that a Retry-After header asks for: a number of seconds, or an HTTP date
// (RFC 9110) against `unix_now`. 0 for a date that is past; nullopt when it is malformed.
std::optional<double> ParseRetryAfter(std::string_view value, double unix_now);

// Calls `attempt` until it succeeds, fails for good, or the policy or `deadline_s` (on the clock's
// now) leaves no room. Waits are what the server asks for, else random between 0 and a limit that
// doubles; a wait that would end after the deadline is not begun. Adds the calls made to *attempts.
// Errors: the last attempt's; kCancelled when a sleep was cut short.
Status RunWithRetries(const RetryPolicy& policy, const RetryClock& clock, double deadline_s,
                      const std::function<Attempt()>& attempt, int* attempts);

}  // namespace cudaforge
