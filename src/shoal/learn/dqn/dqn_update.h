// How DQN explores and learns: one step along the gradient of a batch's loss, and a target network that
// follows.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shoal/learn/dqn/dqn_config.h"
#include "shoal/learn/dqn/q_policy.h"
#include "shoal/learn/off_policy/off_policy_update.h"
#include "shoal/learn/optimizer/optimizer.h"

namespace shoal::learn {

class DqnUpdate final : public OffPolicyUpdate {
 public:
  /// Throws InvalidArgument for spaces that it cannot learn. `config` is valid.
  DqnUpdate(const env::Space& observation, const env::Space& action, const DqnConfig& config,
            std::uint64_t seed);

  QPolicy& agent() noexcept override { return policy_; }
  void explore(std::span<const shm::TensorView> obs, const OffPolicyTime& time, bool anyhow,
               const shm::TensorView& actions) override;
  void stepped(std::int64_t before, std::int64_t after) override;
  void learn(const ReplayMinibatch& batch, const OffPolicyTime& time, std::span<double> td_errors,
             OffPolicySums& sums) override;
  void report(const OffPolicyTime& time, IterationStats& stats) const override;
  void save(LearnerState& state) const override;
  PutBack read(const LearnerState& state) override;

 private:
  const DqnConfig config_;
  QPolicy policy_;
  Parameters target_;
  std::unique_ptr<QNetwork> target_network_;
  std::unique_ptr<Optimizer> optimizer_;
  AlignedFloats gradient_;
  std::vector<float> q_, q_next_, q_target_, d_q_;
};

}  // namespace shoal::learn
