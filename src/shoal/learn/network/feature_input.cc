#include "shoal/learn/network/feature_input.h"

#include <algorithm>

namespace shoal::learn {

FeatureInput::FeatureInput(const Features& features, const Parameters& parameters,
                           const MlpKernels& kernels, int threads)
    : dense_(features.dense),
      kernels_(kernels),
      width_(padded(features.width)),
      team_(features.images.empty() ? nullptr : std::make_unique<ThreadTeam>(threads)) {
  for (const auto& image : features.images)
    towers_.push_back(
        ConvolutionTower::create(image, features.precision, parameters, kernels, *team_));
}

void FeatureInput::reserve(std::int64_t rows) {
  if (rows <= capacity_) return;
  capacity_ = rows;
  input_ = AlignedFloats(static_cast<std::size_t>(rows * width_));
  if (towers_.empty()) return;
  d_features_ = AlignedFloats(static_cast<std::size_t>(rows * towers_.front()->features()));
}

void FeatureInput::parameters_changed() {
  for (auto& tower : towers_) tower->parameters_changed();
}

FloatRows FeatureInput::forward(std::span<const shm::TensorView> obs, std::int64_t from,
                                std::int64_t rows) {
  const float* x = dense_ > 0 ? reinterpret_cast<const float*>(obs[0].data) : nullptr;
  if (towers_.empty()) return {x + from * dense_, dense_};
  reserve(rows);
  for (std::int64_t r = 0; r < rows && dense_ > 0; ++r)
    std::copy_n(x + (from + r) * dense_, dense_, input_.data() + r * width_);
  std::int64_t column = dense_;
  for (std::size_t t = 0; t < towers_.size(); ++t) {
    towers_[t]->forward(obs[t + (dense_ > 0 ? 1 : 0)], from, rows, input_.data() + column, width_);
    column += towers_[t]->features();
  }
  return {input_.data(), width_};
}

FloatRows FeatureInput::forward_train(std::span<const shm::TensorView> obs,
                                      std::span<const std::int32_t> rows) {
  rows_ = static_cast<std::int64_t>(rows.size());
  reserve(rows_);
  const float* x = dense_ > 0 ? reinterpret_cast<const float*>(obs[0].data) : nullptr;
  for (std::int64_t r = 0; r < rows_ && dense_ > 0; ++r)
    std::copy_n(x + rows[static_cast<std::size_t>(r)] * dense_, dense_, input_.data() + r * width_);
  std::int64_t column = dense_;
  for (std::size_t t = 0; t < towers_.size(); ++t) {
    towers_[t]->forward_train(obs[t + (dense_ > 0 ? 1 : 0)], rows, input_.data() + column, width_);
    column += towers_[t]->features();
  }
  return kept();
}

FloatRows FeatureInput::kept() const noexcept { return {input_.data(), width_}; }

void FeatureInput::backward(const float* d_input, std::span<float> gradient) {
  std::int64_t column = dense_;
  for (auto& tower : towers_) {
    const std::int64_t features = tower->features();
    for (std::int64_t r = 0; r < rows_; ++r) {
      float* delta = d_features_.data() + r * features;
      std::copy_n(d_input + r * width_ + column, features, delta);
      kernels_.relu_slope(delta, input_.data() + r * width_ + column, features);
    }
    tower->backward(d_features_.data(), gradient);
    column += features;
  }
}

}  // namespace shoal::learn
