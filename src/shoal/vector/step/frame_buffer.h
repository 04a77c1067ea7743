// The last observations of environments that hand theirs over one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/shm/tensor.h"

namespace shoal::vector {

/// For each of `count` environments its last `n` observations, oldest first, in memory of its own.
///
/// Threads: one at a time for one environment.
/// Processes, death: the stepper's own, and ends with it.
class FrameBuffer {
 public:
  FrameBuffer() = default;
  FrameBuffer(const env::Space& observation, int n, int count);

  /// False for a default-constructed one: observations as they are.
  bool active() const noexcept { return n_ > 0; }

  /// Where environment `i`'s newest observation is to be written: row newest(i) of these arrays,
  /// one a leaf.
  std::span<const shm::TensorView> views() const noexcept { return views_; }
  std::int64_t newest(int i) const noexcept { return std::int64_t{i} * n_ + n_ - 1; }

  /// Makes room for a new observation: the oldest is forgotten.
  void shift(int i) noexcept;
  /// The newest observation becomes all of them.
  void fill(int i) noexcept;
  /// To row `row` of arrays with all `n` in a row.
  void copy_to(std::span<const shm::TensorView> rows, int i, int row) const noexcept;

  /// The same bytes, leaf by leaf.
  std::vector<std::vector<std::byte>> save(int i) const;
  void load(int i, std::span<const std::vector<std::byte>> leaves) noexcept;

 private:
  std::byte* frames(std::size_t leaf, int i) const noexcept {
    return views_[leaf].row_data(std::int64_t{i} * n_);
  }
  std::size_t bytes(std::size_t leaf) const noexcept {
    return views_[leaf].row_bytes() * static_cast<std::size_t>(n_);
  }

  int n_ = 0;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<shm::TensorView> views_;
};

}  // namespace shoal::vector
