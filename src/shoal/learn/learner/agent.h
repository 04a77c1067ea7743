// What acts by a policy that has a value: the encoder of observations, the policy, the decoder of
// actions. Part of every learner of both, and all of one that only acts.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "shoal/collect/action_decoder.h"
#include "shoal/collect/observation_encoder.h"
#include "shoal/env/space.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/learner/acting_policy.h"
#include "shoal/learn/learner/actor_critic_policy.h"
#include "shoal/learn/learner/encoded_rows.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

class Agent final : public ActingPolicy {
 public:
  /// Throws InvalidArgument for spaces that it does not cover (which, and what it covers).
  Agent(const env::Space& observation, const env::Space& action, const LearnerConfig& config,
        std::uint64_t seed, const Recurrence& recurrence = {});
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  std::size_t memory_size() const noexcept override { return policy_.model().memory_size(); }
  void act(std::span<const shm::TensorView> obs, std::span<float> memory,
           std::span<const shm::TensorView> actions, bool deterministic,
           std::uint64_t step = 0) override;
  void decide(std::span<const shm::TensorView> obs, std::span<float> memory, std::uint64_t step,
              const shm::TensorView& action, std::span<float> log_prob,
              std::span<float> value) override;
  void reseed(std::uint64_t seed) noexcept override { policy_.reseed(seed); }
  void save(LearnerState& state) const override;
  void load(const LearnerState& state) override;

  collect::ObservationEncoder& encoder() noexcept { return encoder_; }
  const collect::ObservationEncoder& encoder() const noexcept { return encoder_; }
  const collect::ActionDecoder& decoder() const noexcept { return decoder_; }
  ActorCriticPolicy& policy() noexcept { return policy_; }
  const ActorCriticPolicy& policy() const noexcept { return policy_; }

 private:
  collect::ObservationEncoder encoder_;
  collect::ActionDecoder decoder_;
  ActorCriticPolicy policy_;
  EncodedRows rows_;
};

/// As the constructor: the policies of all algorithms that learn a policy and its value.
std::unique_ptr<ActingPolicy> make_acting_policy(const env::Space& observation,
                                                 const env::Space& action,
                                                 const LearnerConfig& config, std::uint64_t seed);

}  // namespace shoal::learn
