// How a request to a model may end without an answer. Python has the same names in shoal.errors.
#pragma once

#include <string>

#include "shoal/os/error.h"

namespace shoal::serve {

/// The open batch is full and the caller does not want to wait, or has asked for more rows than
/// there may be in flight; or the server has no descriptors for one more client.
class OverCapacity : public Error {
 public:
  using Error::Error;
};

/// The request's deadline passed before there was a reply (Python: also a TimeoutError).
class DeadlineExceeded : public TimedOut {
 public:
  using TimedOut::TimedOut;
};

/// The request was cancelled by its owner.
class Cancelled : public Error {
 public:
  using Error::Error;
};

/// The model failed on this row, or refuses rows like it.
class ModelError : public Error {
 public:
  explicit ModelError(const std::string& message, std::string traceback = {})
      : Error(message), traceback_(std::move(traceback)) {}
  /// As the model's language formats it; may be empty.
  const std::string& traceback() const noexcept { return traceback_; }

 private:
  std::string traceback_;
};

/// The service has ended, or its process has; a request that was under way has no reply.
class ServiceDied : public Error {
 public:
  using Error::Error;
};

}  // namespace shoal::serve
