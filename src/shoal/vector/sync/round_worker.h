// The worker's side of environments that are stepped together: obeys the commands that the parent
// leaves in the control block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "shoal/process/error_report.h"
#include "shoal/sync/doorbell.h"
#include "shoal/vector/step/add_alone.h"
#include "shoal/vector/step/fault_guard.h"
#include "shoal/vector/step/session_worker.h"
#include "shoal/vector/sync/control_block.h"
#include "shoal/vector/workers/pool_messages.h"

namespace shoal::vector {

/// What the host of a RoundWorker does for it.
struct RoundWorkerHooks {
  /// An environment that throws is let go where it can be replaced alone; the others go on.
  bool tolerant = false;
  /// Describes the exception that is being handled (inside a catch block). Empty: type and what().
  std::function<process::ErrorReport()> describe_exception;
  /// Sends a message to the parent; false when it is gone.
  std::function<bool(PoolMessage message)> send;
};

/// One worker's environments of a ProcessVectorEnv.
///
/// Threads: one at a time.
/// Death: a command is not done (WorkerCell) before its rows are written.
/// Processes: the worker's.
class RoundWorker final : public SessionWorker {
 public:
  /// `first_env` is the row of the stepper's first environment, `sequence` that of the last command
  /// that is none of its business; attaches the stepper.
  RoundWorker(ControlBlock control, int worker, int first_env, std::uint64_t sequence,
              std::unique_ptr<Stepper> stepper, RoundWorkerHooks hooks);

  /// 1 where a command was left that has not been obeyed yet.
  int pending_orders() const noexcept override {
    return WorkerCell::sequence_of(command_word()) != sequence_ ? 1 : 0;
  }
  int serve(int most) override;
  Stepper& stepper() noexcept override { return *stepper_; }
  void count_park() noexcept override { add_alone(cell_->parks, 1); }
  void begin_request() noexcept override { add_alone(cell_->requests, 1); }
  sync::Doorbell* bell() noexcept override { return &control_.doorbell(); }

 private:
  std::uint64_t command_word() const noexcept {
    return cell_->command.load(std::memory_order_acquire);  // [command]
  }
  void step_or_reset(Command command, int obs_set);
  void tell_faults(std::span<const process::ErrorReport> reports, bool all);
  void publish_info();
  process::ErrorReport describe_failure();

  ControlBlock control_;
  const int worker_;
  WorkerCell* const cell_;
  std::unique_ptr<Stepper> stepper_;
  RoundWorkerHooks hooks_;
  EnvMarker marker_;
  FaultGuard guard_;
  std::uint64_t sequence_;  // of the command that was obeyed last, or is being obeyed
};

}  // namespace shoal::vector
