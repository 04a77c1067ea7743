// For tests: losses by their definition in double precision, and their derivatives by the tape.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/learn/learner/actor_critic_loss.h"
#include "shoal/learn/ppo/ppo_loss.h"
#include "shoal/learn/testing/tape.h"

namespace shoal::learn {

struct LossByTape {
  Losses losses;
  std::vector<float> d_head;
  std::vector<float> d_value;
  std::vector<float> d_log_std;
};

struct PpoLossByTape : LossByTape {
  double approx_kl;
  double clip_fraction;
};

/// A tape with what a network says of rows, and what follows for their actions. `categories` is empty
/// for a Gaussian.
class LossTape {
 public:
  using Number = Tape::Number;

  LossTape(const LossRows& rows, const std::vector<std::int64_t>& categories)
      : head_(written(rows.head)), value_(written(rows.value)), log_std_(written(rows.log_std)) {
    const std::size_t width = rows.head.size() / rows.value.size();
    for (std::size_t r = 0; r < rows.value.size(); ++r) {
      const std::span<const Number> head = std::span(head_).subspan(r * width, width);
      const auto row = static_cast<std::int64_t>(r);
      if (categories.empty()) {
        gaussian(head, reinterpret_cast<const float*>(rows.actions.row_data(row)));
      } else {
        categorical(head, reinterpret_cast<const std::int32_t*>(rows.actions.row_data(row)),
                    categories);
      }
    }
  }

  Tape& tape() { return tape_; }
  const std::vector<Number>& value() const { return value_; }
  const std::vector<Number>& logp() const { return logp_; }

  Number mean(std::span<const Number> numbers) {
    Number sum = tape_.add(0);
    for (const Number x : numbers) sum = tape_.sum(sum, x);
    return tape_.times(sum, 1 / static_cast<double>(numbers.size()));
  }

  LossByTape differentiate(Number policy, Number value, const LossCoefficients& coefficients) {
    const Number entropy = mean(entropy_);
    const Number total =
        tape_.difference(tape_.sum(policy, tape_.times(value, coefficients.value_coef)),
                         tape_.times(entropy, coefficients.entropy_coef));
    const std::pair<Number, double> result{total, 1};
    const std::vector<double> by = tape_.gradients({&result, 1});
    const auto of = [&](const std::vector<Number>& numbers) {
      std::vector<float> out;
      for (const Number x : numbers) out.push_back(static_cast<float>(by[Tape::index(x)]));
      return out;
    };
    return {.losses = {.policy = tape_[policy],
                       .value = tape_[value],
                       .entropy = tape_[entropy],
                       .total = tape_[total]},
            .d_head = of(head_),
            .d_value = of(value_),
            .d_log_std = of(log_std_)};
  }

 private:
  std::vector<Number> written(std::span<const float> numbers) {
    std::vector<Number> out;
    for (const float x : numbers) out.push_back(tape_.add(static_cast<double>(x)));
    return out;
  }

  void gaussian(std::span<const Number> mean, const float* action) {
    const double half_log_2_pi = 0.5 * std::log(2 * M_PI);
    Number logp = tape_.add(0);
    Number entropy = tape_.add(0);
    for (std::size_t k = 0; k < mean.size(); ++k) {
      const Number distance = tape_.plus(mean[k], -static_cast<double>(action[k]));
      const Number precision = tape_.exp(tape_.times(log_std_[k], -2));
      const Number each = tape_.product(tape_.square(distance), precision);
      logp = tape_.sum(logp, tape_.times(each, -0.5));
      logp = tape_.plus(tape_.difference(logp, log_std_[k]), -half_log_2_pi);
      entropy = tape_.plus(tape_.sum(entropy, log_std_[k]), 0.5 + half_log_2_pi);
    }
    logp_.push_back(logp);
    entropy_.push_back(entropy);
  }

  void categorical(std::span<const Number> head, const std::int32_t* action,
                   const std::vector<std::int64_t>& categories) {
    Number logp = tape_.add(0);
    Number entropy = tape_.add(0);
    for (std::size_t c = 0, from = 0; c < categories.size(); ++c) {
      const auto count = static_cast<std::size_t>(categories[c]);
      Number sum = tape_.add(0);
      for (std::size_t k = from; k < from + count; ++k) sum = tape_.sum(sum, tape_.exp(head[k]));
      const Number log_sum = tape_.log(sum);
      for (std::size_t k = from; k < from + count; ++k) {
        const Number log_prob = tape_.difference(head[k], log_sum);
        entropy = tape_.difference(entropy, tape_.product(tape_.exp(log_prob), log_prob));
        if (k - from == static_cast<std::size_t>(action[c])) logp = tape_.sum(logp, log_prob);
      }
      from += count;
    }
    logp_.push_back(logp);
    entropy_.push_back(entropy);
  }

  Tape tape_;
  std::vector<Number> head_, value_, log_std_;
  std::vector<Number> logp_, entropy_;  // of each row
};

/// A2C's loss.
inline LossByTape a2c_loss_by_tape(const LossRows& rows,
                                   const std::vector<std::int64_t>& categories,
                                   const LossCoefficients& coefficients) {
  LossTape of(rows, categories);
  Tape& tape = of.tape();
  std::vector<Tape::Number> policy, value;
  for (std::size_t r = 0; r < rows.value.size(); ++r) {
    policy.push_back(tape.times(of.logp()[r], -static_cast<double>(rows.advantage[r])));
    value.push_back(tape.square(tape.plus(of.value()[r], -static_cast<double>(rows.returns[r]))));
  }
  const auto policy_mean = of.mean(policy);
  return of.differentiate(policy_mean, of.mean(value), coefficients);
}

/// The error of one row's value, as PPO clips it.
inline Tape::Number ppo_value_error(LossTape& of, const LossRows& rows, std::size_t r,
                                    const PpoClipping& clipping) {
  Tape& tape = of.tape();
  const double returns = static_cast<double>(rows.returns[r]);
  const auto plain = tape.square(tape.plus(of.value()[r], -returns));
  if (!clipping.clip_range_value) return plain;
  const double range = static_cast<double>(*clipping.clip_range_value);
  const double old_value = static_cast<double>(rows.old_value[r]);
  const auto moved = tape.clamp(tape.plus(of.value()[r], -old_value), -range, range);
  const auto clipped = tape.square(tape.plus(moved, old_value - returns));
  return clipping.pessimistic_value_clip ? tape.larger(plain, clipped) : clipped;
}

/// PPO's loss.
inline PpoLossByTape ppo_loss_by_tape(const LossRows& rows,
                                      const std::vector<std::int64_t>& categories,
                                      const PpoClipping& clipping,
                                      const LossCoefficients& coefficients) {
  LossTape of(rows, categories);
  Tape& tape = of.tape();
  const double clip = static_cast<double>(clipping.clip_range);
  const std::size_t count = rows.value.size();
  std::vector<Tape::Number> policy, value;
  double kl = 0, clipped = 0;
  for (std::size_t r = 0; r < count; ++r) {
    const auto log_ratio = tape.plus(of.logp()[r], -static_cast<double>(rows.old_logp[r]));
    const auto ratio = tape.exp(log_ratio);
    const double advantage = -static_cast<double>(rows.advantage[r]);
    policy.push_back(tape.larger(tape.times(ratio, advantage),
                                 tape.times(tape.clamp(ratio, 1 - clip, 1 + clip), advantage)));
    value.push_back(ppo_value_error(of, rows, r, clipping));
    kl += tape[ratio] - 1 - tape[log_ratio];
    clipped += std::abs(tape[ratio] - 1) > clip ? 1 : 0;
  }
  const auto policy_mean = of.mean(policy);
  const auto value_mean = of.mean(value);
  return {of.differentiate(policy_mean, value_mean, coefficients), kl / static_cast<double>(count),
          clipped / static_cast<double>(count)};
}

}  // namespace shoal::learn
