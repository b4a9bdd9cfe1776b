// Status and Result<T>: the return types for failures that can be expected (a cache miss, a corrupt
// record, a compile error, a timeout). They are values and never throw. For a caller's mistake use
// CF_CHECK (base/check.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace cudaforge {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // an argument is malformed or out of range
  kNotFound,         // nothing is stored under this name
  kCorruption,       // stored or received bytes fail their check
  kIoError,          // the operating system refused
  kUnavailable,      // a required library, compiler or device is missing
  kUnsupported,      // well formed, but this build does not handle it
  kTimeout,          // a limit of time or size was reached
  kCancelled,        // the caller requested a stop
  kNoMemory,         // too little memory is free on the host or the device
  kMemoryFault,      // a device accessed memory that it may not
  kInternal,         // our own fault
};

// "invalid argument", "not found", ...
std::string_view StatusCodeName(StatusCode code);
// Returns the code with that name; nullopt for any other text.
std::optional<StatusCode> ParseStatusCode(std::string_view name);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }
  static Status InvalidArgument(std::string m) {
    return {StatusCode::kInvalidArgument, std::move(m)};
  }
  static Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
  static Status Corruption(std::string m) { return {StatusCode::kCorruption, std::move(m)}; }
  static Status IoError(std::string m) { return {StatusCode::kIoError, std::move(m)}; }
  static Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
  static Status Unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
  static Status Timeout(std::string m) { return {StatusCode::kTimeout, std::move(m)}; }
  static Status Cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
  static Status NoMemory(std::string m) { return {StatusCode::kNoMemory, std::move(m)}; }
  static Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "corruption: record checksum differs"; "ok" when ok.
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// Either a T or a non-ok Status.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {
    CF_CHECK(!status_.ok()) << "a Result without a value needs an error";
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    CF_CHECK(ok()) << status_.ToString();
    return *value_;
  }
  const T& value() const& {
    CF_CHECK(ok()) << status_.ToString();
    return *value_;
  }
  T&& value() && {
    CF_CHECK(ok()) << status_.ToString();
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

#define CF_CONCAT_INNER(a, b) a##b
#define CF_CONCAT(a, b) CF_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr` (a Status) is an error.
#define CF_RETURN_IF_ERROR(expr)             \
  do {                                       \
    ::cudaforge::Status cf_status_ = (expr); \
    if (!cf_status_.ok()) return cf_status_; \
  } while (false)

// CF_ASSIGN_OR_RETURN(auto x, F()): x = the value of F(), or return its error.
#define CF_ASSIGN_OR_RETURN(lhs, expr) \
  CF_ASSIGN_OR_RETURN_IMPL(CF_CONCAT(cf_result_, __LINE__), lhs, expr)
#define CF_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                             \
  if (!result.ok()) return result.status();         \
  lhs = std::move(result).value()

}  // namespace cudaforge
