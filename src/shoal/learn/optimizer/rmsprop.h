// RMSProp (Tieleman and Hinton, 2012) over one flat buffer, in the two forms that are about.
//
//   s = alpha s + (1 - alpha) g²
//   PyTorch:      p -= lr g / (sqrt(s) + eps),   s = 0 at first
//   TensorFlow 1: p -= lr g / sqrt(s + eps),     s = 1 at first
//
// The second is Stable-Baselines3's RMSpropTFLike, and what A2C's published results were made with:
// its first steps are ten times smaller, and eps is under the root.
//
// Threads: one at a time. Bits depend on the gradient alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/learn/network/parameters.h"
#include "shoal/learn/optimizer/optimizer.h"

namespace shoal::learn {

struct RmsPropOptions {
  double alpha = 0.99;
  double eps = 1e-5;
  bool tensorflow = false;
};

/// As torch.optim.RMSprop without momentum, centring and weight decay, or as RMSpropTFLike.
class RmsProp final : public Optimizer {
 public:
  RmsProp(std::size_t size, RmsPropOptions options);

  std::vector<Average> averages() noexcept override { return {{"square_avg", square_avg_.span()}}; }
  void prepare(std::int64_t number, double gradient_scale, double learning_rate) noexcept override;
  void apply(float* parameters, const float* gradient, std::span<float* const> averages,
             std::size_t size) const noexcept override;

 private:
  RmsPropOptions options_;
  float scale_ = 1;  // of the step that was prepared
  float rate_ = 0;
  AlignedFloats square_avg_;
};

}  // namespace shoal::learn
