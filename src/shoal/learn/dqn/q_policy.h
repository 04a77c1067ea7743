// The policy of a Q-network: the action of the highest value, or a random one now and then.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/learn/dqn/dqn_config.h"
#include "shoal/learn/learner/acting_policy.h"
#include "shoal/learn/network/philox.h"
#include "shoal/learn/network/q_network.h"
#include "shoal/learn/off_policy/off_policy_agent.h"

namespace shoal::learn {

class QPolicy final : public OffPolicyAgent {
 public:
  /// Throws InvalidArgument for spaces that it does not cover (which, and what it covers).
  QPolicy(const env::Space& observation, const env::Space& action, const DqnConfig& config,
          std::uint64_t seed);

  /// Not deterministic: a random action with the probability exploration_final.
  void act(std::span<const shm::TensorView> obs, std::span<float> memory,
           std::span<const shm::TensorView> actions, bool deterministic,
           std::uint64_t step = 0) override;
  /// As act(), not deterministic. The value is that of the best action.
  void decide(std::span<const shm::TensorView> obs, std::span<float> memory, std::uint64_t step,
              const shm::TensorView& action, std::span<float> log_prob,
              std::span<float> value) override;

  /// Actions for encoded observations, int32 [1] a row: random with this probability, row by row, with the
  /// random numbers of (stream, step, row).
  void choose(std::span<const shm::TensorView> obs, double exploration, Stream stream,
              std::uint64_t step, const shm::TensorView& actions);

  const QLayers& layers() const noexcept { return layers_; }
  QNetwork& network() noexcept { return *network_; }

 private:
  void parameters_changed() override { network_->parameters_changed(); }

  const double exploration_final_;
  QLayers layers_;
  std::unique_ptr<QNetwork> network_;
  std::vector<float> q_;
};

/// The index of the greatest, the first of equals.
std::int32_t best_of(std::span<const float> q) noexcept;

/// As the constructor.
std::unique_ptr<ActingPolicy> make_acting_policy(const env::Space& observation,
                                                 const env::Space& action, const DqnConfig& config,
                                                 std::uint64_t seed);

}  // namespace shoal::learn
