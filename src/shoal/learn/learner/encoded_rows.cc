#include "shoal/learn/learner/encoded_rows.h"

namespace shoal::learn {

std::span<const shm::TensorView> EncodedRows::encode(collect::ObservationEncoder& encoder,
                                                     std::span<const shm::TensorView> raw) {
  const std::int64_t rows = raw.front().rows;
  obs_.resize(encoder.specs().size());
  views_.clear();
  for (std::size_t leaf = 0; leaf < obs_.size(); ++leaf) {
    const shm::TensorSpec& spec = encoder.specs()[leaf];
    obs_[leaf].resize(static_cast<std::size_t>(rows) * spec.bytes());
    views_.push_back({obs_[leaf].data(), rows, spec});
  }
  encoder.encode(raw, views_, false);
  return views_;
}

shm::TensorView EncodedRows::actions(const shm::TensorSpec& spec, std::int64_t rows) {
  actions_.resize(static_cast<std::size_t>(rows) * spec.bytes());
  return {actions_.data(), rows, spec};
}

}  // namespace shoal::learn
