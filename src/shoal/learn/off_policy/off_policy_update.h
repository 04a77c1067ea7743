// How a learner from a replay acts while it explores, and how a batch changes what it has learned: what
// makes an algorithm.
//
// Threads: one at a time. Bits depend on the batch, the parameters, the seed and the counts alone.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/learner/learner.h"
#include "shoal/learn/off_policy/off_policy_agent.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

/// What was sampled, as networks take it; row k of every array is one window.
struct ReplayMinibatch {
  std::span<const shm::TensorView> obs;       // encoded and normalised
  std::span<const shm::TensorView> next_obs;  // likewise, where the window led
  shm::TensorView action;                     // of its first row, in the policy's form
  std::span<const float> returns;             // sum of gamma^k * reward k
  std::span<const float> discounts;  // of the value of next_obs: gamma^rows, or 0 where it ended
  std::span<const float> weights;    // of the row in the loss
};

/// Sums over the updates of one iteration.
struct OffPolicySums {
  double value_loss = 0;
  double policy_loss = 0;
  double entropy = 0;
  double q_value = 0;
  double grad_norm = 0;
};

/// When in the run something is.
struct OffPolicyTime {
  std::int64_t
      number;        // of the update, or of the step of all environments: names its random numbers
  double remaining;  // of the run: 1 at its start, 0 at its end
};

class OffPolicyUpdate {
 public:
  virtual ~OffPolicyUpdate() = default;

  /// The normaliser of its encoder learns from what is collected.
  virtual OffPolicyAgent& agent() noexcept = 0;

  /// Actions to collect with, for encoded observations of all environments; `anyhow`: all random.
  virtual void explore(std::span<const shm::TensorView> obs, const OffPolicyTime& time, bool anyhow,
                       const shm::TensorView& actions) = 0;

  /// Steps of environments were made, from `before` to `after`.
  virtual void stepped(std::int64_t before, std::int64_t after) = 0;
  /// One update. Writes each row's |TD error|.
  virtual void learn(const ReplayMinibatch& batch, const OffPolicyTime& time,
                     std::span<double> td_errors, OffPolicySums& sums) = 0;
  /// Adds what is its own to the numbers of an iteration that ends now.
  virtual void report(const OffPolicyTime& time, IterationStats& stats) const = 0;

  /// Adds all that learn() reads, apart from the agent, to `state`.
  virtual void save(LearnerState& state) const = 0;
  /// Reads what save() wrote, and gives what puts it in place, which does not fail. Throws InvalidArgument
  /// when it is of another.
  using PutBack = std::function<void()>;
  virtual PutBack read(const LearnerState& state) = 0;
};

/// target += tau * (online - target), element by element; tau 1 copies.
void move_towards(std::span<const float> online, float tau, std::span<float> target) noexcept;

}  // namespace shoal::learn
