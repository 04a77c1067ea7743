// The worker's side of asynchronous environments: takes orders from its inbox, steps, delivers.
//
// The same body runs in a worker process, in a thread, and in the caller itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "shoal/process/error_report.h"
#include "shoal/vector/async/async_segment.h"
#include "shoal/vector/step/add_alone.h"
#include "shoal/vector/step/fault_guard.h"
#include "shoal/vector/step/session_worker.h"
#include "shoal/vector/step/stepper.h"

namespace shoal::vector {

/// What the host of a worker does for it. Empty members are skipped.
struct AsyncWorkerHooks {
  /// An environment that throws is let go where it can be replaced alone: its next order makes a
  /// new one.
  bool tolerant = false;
  /// Describes the exception that is being handled (inside a catch block). Empty: type and what().
  std::function<process::ErrorReport()> describe_exception;
  /// Called on the way of every order and of a hand-over, for the tests that kill workers there.
  std::function<void(const char* point)> pass;
  /// Brings an info to the caller that has no room in its block.
  std::function<void(int row, std::uint32_t sequence, std::span<const std::byte>)> bring_info;
  /// bring_info() may wait until the caller comes for it: the place is made ready first, and the
  /// info is lost when the worker dies between the two.
  bool bring_waits = false;
};

/// One worker's environments of one asynchronous vector environment.
///
/// Orders are obeyed as they came; of a divisible stepper those of the next 20 µs in the order of
/// their rows, neighbours by one call of the stepper's and one delivery.
///
/// An environment that throws is delivered with AsyncBlock::kFailed and the report as its info; the
/// others go on.
///
/// Threads: one at a time.
/// Death: an order that was taken and not delivered is found by the caller: its environment is in
/// flight and no place is ready for it.
/// Processes: the one whose environments it steps: a worker's, or the caller's own.
class AsyncWorker final : public SessionWorker {
 public:
  /// `first_env` is the row of the stepper's first environment; attaches the stepper.
  AsyncWorker(AsyncSegment segment, int worker, int first_env, std::unique_ptr<Stepper> stepper,
              AsyncWorkerHooks hooks = {});

  /// True when there are orders.
  bool pending() const noexcept { return segment_.inbox(worker_).readable() != 0; }

  int pending_orders() const noexcept override {
    return static_cast<int>(segment_.inbox(worker_).readable());
  }
  int serve(int most) override;
  Stepper& stepper() noexcept override { return *stepper_; }
  void count_park() noexcept override { add_alone(cell().parks, 1); }
  AsyncCell& cell() noexcept { return segment_.cell(worker_); }

 private:
  void pass(const char* point) {
    if (hooks_.pass) hooks_.pass(point);
  }

  using Run = std::span<const InboxEntry>;

  void take_turn(int most);
  void obey(Run run);
  void work(Order order, int lo, int hi);
  void deliver(Run run, std::uint8_t fault, std::span<const std::byte> info);
  sync::SlotPlace place_of(Run run);
  process::ErrorReport describe_failure();
  void learn_cost(std::uint64_t elapsed_ns, int count) noexcept;

  AsyncSegment segment_;
  const int worker_;
  const int first_env_;
  std::unique_ptr<Stepper> stepper_;
  AsyncWorkerHooks hooks_;
  EnvMarker marker_;
  FaultGuard guard_;
  std::vector<InboxEntry> turn_;  // orders that are taken together, by row
  double step_ns_ = 0;            // of one environment, smoothed; 0: not known yet
};

}  // namespace shoal::vector
