// The distribution of SAC's actions: tanh of a Gaussian, whose mean and logarithm of the standard deviation
// a network gives (Haarnoja et al., 2018a, appendix C).
//
//   x = mean + noise * exp(log_std),  action = tanh(x)
//   log p = sum of [-noise^2 / 2 - log_std - log(2 pi) / 2] - sum of 2 (log 2 - x - softplus(-2 x))
//
// The last term is log(1 - tanh(x)^2), exact where tanh(x) rounds to 1. log_std is held within
// [kLeastLogStd, kMostLogStd].
#pragma once

#include <span>

namespace shoal::learn {

inline constexpr float kLeastLogStd = -20.0F;
inline constexpr float kMostLogStd = 2.0F;

/// log(1 - tanh(x)^2).
double squash_correction(double x) noexcept;

/// One action from `head`: the means, then the logarithms of the standard deviations, each as many as
/// `noise` has (standard normal numbers). Writes the action; returns its log-probability.
float squash(std::span<const float> head, std::span<const float> noise,
             std::span<float> action) noexcept;

/// Derivatives by `head` of  by_logp * logp + sum of by_action[k] * action[k], along that sample.
void squash_backward(std::span<const float> head, std::span<const float> noise,
                     std::span<const float> action, float by_logp, std::span<const float> by_action,
                     std::span<float> d_head) noexcept;

}  // namespace shoal::learn
