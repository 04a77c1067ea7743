// Adam (Kingma and Ba, 2015) and the clipping of the gradient's norm, over one flat buffer.
//
// Threads: one at a time. Bits depend on the gradient alone.
#pragma once

#include <cstdint>
#include <span>

#include "shoal/learn/network/parameters.h"

namespace shoal::learn {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-5;
};

class Adam {
 public:
  Adam(std::size_t size, AdamOptions options)
      : options_(options), exp_avg_(size), exp_avg_sq_(size) {}

  /// One step, as torch.optim.Adam does it without weight decay. `gradient_scale` multiplies the
  /// gradient first.
  void step(std::span<float> parameters, std::span<const float> gradient, double gradient_scale,
            double learning_rate);

  std::int64_t steps() const noexcept { return steps_; }
  void set_steps(std::int64_t steps) noexcept { steps_ = steps; }
  std::span<float> exp_avg() noexcept { return exp_avg_.span(); }
  std::span<const float> exp_avg() const noexcept { return exp_avg_.span(); }
  std::span<float> exp_avg_sq() noexcept { return exp_avg_sq_.span(); }
  std::span<const float> exp_avg_sq() const noexcept { return exp_avg_sq_.span(); }

 private:
  AdamOptions options_;
  AlignedFloats exp_avg_;
  AlignedFloats exp_avg_sq_;
  std::int64_t steps_ = 0;
};

/// The L2 norm of all elements.
double norm(std::span<const float> gradient) noexcept;

/// The factor that brings a gradient of this norm to at most `max_norm` (0: no limit), as
/// torch.nn.utils.clip_grad_norm_.
double clip_factor(double norm, double max_norm) noexcept;

}  // namespace shoal::learn
