// The environments of one worker, as the worker loop sees them: native ones, or Python ones through the bindings.
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
  std::vector<std::byte> extra;  // for the face above: pickled Gymnasium spaces, metadata, render mode
};

/// Where a stepper says which environment it is in, so that a failure, a death or a missed deadline can be blamed on it.
/// A value that borrows one counter; costs one relaxed store.
class EnvMarker {
 public:
  static constexpr std::int32_t kNone = -1;

  EnvMarker() = default;
  explicit EnvMarker(std::atomic<std::int32_t>* word) : word_(word) {}

  /// `row` is being reset or stepped now.
  void at(int row) const noexcept {
    if (word_ != nullptr) word_->store(row, std::memory_order_relaxed);  // relaxed: read for reports only
  }
  /// Nothing that could be blamed on one environment is going on.
  void none() const noexcept { at(kNone); }
  int row() const noexcept {
    return word_ == nullptr ? kNone : word_->load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::int32_t>* word_ = nullptr;
};

/// Owns environments [lo, lo + count()) of the batch and reads and writes exactly those rows.
///
/// An exception thrown by reset(), step() or request() is reported to the caller with the environment that the marker
/// names. The stepper stays usable for request() and for destruction.
///
/// Threads: one at a time.
class Stepper {
 public:
  virtual ~Stepper() = default;

  virtual const Hello& hello() const = 0;
  virtual int count() const = 0;

  /// Called once, when the rows exist. `lo` is the row of this stepper's first environment.
  virtual void attach(const Rows& rows, int lo, EnvMarker marker) = 0;

  /// Resets the environments whose row has `reset_mask` set, with their row's seed where `has_seed` is set. Writes obs,
  /// reward 0, terminated, truncated, reset and has_final 0 of those rows, and nothing of the others.
  virtual void reset() = 0;

  /// Steps every environment with its row's action, with autoreset as the rows say (autoreset.h).
  virtual void step() = 0;

  /// What the last reset() or step() has to say beyond its rows (the infos), in the face's own format; empty when there
  /// is nothing. Asked for once after each, by the worker loop; valid until the next reset() or step().
  virtual std::span<const std::byte> info() { return {}; }

  /// Anything else, by message: attributes, method calls, rendering, options of the next reset. The bytes are the face's
  /// own, both ways.
  virtual std::vector<std::byte> request(std::span<const std::byte> message) = 0;
};

}  // namespace shoal::vector
