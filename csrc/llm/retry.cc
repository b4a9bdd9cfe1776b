#include "llm/retry.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/text.h"

namespace cudaforge {
namespace {

// The number in `count` digits of `text` at `at`; nullopt unless all are digits.
std::optional<int> DigitsAt(std::string_view text, size_t at, size_t count) {
  int number = 0;
  for (const char c : text.substr(at, count)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  return number;
}

// Converts "Sun, 06 Nov 1994 08:49:37 GMT" to seconds since 1970. All fields have fixed places.
std::optional<double> ParseHttpDate(std::string_view value) {
  constexpr std::string_view kForm = "ddd, 00 mmm 0000 00:00:00 GMT";
  constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  if (value.size() != kForm.size()) return std::nullopt;
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool fixed = kForm[i] != '0' && kForm[i] != 'd' && kForm[i] != 'm';
    if (fixed && value[i] != kForm[i]) return std::nullopt;
  }
  const auto* const month = std::find(kMonths.begin(), kMonths.end(), value.substr(8, 3));
  const auto day = DigitsAt(value, 5, 2), year = DigitsAt(value, 12, 4);
  const auto hour = DigitsAt(value, 17, 2), minute = DigitsAt(value, 20, 2);
  const auto second = DigitsAt(value, 23, 2);
  if (month == kMonths.end() || !day || !year || !hour || !minute || !second) return std::nullopt;
  std::tm date = {};
  date.tm_year = *year - 1900;
  date.tm_mon = static_cast<int>(month - kMonths.begin());
  date.tm_mday = *day;
  date.tm_hour = *hour;
  date.tm_min = *minute;
  date.tm_sec = *second;
  return static_cast<double>(timegm(&date));
}

}  // namespace

RetryClock RealClock(const Cancel& cancel) {
  RetryClock clock;
  clock.now = SteadySeconds;
  clock.unix_now = [] { return static_cast<double>(std::time(nullptr)); };
  clock.random = [] {
    thread_local std::mt19937_64 generator{std::random_device{}()};
    return std::uniform_real_distribution<double>(0, 1)(generator);
  };
  clock.sleep = [&cancel](double seconds) {
    const double end = SteadySeconds() + seconds;
    while (!cancel.IsSet()) {
      const double left = end - SteadySeconds();
      if (left <= 0) return true;
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, 0.05)));
    }
    return false;
  };
  return clock;
}

bool IsTransientHttpStatus(int status) {
  return status == 408 || status == 409 || status == 429 || (status >= 500 && status <= 599);
}

std::optional<double> ParseRetryAfter(std::string_view value, double unix_now) {
  const size_t begin = value.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  value = value.substr(begin, value.find_last_not_of(" \t") - begin + 1);
  if (std::all_of(value.begin(), value.end(), IsDigit)) {
    // A number with more digits is longer than any deadline.
    if (value.size() > 9) return 1e9;
    return static_cast<double>(ParseInteger<int64_t>(value).value_or(0));
  }
  const std::optional<double> date = ParseHttpDate(value);
  if (!date.has_value()) return std::nullopt;
  return std::max(0.0, *date - unix_now);
}

Status RunWithRetries(const RetryPolicy& policy, const RetryClock& clock, double deadline_s,
                      const std::function<Attempt()>& attempt, int* attempts) {
  double longest = policy.first_wait_s;
  for (int number = 1;; ++number) {
    ++*attempts;
    const Attempt result = attempt();
    if (result.status.ok() || !result.worth_retry) return result.status;
    const std::string message = result.status.message();
    if (number >= policy.max_attempts) {
      return {result.status.code(),
              message + " (attempt " + std::to_string(number) + ", the last)"};
    }
    const std::optional<double> asked = ParseRetryAfter(result.retry_after, clock.unix_now());
    const double wait = asked.value_or(std::min(longest, policy.max_wait_s) * clock.random());
    longest = std::min(longest * 2, policy.max_wait_s);
    if (clock.now() + wait >= deadline_s) {
      const std::string seconds = std::to_string(static_cast<int64_t>(std::ceil(wait)));
      return {result.status.code(), message + " (attempt " + std::to_string(number) +
                                        "; a wait of " + seconds +
                                        " s would end after the deadline)"};
    }
    if (!clock.sleep(wait)) return Status::Cancelled("cancelled while waiting to try again");
  }
}

}  // namespace cudaforge
