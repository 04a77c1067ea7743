// What is said of a fault: the same words, whichever engine found it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "shoal/os/memory/memory_use.h"
#include "shoal/process/worker_died.h"
#include "shoal/vector/fault/fault_policy.h"
#include "shoal/vector/fault/fault_record.h"

namespace shoal::vector {

/// Why this side ended a worker. A value.
struct KillReason {
  FaultKind kind{};
  int env = -1;  // whose code ran; -1: nobody's, or unknown
  std::string message;
  std::string stack;  // where it was; empty: it was not asked

  /// An environment passed a deadline. `env` -1: one of the worker's, nobody knows which.
  static KillReason hang(int env, int first_env, int num_envs, bool in_reset,
                         std::chrono::milliseconds limit);
  /// `worker`, as describe_worker() names it, has not built its environments within start_timeout.
  static KillReason hung_start(const std::string& worker, std::chrono::milliseconds start_timeout);
  static KillReason over_limit(const std::string& worker, std::uint64_t bytes, std::uint64_t limit,
                               int env);
};

/// A worker's place in a vector environment, for the accounts below. A value.
struct FaultScene {
  int worker = -1;
  std::string name;
  int first_env = 0;
  int num_envs = 0;
  int pid = -1;

  /// "worker 1 (environments 32 to 63)".
  std::string describe() const;
};

/// Whether the kernel ended a worker, or the zygote that took it along, for want of memory.
///
/// Threads: one at a time.
/// Processes: the caller's.
/// Death: of the worker: it is what this object looks for evidence of.
class OomEvidence {
 public:
  /// What speaks for it; nothing when nothing does. Asked once for each end: workers of one zygote
  /// get the same answer.
  std::optional<std::string> of(const process::ExitStatus& status);

 private:
  os::OomWatch watch_;
  std::shared_ptr<const process::ZygoteEnd> zygote_;  // the last one that was asked for
  std::optional<std::string> found_;                  // for it
};

/// The worker has ended, and all its rows with it. `env`: whose code ran, as its marker says;
/// `reason` may be null.
FaultRecord account_of_death(const FaultScene& scene, const process::DeathCertificate& certificate,
                             int env, const KillReason* reason, OomEvidence& oom_evidence);
/// One environment has failed, and its worker goes on.
FaultRecord account_of_failure(const FaultScene& scene, process::ErrorReport report);
/// The worker's replacement did not come to be: `what` says how ("could not be started").
FaultRecord account_of_failed_start(const FaultScene& scene, const char* what,
                                    process::ErrorReport report);
/// The same for the exception that is being handled (inside a catch block), of Launcher::start().
FaultRecord account_of_failed_start(const FaultScene& scene);
FaultRecord account_of_hung_start(const FaultScene& scene, std::chrono::milliseconds start_timeout,
                                  const std::string& stack);
/// A worker's first start took too long: what the caller is told. `late` says who has not done
/// what.
std::string account_of_late_start(const std::string& late, std::chrono::milliseconds start_timeout,
                                  const std::string& stack);

/// Adds to what is raised about a death (OnFault::kRaise) what its record knows.
void complete(process::DeathCertificate& certificate, const FaultRecord& record,
              const KillReason* reason);

/// "worker 1 (environments 32 to 63)", "worker 0 (environment 3)".
std::string describe_worker(const std::string& name, int first_env, int num_envs);

/// The seed of a row's new environment: another one than that of the environment before it, and the
/// same whenever the same happens. `seed` is the row's last explicit one, `restarts` how many new
/// environments it has had.
std::uint64_t renewal_seed(std::uint64_t seed, int restarts) noexcept;

}  // namespace shoal::vector
