// What turns a gradient into a step of all parameters, and the clipping of the gradient's norm, over
// one flat buffer.
//
// Threads: one at a time; where a team is given, it computes parts of the buffer side by side. Bits
// depend on the gradients alone.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/network/thread_team.h"

namespace shoal::learn {

class Optimizer {
 public:
  /// A running average, of the layout of the parameters.
  struct Average {
    const char* name;  // as in the state_dict of torch.optim's: "exp_avg", …
    std::span<float> values;
  };

  static constexpr std::size_t kMostAverages = 2;

  virtual ~Optimizer() = default;

  /// One step. `gradient_scale` multiplies the gradient first. Without a team the caller computes it.
  virtual void step(std::span<float> parameters, std::span<const float> gradient,
                    double gradient_scale, double learning_rate, ThreadTeam* team);
  void step(std::span<float> parameters, std::span<const float> gradient, double gradient_scale,
            double learning_rate) {
    step(parameters, gradient, gradient_scale, learning_rate, nullptr);
  }

  /// All of its state but the number of steps; to read, and to put back. At most kMostAverages.
  virtual std::vector<Average> averages() noexcept = 0;

  std::int64_t steps() const noexcept { return steps_; }
  void set_steps(std::int64_t steps) noexcept { steps_ = steps; }

  // The formula alone, for parameters and averages wherever they are.

  /// Makes ready for step `number`, counted from 1.
  virtual void prepare(std::int64_t number, double gradient_scale,
                       double learning_rate) noexcept = 0;
  /// That step of `size` parameters, whose averages are `averages`, in the order of averages().
  virtual void apply(float* parameters, const float* gradient, std::span<float* const> averages,
                     std::size_t size) const noexcept = 0;

 private:
  std::int64_t steps_ = 0;
};

/// The one that the configuration names, for so many parameters.
std::unique_ptr<Optimizer> make_optimizer(const LearnerConfig& config, std::size_t size);

/// An average that has faded below the normal numbers is zero. Left to itself it would stay there for
/// ever: the smallest number times 0.9 rounds to itself, and processors take 100 times as long for each
/// product.
inline float faded_to_zero(float average) noexcept {
  return std::abs(average) < std::numeric_limits<float>::min() ? 0.0F : average;
}

/// The L2 norm of all elements.
double norm(std::span<const float> gradient, ThreadTeam* team = nullptr);

/// The factor that brings a gradient of this norm to at most `max_norm` (0: no limit), as
/// torch.nn.utils.clip_grad_norm_.
double clip_factor(double norm, double max_norm) noexcept;

}  // namespace shoal::learn
