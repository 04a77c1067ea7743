// What is recorded of faults, and thrown, whichever engine finds them.
#pragma once

#include <vector>

#include "shoal/process/error_report.h"
#include "shoal/process/worker_died.h"
#include "shoal/vector/call_state.h"
#include "shoal/vector/fault/fault_account.h"
#include "shoal/vector/fault/fault_ledger.h"
#include "shoal/vector/fault/health.h"

namespace shoal::vector {

/// Carries out a FaultPolicy for one vector environment: the account of a fault goes to the ledger
/// and to the workers' health, or it is raised.
///
/// Threads: the caller's.
/// Processes, death: the caller's own, and ends with it.
class FaultRecorder {
 public:
  FaultRecorder(const FaultPolicy& policy, int num_envs, CallState& state, HealthTable& health);

  FaultLedger& ledger() noexcept { return ledger_; }
  const FaultLedger& ledger() const noexcept { return ledger_; }
  /// The last fault that `row` was lost in; may be null.
  const Fault& last_of(int row) const { return last_of_[static_cast<std::size_t>(row)]; }

  /// The account of a death of `worker` in `scene`; `env` and `reason` as for account_of_death().
  /// With OnFault::kRaise nothing can be done afterwards: throws WorkerDied.
  FaultRecord account(int worker, const FaultScene& scene, process::DeathCertificate certificate,
                      int env, const KillReason* reason);
  /// Takes a fault down, and says it in the log. Throws TooManyFaults.
  Fault admit(int worker, FaultRecord record);
  /// For OnFault::kRaise: what is thrown about environments that failed, after which nothing can be
  /// done.
  process::RemoteError failure(const FaultScene& scene, process::ErrorReport report);

 private:
  const FaultPolicy& policy_;
  CallState& state_;
  HealthTable& health_;
  FaultLedger ledger_;
  OomEvidence oom_evidence_;
  std::vector<Fault> last_of_;  // by row
};

}  // namespace shoal::vector
