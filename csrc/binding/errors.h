// The translation from Status to Python exceptions.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "base/status.h"
#include "signature/aten_pch.h"

namespace cudaforge::binding {

// kInvalidArgument: ValueError, kNotFound: KeyError, kIoError: OSError, kTimeout: TimeoutError,
// kUnsupported: NotImplementedError, others: RuntimeError.
class StatusError : public std::runtime_error {
 public:
  explicit StatusError(const Status& status)
      : std::runtime_error(status.message()), code_(status.code()) {}
  StatusCode code() const { return code_; }

 private:
  StatusCode code_;
};

inline void ThrowIfError(const Status& status) {
  if (!status.ok()) throw StatusError(status);
}

template <typename T>
T ValueOrThrow(Result<T> result) {
  ThrowIfError(result.status());
  return std::move(result).value();
}

// Registers the translation, and CheckError as ValueError. Called once, by the module.
void RegisterErrors();

}  // namespace cudaforge::binding
