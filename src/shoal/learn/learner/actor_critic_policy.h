// The policy that a learner trains, as a collector sees it: network, distribution and random numbers.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "shoal/collect/action_decoder.h"
#include "shoal/collect/observation_encoder.h"
#include "shoal/collect/policy.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/learner/acting_policy.h"
#include "shoal/learn/network/actor_critic.h"
#include "shoal/learn/network/distribution.h"
#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/network/philox.h"

namespace shoal::learn {

class ActorCriticPolicy final : public collect::Policy {
 public:
  ActorCriticPolicy(const collect::ObservationEncoder& encoder,
                    const collect::ActionDecoder& decoder, const LearnerConfig& config,
                    std::uint64_t seed, const Recurrence& recurrence);

  const shm::TensorSpec& action_spec() const noexcept override { return action_spec_; }
  void act(std::span<const shm::TensorView> obs, std::uint64_t step, const shm::TensorView& actions,
           std::span<float> logp, std::span<float> value) override;
  void values(std::span<const shm::TensorView> obs, std::span<const int> envs,
              std::span<float> value) override;
  void begin_rollout() override { step_of_rollout_ = 0; }
  void forget(std::span<const std::uint8_t> envs) override { memory_.forget(envs); }

  /// As act(), of rows that have this memory, which moves on.
  void act_with(std::span<const shm::TensorView> obs, std::span<float> memory, std::uint64_t step,
                const shm::TensorView& actions, std::span<float> logp, std::span<float> value);
  /// For evaluation: the mode, or samples whose random numbers are not those of act().
  void act_apart(std::span<const shm::TensorView> obs, std::span<float> memory, std::uint64_t step,
                 bool deterministic, const shm::TensorView& actions);

  /// What it remembers of the environments that it collects from: nothing yet of so many.
  void remember(int envs) { memory_.of(std::vector<std::uint8_t>(static_cast<std::size_t>(envs))); }
  EpisodeMemory& memory() noexcept { return memory_; }
  const EpisodeMemory& memory() const noexcept { return memory_; }
  /// From the next rollout on, what it remembers before each of these steps of it is kept; before
  /// step 0 it is unless another list is given.
  void keep_memory_before(const std::vector<int>& steps);
  /// What it remembered before that step of the rollout, one of those.
  EpisodeMemory& memory_before(int step);

  Parameters& parameters() noexcept { return parameters_; }
  const Parameters& parameters() const noexcept { return parameters_; }
  const Network& network() const noexcept { return network_; }
  ActorCritic& model() noexcept { return *model_; }
  const ActorCritic& model() const noexcept { return *model_; }
  const ActionDistribution& distribution() const noexcept { return distribution_; }
  const Philox& random() const noexcept { return random_; }
  /// Draws from `seed` from now on.
  void reseed(std::uint64_t seed) noexcept { random_ = Philox(seed); }
  /// The rows of act() are those of environments `first` and on of a run: random numbers are drawn
  /// for environments, wherever they are.
  void act_from(int first) noexcept { first_env_ = static_cast<std::uint32_t>(first); }
  /// Empty unless Gaussian.
  std::span<const float> log_std() const noexcept;

 private:
  Philox random_;
  std::uint32_t first_env_ = 0;
  shm::TensorSpec action_spec_;
  ActionDistribution distribution_;
  Parameters parameters_;
  Network network_;
  std::unique_ptr<ActorCritic> model_;
  EpisodeMemory memory_;
  std::map<int, EpisodeMemory> kept_;  // by the step of the rollout
  int step_of_rollout_ = 0;
  std::vector<float> unused_memory_;
  std::vector<float> head_;
  std::vector<float> value_;
};

}  // namespace shoal::learn
