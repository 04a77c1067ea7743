// The probability distributions of actions, in closed form: sampling, log-probability, entropy, and
// their derivatives.
//
//                     head                               action
//   Categorical       logits of n choices                int32 [1]
//   MultiCategorical  logits of all components, joined   int32 [components], independent
//   DiagGaussian      means; log_std is a parameter      float32 [dimensions], unbounded
//
// Threads: a value without state; const functions may run at once.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/collect/action_decoder.h"
#include "shoal/learn/network/philox.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

class ActionDistribution {
 public:
  explicit ActionDistribution(const collect::ActionDecoder& actions);

  /// Elements of one row of `head`.
  std::size_t head_size() const noexcept { return head_size_; }
  /// Elements of one action.
  std::size_t action_size() const noexcept { return gaussian_ ? head_size_ : categories_.size(); }
  bool is_gaussian() const noexcept { return gaussian_; }

  /// One action a row, with the random numbers of (stream, step, first_row + row), and its
  /// log-probability. `log_std` is empty unless Gaussian. `logp` may be empty.
  void sample(std::span<const float> head, std::span<const float> log_std, const Philox& random,
              Stream stream, std::uint64_t step, const shm::TensorView& actions,
              std::span<float> logp, std::uint32_t first_row = 0) const;

  /// The most probable action of each row.
  void mode(std::span<const float> head, const shm::TensorView& actions) const;

  /// Log-probability of given actions and entropy, a row each. `log_probs` ([rows, head_size])
  /// receives what backward() needs: normalised logits, or nothing for Gaussians.
  void evaluate(std::span<const float> head, std::span<const float> log_std,
                const shm::TensorView& actions, std::span<float> logp, std::span<float> entropy,
                std::span<float> log_probs) const;

  /// Derivatives of sum over rows of d_logp[row] * logp[row] + d_entropy * entropy[row]: by `head`
  /// into `d_head`, by log_std into `d_log_std` (overwritten; empty unless Gaussian). `log_probs`
  /// is evaluate()'s.
  void backward(std::span<const float> head, std::span<const float> log_std,
                const shm::TensorView& actions, std::span<const float> log_probs,
                std::span<const float> d_logp, float d_entropy, std::span<float> d_head,
                std::span<float> d_log_std) const;

 private:
  void sample_categories(const float* log_probs, const Philox& random, Stream stream,
                         std::uint64_t step, std::uint32_t row, std::int32_t* action) const;
  float categories_logp(const float* log_probs, const std::int32_t* action) const;
  float gaussian_logp(const float* mean, std::span<const float> log_std, const float* action) const;
  void backward_categories(const float* log_probs, const std::int32_t* action, float d_logp,
                           float d_entropy, float* d_head) const;

  bool gaussian_;
  std::vector<std::size_t> categories_;
  std::size_t head_size_;
};

}  // namespace shoal::learn
