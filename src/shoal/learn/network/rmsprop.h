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

#include <span>
#include <vector>

#include "shoal/learn/network/optimizer.h"
#include "shoal/learn/network/parameters.h"

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

  void step(std::span<float> parameters, std::span<const float> gradient, double gradient_scale,
            double learning_rate) override;
  std::vector<Average> averages() noexcept override { return {{"square_avg", square_avg_.span()}}; }

 private:
  RmsPropOptions options_;
  AlignedFloats square_avg_;
};

}  // namespace shoal::learn
