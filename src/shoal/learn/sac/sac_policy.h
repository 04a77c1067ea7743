// The policy of SAC: a network's squashed Gaussian, scaled to the bounds of the Box.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/learn/learner/acting_policy.h"
#include "shoal/learn/network/mlp_chain.h"
#include "shoal/learn/network/philox.h"
#include "shoal/learn/off_policy/off_policy_agent.h"
#include "shoal/learn/sac/sac_config.h"

namespace shoal::learn {

class SacPolicy final : public OffPolicyAgent {
 public:
  /// Throws InvalidArgument for spaces that it does not cover (which, and what it covers).
  SacPolicy(const env::Space& observation, const env::Space& action, const SacConfig& config,
            std::uint64_t seed);

  /// Deterministic: tanh of the means.
  void act(std::span<const shm::TensorView> obs, std::span<float> memory,
           std::span<const shm::TensorView> actions, bool deterministic,
           std::uint64_t step = 0) override;
  /// Log-probabilities are those of the action within [-1, 1]. It has no values: NaN.
  void decide(std::span<const shm::TensorView> obs, std::span<float> memory, std::uint64_t step,
              const shm::TensorView& action, std::span<float> log_prob,
              std::span<float> value) override;

  /// Elements of an action.
  std::size_t dimensions() const noexcept { return dimensions_; }
  /// Actions within [-1, 1] for encoded observations, with the random numbers of (stream, step, row).
  void sample(std::span<const shm::TensorView> obs, Stream stream, std::uint64_t step,
              std::span<float> actions, std::span<float> log_prob);
  /// From [-1, 1] to the environments' form.
  void decode(const shm::TensorView& actions, const shm::TensorView& to) const override;

  /// Standard normal numbers of (stream, step, row, which), `dimensions()` a row; `which` below 2^16 tells
  /// several draws of one step apart.
  void fill_noise(Stream stream, std::uint64_t step, std::uint32_t which,
                  std::span<float> noise) const;

  const Mlp& layers() const noexcept { return layers_; }
  MlpChain& network() noexcept { return *network_; }

 private:
  void parameters_changed() override { network_->parameters_changed(); }
  /// The head of the network for encoded observations, rows of padded(2 dimensions) floats.
  FloatRows head_of(std::span<const shm::TensorView> obs);

  std::size_t dimensions_;
  Mlp layers_;
  std::unique_ptr<MlpChain> network_;
  std::vector<float> noise_, unit_, logp_;
  mutable std::vector<float> scaled_;
};

/// As the constructor.
std::unique_ptr<ActingPolicy> make_acting_policy(const env::Space& observation,
                                                 const env::Space& action, const SacConfig& config,
                                                 std::uint64_t seed);

}  // namespace shoal::learn
