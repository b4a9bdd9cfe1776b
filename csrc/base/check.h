// CF_CHECK(cond) << "message": reports a caller's mistake. Throws CheckError, which the binding
// turns into a Python exception.
#pragma once

#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>

namespace cudaforge {

class CheckError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace internal {

// Collects the message of a failed check and throws it when the full expression ends.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition) {
    stream_.imbue(std::locale::classic());  // the global locale may group digits
    stream_ << file << ":" << line << ": check failed: " << condition << " ";
  }
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure() noexcept(false) {
    throw CheckError(stream_.str() + " (a bug in CudaForge: please report this line)");
  }
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Gives both branches of CF_CHECK's conditional the type void.
struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace internal

#define CF_CHECK(cond)                        \
  (cond) ? (void)0                            \
         : ::cudaforge::internal::Voidify() & \
               ::cudaforge::internal::CheckFailure(__FILE__, __LINE__, #cond).stream()

}  // namespace cudaforge
