#include "shoal/learn/network/distribution.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shoal::learn {
namespace {

const float kHalfLog2Pi = 0.5F * std::log(2.0F * std::numbers::pi_v<float>);

// log softmax of one component.
void normalize_logits(const float* logits, std::size_t n, float* log_probs) {
  const float top = *std::max_element(logits, logits + n);
  float sum = 0.0F;
  for (std::size_t k = 0; k < n; ++k) sum += std::exp(logits[k] - top);
  const float log_sum = top + std::log(sum);
  for (std::size_t k = 0; k < n; ++k) log_probs[k] = logits[k] - log_sum;
}

float categorical_entropy(const float* log_probs, std::size_t n) {
  float entropy = 0.0F;
  for (std::size_t k = 0; k < n; ++k) entropy -= std::exp(log_probs[k]) * log_probs[k];
  return entropy;
}

template <class T>
T* row_of(const shm::TensorView& view, std::size_t row) {
  return reinterpret_cast<T*>(view.row_data(static_cast<std::int64_t>(row)));
}

}  // namespace

ActionDistribution::ActionDistribution(const collect::ActionDecoder& actions)
    : gaussian_(actions.is_continuous()) {
  head_size_ = gaussian_ ? static_cast<std::size_t>(actions.spec().shape[0]) : 0;
  for (const auto n : actions.categories()) {
    categories_.push_back(static_cast<std::size_t>(n));
    head_size_ += categories_.back();
  }
}

void ActionDistribution::sample(std::span<const float> head, std::span<const float> log_std,
                                const Philox& random, Stream stream, std::uint64_t step,
                                const shm::TensorView& actions, std::span<float> logp,
                                std::uint32_t first_row) const {
  std::vector<float> log_probs(head_size_);
  for (std::size_t r = 0; r < static_cast<std::size_t>(actions.rows); ++r) {
    const float* in = head.data() + r * head_size_;
    const std::uint32_t row = first_row + static_cast<std::uint32_t>(r);
    if (gaussian_) {
      auto* action = row_of<float>(actions, r);
      for (std::size_t k = 0; k < head_size_; ++k) {
        const auto bits = random(stream, step, row, static_cast<std::uint32_t>(k / 2));
        const double z = k % 2 == 0 ? normals(bits[0], bits[1])[0] : normals(bits[0], bits[1])[1];
        action[k] = in[k] + std::exp(log_std[k]) * static_cast<float>(z);
      }
      if (!logp.empty()) logp[r] = gaussian_logp(in, log_std, action);
      continue;
    }
    auto* action = row_of<std::int32_t>(actions, r);
    std::size_t at = 0;
    for (const auto n : categories_) {
      normalize_logits(in + at, n, log_probs.data() + at);
      at += n;
    }
    sample_categories(log_probs.data(), random, stream, step, row, action);
    if (!logp.empty()) logp[r] = categories_logp(log_probs.data(), action);
  }
}

void ActionDistribution::sample_categories(const float* log_probs, const Philox& random,
                                           Stream stream, std::uint64_t step, std::uint32_t row,
                                           std::int32_t* action) const {
  std::array<std::uint32_t, 4> bits{};
  for (std::size_t c = 0; c < categories_.size(); ++c) {
    if (c % 4 == 0) bits = random(stream, step, row, static_cast<std::uint32_t>(c / 4));
    // Inverse of the distribution function; rounding may leave the sum below u, which the last
    // choice then takes.
    const float u = uniform(bits[c % 4]);
    const std::size_t n = categories_[c];
    std::size_t choice = 0;
    float below_u = 0.0F;
    for (; choice + 1 < n; ++choice) {
      below_u += std::exp(log_probs[choice]);
      if (u < below_u) break;
    }
    action[c] = static_cast<std::int32_t>(choice);
    log_probs += n;
  }
}

void ActionDistribution::mode(std::span<const float> head, const shm::TensorView& actions) const {
  for (std::size_t r = 0; r < static_cast<std::size_t>(actions.rows); ++r) {
    const float* in = head.data() + r * head_size_;
    if (gaussian_) {
      std::copy_n(in, head_size_, row_of<float>(actions, r));
      continue;
    }
    auto* action = row_of<std::int32_t>(actions, r);
    for (std::size_t c = 0; c < categories_.size(); ++c) {
      action[c] = static_cast<std::int32_t>(std::max_element(in, in + categories_[c]) - in);
      in += categories_[c];
    }
  }
}

float ActionDistribution::categories_logp(const float* log_probs,
                                          const std::int32_t* action) const {
  float logp = 0.0F;
  for (std::size_t c = 0; c < categories_.size(); ++c) {
    logp += log_probs[action[c]];
    log_probs += categories_[c];
  }
  return logp;
}

float ActionDistribution::gaussian_logp(const float* mean, std::span<const float> log_std,
                                        const float* action) const {
  float logp = 0.0F;
  for (std::size_t k = 0; k < head_size_; ++k) {
    const float z = (action[k] - mean[k]) * std::exp(-log_std[k]);
    logp -= 0.5F * z * z + log_std[k] + kHalfLog2Pi;
  }
  return logp;
}

void ActionDistribution::evaluate(std::span<const float> head, std::span<const float> log_std,
                                  const shm::TensorView& actions, std::span<float> logp,
                                  std::span<float> entropy, std::span<float> log_probs) const {
  const auto rows = static_cast<std::size_t>(actions.rows);
  if (gaussian_) {
    float each = 0.0F;
    for (const float s : log_std) each += s + 0.5F + kHalfLog2Pi;
    for (std::size_t r = 0; r < rows; ++r) {
      logp[r] = gaussian_logp(head.data() + r * head_size_, log_std, row_of<float>(actions, r));
      entropy[r] = each;
    }
    return;
  }
  for (std::size_t r = 0; r < rows; ++r) {
    const float* in = head.data() + r * head_size_;
    float* out = log_probs.data() + r * head_size_;
    entropy[r] = 0.0F;
    std::size_t at = 0;
    for (const auto n : categories_) {
      normalize_logits(in + at, n, out + at);
      entropy[r] += categorical_entropy(out + at, n);
      at += n;
    }
    logp[r] = categories_logp(out, row_of<std::int32_t>(actions, r));
  }
}

void ActionDistribution::backward(std::span<const float> head, std::span<const float> log_std,
                                  const shm::TensorView& actions, std::span<const float> log_probs,
                                  std::span<const float> d_logp, float d_entropy,
                                  std::span<float> d_head, std::span<float> d_log_std) const {
  const auto rows = static_cast<std::size_t>(actions.rows);
  if (!gaussian_) {
    for (std::size_t r = 0; r < rows; ++r) {
      backward_categories(log_probs.data() + r * head_size_, row_of<std::int32_t>(actions, r),
                          d_logp[r], d_entropy, d_head.data() + r * head_size_);
    }
    return;
  }
  for (std::size_t k = 0; k < head_size_; ++k) d_log_std[k] = d_entropy * static_cast<float>(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto* action = row_of<float>(actions, r);
    for (std::size_t k = 0; k < head_size_; ++k) {
      const float inverse_std = std::exp(-log_std[k]);
      const float z = (action[k] - head[r * head_size_ + k]) * inverse_std;
      d_head[r * head_size_ + k] = d_logp[r] * z * inverse_std;
      d_log_std[k] += d_logp[r] * (z * z - 1.0F);
    }
  }
}

void ActionDistribution::backward_categories(const float* log_probs, const std::int32_t* action,
                                             float d_logp, float d_entropy, float* d_head) const {
  for (std::size_t c = 0; c < categories_.size(); ++c) {
    const std::size_t n = categories_[c];
    const float component_entropy = d_entropy == 0.0F ? 0.0F : categorical_entropy(log_probs, n);
    for (std::size_t k = 0; k < n; ++k) {
      const float p = std::exp(log_probs[k]);
      const float chosen = static_cast<std::size_t>(action[c]) == k ? 1.0F : 0.0F;
      d_head[k] = d_logp * (chosen - p) - d_entropy * p * (log_probs[k] + component_entropy);
    }
    log_probs += n;
    d_head += n;
  }
}

}  // namespace shoal::learn
