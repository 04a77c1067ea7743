// What is known of one fault.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/process/worker_died.h"

namespace shoal::vector {

enum class FaultKind : std::uint8_t {
  kException,  // the environment's code raised
  kKilled,     // a signal ended the worker
  kHang,       // a deadline of the FaultPolicy passed; the worker was killed for it
  kMemory,     // the kernel, or the limit of its memory, ended the worker
  kExit,       // the worker ended itself
};
inline constexpr int kFaultKinds = 5;
std::string_view name(FaultKind kind) noexcept;

/// A value. One fault may cost several rows: those of a worker that died.
struct FaultRecord {
  FaultKind kind{};
  std::uint64_t number = 0;  // from 1, in the order in which they were found
  int worker = -1;
  int env = -1;        // whose code ran; -1: nobody's, or unknown
  int first_env = -1;  // the rows that it cost are [first_env, first_env + num_envs)
  int num_envs = 0;
  int pid = -1;
  int restarts = 0;                           // how often the place had been filled anew before
  std::optional<process::ExitStatus> status;  // of the worker, where it ended
  std::string message;                        // what happened, in a line
  std::string details;  // traceback, stack, last lines of output; may be empty
  std::optional<process::ErrorReport> report;
  /// What others were lost by as well; nullptr: nobody was. Records with the same cause have the
  /// same number.
  std::shared_ptr<const process::ZygoteEnd> cause = {};

  /// Several lines: the message and the details.
  std::string describe() const;
};
using Fault = std::shared_ptr<const FaultRecord>;

/// A fault's row in one batch.
struct RowFaultRecord {
  int row;
  Fault fault;
};

/// More faults than the FaultPolicy forgives, or no environment left (Python: shoal.TooManyFaults).
/// The text has all of them.
class TooManyFaults : public Error {
 public:
  TooManyFaults(const std::string& why, std::vector<Fault> faults);
  const std::vector<Fault>& faults() const noexcept { return faults_; }

 private:
  std::vector<Fault> faults_;
};

}  // namespace shoal::vector
