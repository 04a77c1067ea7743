// The environments of one worker, as the worker loop sees them: native ones, or Python ones through
// the bindings.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/vector/rows.h"

namespace shoal::vector {

/// What a worker tells about its environments before there is any shared memory.
struct Hello {
  env::Space observation_space;
  env::Space action_space;
  std::vector<std::byte>
      extra;  // for the face above: pickled Gymnasium spaces, metadata, render mode
};

/// Where a stepper says which environment it is in, so that a failure, a death or a missed deadline
/// can be blamed on it, and which row it is writing, so that nobody reads a row that a dead worker
/// left half written.
///
/// A value that borrows one word. A call is one plain store; the fences cost nothing, they hold the
/// compiler back.
///
/// Death: a killed process has done a prefix of its program, so the word and the row agree.
class EnvMarker {
 public:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int32_t kAllRows = -2;
  static constexpr std::int32_t kWriting = 1 << 30;

  EnvMarker() = default;
  explicit EnvMarker(std::atomic<std::int32_t>* word) noexcept : word_(word) {}

  /// The environment of `row` runs its own code now; the row is whole.
  void at(int row) const noexcept { set(row); }
  /// The observation of `row` is being written.
  void writing(int row) const noexcept { set(row | kWriting); }
  /// All rows of this stepper are being stepped and written at once.
  void writing_all() const noexcept { set(kAllRows); }
  /// Nothing is going on that could be blamed on one environment.
  void none() const noexcept { set(kNone); }

  /// The row that is blamed, or kNone.
  static int blamed(std::int32_t word) noexcept { return word < 0 ? kNone : word & ~kWriting; }
  /// True when `row` may be half written.
  static bool torn(std::int32_t word, int row) noexcept {
    return word == kAllRows || word == (row | kWriting);
  }
  std::int32_t word() const noexcept {
    return word_ == nullptr ? kNone : word_->load(std::memory_order_relaxed);
  }

 private:
  void set(std::int32_t value) const noexcept {
    if (word_ == nullptr) return;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    word_->store(value, std::memory_order_relaxed);  // relaxed: other processes read it after a
                                                     // death, or for a report
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  std::atomic<std::int32_t>* word_ = nullptr;
};

/// Owns environments [lo, lo + count()) of the batch and reads and writes exactly those rows.
///
/// An exception thrown by reset(), step() or request() is reported to the caller with the
/// environment that the marker names. The stepper stays usable for request() and for destruction.
///
/// Threads: one at a time.
class Stepper {
 public:
  virtual ~Stepper() = default;

  virtual const Hello& hello() const = 0;
  virtual int count() const = 0;

  /// Called once, when the rows exist. `lo` is the row of this stepper's first environment.
  virtual void attach(const Rows& rows, int lo, EnvMarker marker) = 0;

  /// Resets the environments whose row has `reset_mask` set, with their row's seed where `has_seed`
  /// is set. Writes obs, reward 0, terminated, truncated, reset and has_final 0 of those rows, and
  /// nothing of the others.
  virtual void reset() = 0;

  /// Steps every environment with its row's action, with autoreset as the rows say (autoreset.h).
  virtual void step() = 0;

  /// What the last reset() or step() has to say beyond its rows (the infos), in the face's own
  /// format; empty when there is nothing. Asked for once after each, by the worker loop; valid
  /// until the next reset() or step().
  virtual std::span<const std::byte> info() { return {}; }

  /// Anything else, by message: attributes, method calls, rendering, options of the next reset. The
  /// bytes are the face's own, both ways.
  virtual std::vector<std::byte> request(std::span<const std::byte> message) = 0;
};

}  // namespace shoal::vector
