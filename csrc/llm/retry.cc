#include "llm/retry.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <random>
#include <thread>

namespace cudaforge {
namespace {

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// "Sun, 06 Nov 1994 08:49:37 GMT" as seconds since 1970.
std::optional<double> ParseHttpDate(std::string_view value) {
  constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm date = {};
  char month[4] = {};
  int end = 0;
  const std::string text(value);
  // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion): every field has a width
  const int fields =
      std::sscanf(text.c_str(), "%*3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d GMT%n", &date.tm_mday,
                  month, &date.tm_year, &date.tm_hour, &date.tm_min, &date.tm_sec, &end);
  const auto* const found = std::find(kMonths.begin(), kMonths.end(), month);
  if (fields != 6 || end != static_cast<int>(text.size()) || found == kMonths.end()) {
    return std::nullopt;
  }
  date.tm_mon = static_cast<int>(found - kMonths.begin());
  date.tm_year -= 1900;
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
  if (std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    // More digits than these are longer than any deadline.
    if (value.size() > 9) return 1e9;
    return static_cast<double>(std::stol(std::string(value)));
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
