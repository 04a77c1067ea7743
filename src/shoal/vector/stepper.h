// The environments of one worker, as the worker loop sees them: native ones, or Python ones through the bindings.
#pragma once

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

/// Owns environments [lo, hi) of the batch and reads and writes exactly those rows.
class Stepper {
 public:
  virtual ~Stepper() = default;

  virtual const Hello& hello() const = 0;
  virtual int count() const = 0;

  /// Called once, when the rows exist. `lo` is the row of this stepper's first environment.
  virtual void attach(const Rows& rows, int lo) = 0;

  /// Resets the environments whose row has `command.reset_mask` set, with their row's seed where it has one.
  virtual void reset() = 0;

  /// Steps every environment with its row's action, with autoreset as the rows say.
  virtual void step() = 0;

  /// Anything else, by message: attributes, method calls, rendering. The bytes are the face's own.
  virtual std::vector<std::byte> request(std::span<const std::byte> message) = 0;
};

}  // namespace shoal::vector
