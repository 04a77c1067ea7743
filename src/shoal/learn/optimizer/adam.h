// Adam (Kingma and Ba, 2015) over one flat buffer.
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

  std::vector<Average> averages() noexcept override {
    return {{"exp_avg", exp_avg_.span()}, {"exp_avg_sq", exp_avg_sq_.span()}};
  }
  void prepare(std::int64_t number, double gradient_scale, double learning_rate) noexcept override;
  void apply(float* parameters, const float* gradient, std::span<float* const> averages,
             std::size_t size) const noexcept override;

 private:
  AdamOptions options_;
  float scale_ = 1;  // of the step that was prepared
  float step_size_ = 0;
  float inverse_root_ = 1;
  AlignedFloats exp_avg_;
  AlignedFloats exp_avg_sq_;
};

}  // namespace shoal::learn
