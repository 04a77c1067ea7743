// What every backend checks before it obeys: which call is under way, and what the rows allow.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/vector/step/stepper.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {

/// The state machine behind reset_async(), step_async(), request_async(), request() and the waits.
/// All its refusals are InvalidState.
///
/// Invariant: at most one call is under way; after fail() or close() none ever is again.
/// Threads: one at a time.
/// Processes, death: the caller's own, and ends with it.
class CallState {
 public:
  enum class Call : std::uint8_t { kNone, kReset, kStep, kRequest };

  /// `step_before_reset`: whether an environment that was never reset may be stepped.
  explicit CallState(int num_envs, bool step_before_reset = false)
      : never_reset_(static_cast<std::size_t>(num_envs), step_before_reset ? 0 : 1),
        all_reset_(step_before_reset) {}

  /// Refuses while another call is under way, after close() and after a failure. A mask counts its
  /// rows as reset.
  void begin_reset(std::span<const std::uint8_t> mask);
  /// Refuses also while some environment has never been reset.
  void begin_step();
  /// Refuses what begin_reset() refuses.
  void begin_request();
  /// The same checks without beginning anything. `what` is the name for the message.
  void require_idle(const char* what) const;
  /// Refuses after close() and after a failure.
  void require_open(const char* what) const;

  /// Refuses when neither a reset nor a step is under way; returns which one is.
  Call require_pending() const;
  /// Refuses when no request is under way.
  void require_pending_request() const;
  /// The call under way has its result.
  void finish() noexcept { call_ = Call::kNone; }
  /// The reset or step under way was ended in the midst of an environment: all of them are to be reset.
  void interrupt() noexcept;
  /// Whether it was, and nothing has been reset since.
  bool interrupted() const noexcept { return interrupted_; }
  /// Refuses after interrupt() until a reset.
  void require_uninterrupted(const char* what) const;

  Call call() const noexcept { return call_; }

  /// From now on every call is refused because of `why`.
  void fail(std::string why);
  void close() noexcept;
  bool closed() const noexcept { return closed_; }
  bool failed() const noexcept { return !failure_.empty(); }

 private:
  Call call_ = Call::kNone;
  bool closed_ = false;
  std::string failure_;
  std::vector<std::uint8_t> never_reset_;
  bool all_reset_ = false;
  bool interrupted_ = false;  // since when nothing was reset
};

/// Writes what a reset needs into the rows. Throws InvalidArgument when a span has neither no
/// elements nor one per environment, or when the mask selects none.
void write_reset_rows(const Rows& rows, std::span<const std::optional<std::uint64_t>> seeds,
                      std::span<const std::uint8_t> mask);

/// The rows as the caller sees them.
Batch batch_of(const Rows& rows) noexcept;

/// Throws SpacesDiffer when `other`, whose first environment is `env`, has other spaces than
/// environment 0.
void check_same_spaces(const Hello& first, const Hello& other, int env);

/// The spaces of steppers that are to share one batch. Throws InvalidArgument when there are none,
/// or they differ.
Hello common_spaces(std::span<const std::unique_ptr<Stepper>> steppers);
int count_envs(std::span<const std::unique_ptr<Stepper>> steppers) noexcept;

/// The number of environments of worker `worker` when `num_envs` are divided among `num_workers`:
/// as even as possible, the earlier workers have one more.
int envs_of_worker(int num_envs, int num_workers, int worker) noexcept;

}  // namespace shoal::vector
