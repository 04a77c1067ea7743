// The errors of processes that ended before their work did.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/process/error_report.h"
#include "shoal/process/launcher.h"

namespace shoal::process {

/// All that is known about the end of a worker; a value.
struct DeathCertificate {
  std::string worker;  // WorkerSpec::name
  int index = -1;
  int first_env = -1;  // its environments were [first_env, first_env + num_envs)
  int num_envs = 0;
  int pid = -1;
  ExitStatus status;
  std::string cause;            // what this side knows beyond the status; may begin with headline()
  std::string kind = "killed";  // vector::FaultKind by name
  std::string stack;            // where it was, when it was asked before its end
  std::optional<ErrorReport> report;  // that it sent before it ended
  std::vector<std::string> log_tail;  // its last lines, oldest first

  /// "worker 1 (pid 4711, environments 4 to 7) ended with signal 9 (SIGKILL)".
  std::string headline() const;
  /// Several lines: the headline, the cause, its traceback, its last lines.
  std::string describe() const;

  /// Of a worker that has ended or is about to: waits up to `grace` for its exit status. Looks in
  /// the unread messages of its channel for an error report.
  static DeathCertificate of(WorkerProcess& worker,
                             std::chrono::milliseconds grace = std::chrono::milliseconds(1000));
};

/// A worker process ended while it was needed (Python: shoal.WorkerDied, a RuntimeError).
class WorkerDied : public Error {
 public:
  explicit WorkerDied(DeathCertificate certificate);
  const DeathCertificate& certificate() const noexcept { return certificate_; }

 private:
  DeathCertificate certificate_;
};

/// No worker could be started: the zygote's or the worker's program failed before any entry ran
/// (Python: RuntimeError). The text names what failed, with its traceback and last lines.
class StartFailed : public Error {
 public:
  explicit StartFailed(const std::string& what, std::shared_ptr<const ZygoteEnd> zygote = {})
      : Error(what), zygote_(std::move(zygote)) {}
  /// The end of the zygote that was the cause; nullptr where none ended.
  const std::shared_ptr<const ZygoteEnd>& zygote() const noexcept { return zygote_; }

 private:
  std::shared_ptr<const ZygoteEnd> zygote_;
};

}  // namespace shoal::process
