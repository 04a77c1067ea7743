// From a policy's actions to the environment's: floats clipped to the bounds of a Box, and to the
// nearest integer where it has integers, indices shifted by the start of a Discrete or
// MultiDiscrete, bits of a MultiBinary, each in the space's element type.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/shm/tensor.h"

namespace shoal::collect {

class ActionDecoder {
 public:
  /// Throws InvalidArgument for a space that it does not cover (Dict, Tuple), saying what to do.
  explicit ActionDecoder(const env::Space& space);

  /// One row of the policy's form: float32 [elements] for a Box, else int32 [components].
  const shm::TensorSpec& spec() const noexcept { return spec_; }
  bool is_continuous() const noexcept { return categories_.empty(); }
  /// Number of choices of each component; empty for a Box.
  const std::vector<std::int64_t>& categories() const noexcept { return categories_; }
  /// Bounds of each element of a Box; infinite where there is none.
  const std::vector<double>& low() const noexcept { return low_; }
  const std::vector<double>& high() const noexcept { return high_; }

  /// Writes `rows` rows of `policy` as the environment takes them. `to` is the one leaf of its
  /// action space.
  void decode(const shm::TensorView& policy, const shm::TensorView& to) const;

 private:
  shm::TensorSpec spec_;
  std::vector<std::int64_t> categories_;
  std::vector<std::int64_t> start_;
  std::vector<double> low_;
  std::vector<double> high_;
};

}  // namespace shoal::collect
