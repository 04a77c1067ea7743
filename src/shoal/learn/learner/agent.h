// What acts: the encoder of observations, the policy, the decoder of actions. Part of every learner,
// and all of one that only acts.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/collect/action_decoder.h"
#include "shoal/collect/observation_encoder.h"
#include "shoal/env/space.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/learner/actor_critic_policy.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

class Agent {
 public:
  /// Throws InvalidArgument for spaces that it does not cover (which, and what it covers).
  Agent(const env::Space& observation, const env::Space& action, const LearnerConfig& config,
        std::uint64_t seed);
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Chooses actions for any number of rows of raw observations (one view per leaf) and writes them
  /// as the environment takes them (one view per leaf of the action space). `deterministic`: the
  /// distribution's mode; otherwise row i is sampled with random numbers of (seed, i, `step`),
  /// apart from those of training. Changes no state.
  void act(std::span<const shm::TensorView> obs, std::span<const shm::TensorView> actions,
           bool deterministic, std::uint64_t step = 0);

  /// As act(), but samples with the random numbers of training, and tells log-probabilities and
  /// values. The actions of a Box of float32 are written as they were drawn, not clipped.
  void decide(std::span<const shm::TensorView> obs, std::uint64_t step,
              const shm::TensorView& action, std::span<float> log_prob, std::span<float> value);

  /// Random numbers are those of `seed` from now on.
  void reseed(std::uint64_t seed) noexcept { policy_.reseed(seed); }

  /// Adds the parameters and the normaliser of observations to `state`.
  void save(LearnerState& state) const;
  /// Throws InvalidArgument when names, shapes or types are not this agent's. Strong guarantee.
  void load(const LearnerState& state);

  collect::ObservationEncoder& encoder() noexcept { return encoder_; }
  const collect::ObservationEncoder& encoder() const noexcept { return encoder_; }
  const collect::ActionDecoder& decoder() const noexcept { return decoder_; }
  ActorCriticPolicy& policy() noexcept { return policy_; }
  const ActorCriticPolicy& policy() const noexcept { return policy_; }

 private:
  /// Room for the policy's actions of so many rows, and the encoded observations; valid until the
  /// next call.
  shm::TensorView room_for_actions(std::int64_t rows);
  std::vector<shm::TensorView> encoded(std::span<const shm::TensorView> obs);

  collect::ObservationEncoder encoder_;
  collect::ActionDecoder decoder_;
  ActorCriticPolicy policy_;
  std::vector<std::vector<std::byte>> act_obs_;
  std::vector<std::byte> act_actions_;
};

}  // namespace shoal::learn
