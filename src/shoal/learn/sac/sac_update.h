// How SAC explores and learns from a batch, in Stable-Baselines3's order:
//
//   1. an action a of the policy for obs, and its log-probability
//   2. the temperature's step: log_alpha * -(mean of log p(a) + target entropy); what follows uses the
//      temperature from before
//   3. targets: returns + discount * (min Q'(next, a') - alpha log p(a')), a' of the policy for next_obs
//   4. the critics' step: half the sum of both mean squared errors
//   5. the actor's step: mean of alpha log p(a) - min Q(obs, a), through the critics of step 4
//   6. the targets move by tau
//
// Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shoal/learn/network/mlp_chain.h"
#include "shoal/learn/off_policy/off_policy_update.h"
#include "shoal/learn/optimizer/optimizer.h"
#include "shoal/learn/sac/sac_config.h"
#include "shoal/learn/sac/sac_policy.h"

namespace shoal::learn {

/// Two networks of Q(obs, action), with the parameters of both: critic.{0,1}.….
struct TwinCritics {
  TwinCritics(std::int64_t inputs, const SacConfig& config);
  void parameters_changed();

  Parameters parameters;
  std::array<Mlp, 2> layers;
  std::vector<MlpChain> chains;
};

class SacUpdate final : public OffPolicyUpdate {
 public:
  /// Throws InvalidArgument for spaces that it cannot learn. `config` is valid.
  SacUpdate(const env::Space& observation, const env::Space& action, const SacConfig& config,
            std::uint64_t seed);

  SacPolicy& agent() noexcept override { return policy_; }
  void explore(std::span<const shm::TensorView> obs, const OffPolicyTime& time, bool anyhow,
               const shm::TensorView& actions) override;
  void stepped(std::int64_t, std::int64_t) override {}  // the targets move with each update
  void learn(const ReplayMinibatch& batch, const OffPolicyTime& time, std::span<double> td_errors,
             OffPolicySums& sums) override;
  void report(const OffPolicyTime& time, IterationStats& stats) const override;
  void save(LearnerState& state) const override;
  PutBack read(const LearnerState& state) override;

  TwinCritics& critics() noexcept { return critics_; }
  double temperature() const noexcept;

 private:
  /// A sample of the policy for each row of a batch.
  struct Drawn {
    std::vector<float> noise, action, logp;
  };

  void reserve(std::size_t rows);
  /// Writes obs (and action, which may be null: not yet) to rows of critics' inputs.
  void lay_out(std::span<const shm::TensorView> obs, const float* actions,
               AlignedFloats& inputs) const;
  FloatRows draw(const AlignedFloats& inputs, std::int64_t rows, std::uint64_t number,
                 std::uint32_t which, Drawn& drawn);
  double learn_temperature(double rate);
  void take_targets(const ReplayMinibatch& batch, std::uint64_t number, float alpha);
  double learn_critics(const ReplayMinibatch& batch, double rate, std::span<double> td_errors,
                       OffPolicySums& sums);
  double learn_actor(FloatRows head, std::int64_t rows, double rate, float alpha,
                     OffPolicySums& sums);

  const SacConfig config_;
  SacPolicy policy_;
  TwinCritics critics_, targets_;
  Parameters temperature_;  // log_alpha
  const double target_entropy_;
  std::unique_ptr<Optimizer> actor_optimizer_, critic_optimizer_, temperature_optimizer_;
  AlignedFloats actor_gradient_, critic_gradient_, temperature_gradient_;

  // Room that is used again.
  std::size_t capacity_ = 0;
  AlignedFloats inputs_, next_inputs_;     // [rows][padded(dense + dimensions)]
  std::array<AlignedFloats, 2> by_input_;  // likewise: by both critics, and one part of that
  Drawn here_, next_;
  std::vector<float> target_values_;
};

}  // namespace shoal::learn
