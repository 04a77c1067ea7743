// A worker's failure as bytes, so that it can be raised again in the parent.
//
// On the wire (little-endian, version 1), as one message on the worker's channel:
//
//   0        4         8        12          16      20         24                  32
//   | magic  | version | flags  | env_index | code  | step     | last_seed         | …
//
// then, each as u32 length and bytes: type, message, traceback, last_action, extra. A message that
// begins with the magic is an ErrorReport; the entries' own protocols do not use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/os/error.h"

namespace shoal::process {

/// What failed, where, and with which traceback; a value.
struct ErrorReport {
  std::string type;       // the exception's type as the worker's language names it: "ValueError",
                          // "my.module.Crash"
  std::string message;    // str(exception), what()
  std::string traceback;  // formatted, ends with a newline; may be empty (C++)
  int env_index = -1;     // row of the environment whose call failed
  int code = 0;           // errno for OSError and SystemError
  int episode_step = -1;  // how many steps its episode had before the call that failed
  std::optional<std::uint64_t> last_seed;
  std::string last_action;  // as text
  std::vector<std::byte>
      extra;  // for the face above: the pickled exception, where it can be pickled

  /// The report of the exception that is being handled, inside a catch block. Long texts are
  /// shortened in the middle.
  static ErrorReport from_current_exception();

  std::vector<std::byte> encode() const;
  /// Nothing when `message` does not begin with the magic of a report. Throws Error for a damaged
  /// report.
  static std::optional<ErrorReport> decode(std::span<const std::byte> message);

  /// The text that the parent's error shows: type, message, environment, traceback.
  std::string describe() const;
};

/// Code in a worker failed, and the worker reported it; the worker may still be running.
class RemoteError : public Error {
 public:
  RemoteError(const std::string& worker, ErrorReport report);
  const std::string& worker() const noexcept { return worker_; }
  const ErrorReport& report() const noexcept { return report_; }

  /// What failed in other workers in the same call.
  const std::vector<RemoteError>& others() const noexcept { return others_; }
  void also(RemoteError other) { others_.push_back(std::move(other)); }

 private:
  std::string worker_;
  ErrorReport report_;
  std::vector<RemoteError> others_;
};

}  // namespace shoal::process
