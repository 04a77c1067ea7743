#include "shoal/learn/learner/actor_critic_policy.h"

#include "shoal/os/error.h"

namespace shoal::learn {

ActorCriticPolicy::ActorCriticPolicy(const collect::ObservationEncoder& encoder,
                                     const collect::ActionDecoder& decoder,
                                     const LearnerConfig& config, std::uint64_t seed,
                                     const Recurrence& recurrence)
    : random_(seed),
      action_spec_(decoder.spec()),
      distribution_(decoder),
      network_(Network::create(encoder, decoder, config, parameters_, recurrence)),
      model_(make_fused_actor_critic(network_, parameters_)),
      memory_(model_->memory_size()) {
  keep_memory_before({0});
  network_.initialize(parameters_, config, random_);
  model_->parameters_changed();
}

void ActorCriticPolicy::keep_memory_before(const std::vector<int>& steps) {
  kept_.clear();
  for (const int step : steps) kept_.emplace(step, memory_);
}

EpisodeMemory& ActorCriticPolicy::memory_before(int step) {
  const auto found = kept_.find(step);
  SHOAL_CHECK(found != kept_.end(), "a memory is asked for that was to be kept");
  return found->second;
}

std::span<const float> ActorCriticPolicy::log_std() const noexcept {
  if (network_.log_std < 0) return {};
  return parameters_.values(static_cast<std::size_t>(network_.log_std));
}

void ActorCriticPolicy::act(std::span<const shm::TensorView> obs, std::uint64_t step,
                            const shm::TensorView& actions, std::span<float> logp,
                            std::span<float> value) {
  const auto kept = kept_.find(step_of_rollout_++);
  if (kept != kept_.end()) kept->second = memory_;
  act_with(obs, memory_.all(), step, actions, logp, value);
}

void ActorCriticPolicy::act_with(std::span<const shm::TensorView> obs, std::span<float> memory,
                                 std::uint64_t step, const shm::TensorView& actions,
                                 std::span<float> logp, std::span<float> value) {
  head_.resize(static_cast<std::size_t>(actions.rows) * distribution_.head_size());
  model_->forward(obs, memory, head_, value);
  distribution_.sample(head_, log_std(), random_, Stream::kAction, step, actions, logp, first_env_);
}

void ActorCriticPolicy::values(std::span<const shm::TensorView> obs, std::span<const int> envs,
                               std::span<float> value) {
  unused_memory_.clear();
  if (model_->memory_size() > 0) {
    for (const int env : envs) {
      const auto row = memory_.row(static_cast<std::size_t>(env));
      unused_memory_.insert(unused_memory_.end(), row.begin(), row.end());
    }
  }
  model_->forward(obs, unused_memory_, {}, value);
}

void ActorCriticPolicy::act_apart(std::span<const shm::TensorView> obs, std::span<float> memory,
                                  std::uint64_t step, bool deterministic,
                                  const shm::TensorView& actions) {
  const auto rows = static_cast<std::size_t>(actions.rows);
  head_.resize(rows * distribution_.head_size());
  value_.resize(rows);
  model_->forward(obs, memory, head_, value_);
  if (deterministic) {
    distribution_.mode(head_, actions);
  } else {
    distribution_.sample(head_, log_std(), random_, Stream::kEvaluation, step, actions, {});
  }
}

}  // namespace shoal::learn
