#include "shoal/vector/step/frame_buffer.h"

#include <algorithm>
#include <cstring>

namespace shoal::vector {

FrameBuffer::FrameBuffer(const env::Space& observation, int n, int count) : n_(n) {
  for (const env::Leaf& leaf : env::leaves(observation)) {
    const std::int64_t rows = std::int64_t{count} * n;
    memory_.emplace_back(leaf.spec.bytes() * static_cast<std::size_t>(rows));
    views_.push_back({memory_.back().data(), rows, leaf.spec});
  }
}

void FrameBuffer::shift(int i) noexcept {
  for (std::size_t leaf = 0; leaf < views_.size(); ++leaf) {
    const std::size_t frame = views_[leaf].row_bytes();
    std::memmove(frames(leaf, i), frames(leaf, i) + frame, bytes(leaf) - frame);
  }
}

void FrameBuffer::fill(int i) noexcept {
  for (std::size_t leaf = 0; leaf < views_.size(); ++leaf) {
    const std::byte* const last = views_[leaf].row_data(newest(i));
    for (std::int64_t row = newest(i) - n_ + 1; row < newest(i); ++row) {
      std::memcpy(views_[leaf].row_data(row), last, views_[leaf].row_bytes());
    }
  }
}

void FrameBuffer::copy_to(std::span<const shm::TensorView> rows, int i, int row) const noexcept {
  for (std::size_t leaf = 0; leaf < views_.size(); ++leaf) {
    std::memcpy(rows[leaf].row_data(row), frames(leaf, i), bytes(leaf));
  }
}

std::vector<std::vector<std::byte>> FrameBuffer::save(int i) const {
  std::vector<std::vector<std::byte>> leaves;
  for (std::size_t leaf = 0; leaf < views_.size(); ++leaf) {
    leaves.emplace_back(frames(leaf, i), frames(leaf, i) + bytes(leaf));
  }
  return leaves;
}

void FrameBuffer::load(int i, std::span<const std::vector<std::byte>> leaves) noexcept {
  for (std::size_t leaf = 0; leaf < views_.size(); ++leaf) {
    std::memcpy(frames(leaf, i), leaves[leaf].data(), bytes(leaf));
  }
}

}  // namespace shoal::vector
