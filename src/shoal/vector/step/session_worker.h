// The environments of one vector environment in one worker, however their orders come.
#pragma once

#include "shoal/sync/doorbell.h"
#include "shoal/vector/step/stepper.h"

namespace shoal::vector {

/// Takes the orders of one session and steps its environments. pool_worker.h runs it.
///
/// Threads: one at a time.
/// Processes: the one whose environments it steps: a worker's, or the caller's own.
/// Death: as the derived class says.
class SessionWorker {
 public:
  virtual ~SessionWorker() = default;

  /// How many orders there are.
  virtual int pending_orders() const noexcept = 0;
  /// Obeys up to `most` orders; returns how many.
  virtual int serve(int most) = 0;

  virtual Stepper& stepper() noexcept = 0;
  /// The worker has gone to sleep once more.
  virtual void count_park() noexcept = 0;
  /// It has been asked something, and is about to answer.
  virtual void begin_request() noexcept {}
  /// What rings when there are orders or mail; nullptr: the pool's door.
  virtual sync::Doorbell* bell() noexcept { return nullptr; }
};

}  // namespace shoal::vector
