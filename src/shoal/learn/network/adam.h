// Adam (Kingma and Ba, 2015) over one flat buffer.
//
// Threads: one at a time. Bits depend on the gradient alone.
#pragma once

#include <span>
#include <vector>

#include "shoal/learn/network/optimizer.h"
#include "shoal/learn/network/parameters.h"

namespace shoal::learn {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-5;
};

/// As torch.optim.Adam without weight decay.
class Adam final : public Optimizer {
 public:
  Adam(std::size_t size, AdamOptions options)
      : options_(options), exp_avg_(size), exp_avg_sq_(size) {}

  void step(std::span<float> parameters, std::span<const float> gradient, double gradient_scale,
            double learning_rate) override;
  std::vector<Average> averages() noexcept override {
    return {{"exp_avg", exp_avg_.span()}, {"exp_avg_sq", exp_avg_sq_.span()}};
  }

 private:
  AdamOptions options_;
  AlignedFloats exp_avg_;
  AlignedFloats exp_avg_sq_;
};

}  // namespace shoal::learn
