// The exceptions that Shoal throws.
//
// A message says what was attempted, on which object, with which value, what the limit is, and what
// to do about it. Expected outcomes (full, empty, timed out, peer gone) are not exceptions but
// [[nodiscard]] enums.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>

namespace shoal {

/// Base of all of Shoal's own exceptions.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller gave a value that cannot be used (Python: ValueError).
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A deadline passed (Python: TimeoutError).
class TimedOut : public Error {
 public:
  using Error::Error;
};

/// An object was used in a state that does not allow it, for example after close() (Python:
/// RuntimeError).
class InvalidState : public Error {
 public:
  using Error::Error;
};

/// A system call failed (Python: OSError with the same errno).
class SystemError : public Error {
 public:
  /// `attempt` reads as in "create a memfd of 4096 bytes"; the text of `error_number` is appended.
  explicit SystemError(const std::string& attempt, int error_number = errno);
  int error_number() const noexcept { return error_number_; }

 private:
  int error_number_;
};

namespace internal {
[[noreturn]] void check_failed(const char* condition, const char* file, int line, const char* why);
}  // namespace internal

}  // namespace shoal

/// Aborts with `why` when a condition that only a bug in Shoal can break does not hold. User input
/// never reaches one.
#define SHOAL_CHECK(condition, why) \
  (static_cast<bool>(condition)     \
       ? static_cast<void>(0)       \
       : ::shoal::internal::check_failed(#condition, __FILE__, __LINE__, why))
