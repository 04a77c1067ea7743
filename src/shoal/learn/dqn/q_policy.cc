#include "shoal/learn/dqn/q_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

const env::Space& one_choice(const env::Space& action) {
  if (action.get_if<env::Discrete>() != nullptr) return action;
  throw InvalidArgument(fmt::format(
      "dqn learns the value of each action of a Discrete space, not of {}. sac learns a Box with "
      "bounds; ppo and a2c learn Box, Discrete, MultiDiscrete and MultiBinary",
      action.repr()));
}

}  // namespace

std::int32_t best_of(std::span<const float> q) noexcept {
  return static_cast<std::int32_t>(std::ranges::max_element(q) - q.begin());
}

QPolicy::QPolicy(const env::Space& observation, const env::Space& action, const DqnConfig& config,
                 std::uint64_t seed)
    : OffPolicyAgent(observation, one_choice(action), config, seed),
      exploration_final_(config.exploration_final) {
  layers_ =
      QLayers::create(encoder(), decoder().categories()[0], config.dueling, config, parameters());
  layers_.initialize(parameters(), config, random());
  network_ = make_q_network(layers_, parameters());
}

void QPolicy::choose(std::span<const shm::TensorView> obs, double exploration, Stream stream,
                     std::uint64_t step, const shm::TensorView& actions) {
  const auto n = static_cast<std::size_t>(layers_.actions);
  const auto rows = static_cast<std::size_t>(actions.rows);
  auto* chosen = reinterpret_cast<std::int32_t*>(actions.data);
  q_.resize(rows * n);
  network_->forward(obs, q_);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto bits = random()(stream, step, static_cast<std::uint32_t>(r));
    chosen[r] = uniform(bits[0]) < exploration ? static_cast<std::int32_t>(below(bits[1], n))
                                               : best_of(std::span(q_).subspan(r * n, n));
  }
}

void QPolicy::act(std::span<const shm::TensorView> obs, std::span<float> /*memory*/,
                  std::span<const shm::TensorView> actions, bool deterministic,
                  std::uint64_t step) {
  const shm::TensorView chosen = actions_for(obs);
  choose(encode(obs), deterministic ? 0.0 : exploration_final_, Stream::kEvaluation, step, chosen);
  decode(chosen, actions[0]);
}

void QPolicy::decide(std::span<const shm::TensorView> obs, std::span<float> /*memory*/,
                     std::uint64_t step, const shm::TensorView& action, std::span<float> log_prob,
                     std::span<float> value) {
  const shm::TensorView chosen = actions_for(obs);
  choose(encode(obs), exploration_final_, Stream::kAction, step, chosen);
  const auto n = static_cast<std::size_t>(layers_.actions);
  const auto* taken = reinterpret_cast<const std::int32_t*>(chosen.data);
  for (std::size_t r = 0; r < static_cast<std::size_t>(chosen.rows); ++r) {
    const auto q = std::span<const float>(q_).subspan(r * n, n);
    const std::int32_t best = best_of(q);
    const double any = exploration_final_ / static_cast<double>(n);
    const double probability = taken[r] == best ? 1.0 - exploration_final_ + any : any;
    if (!log_prob.empty()) log_prob[r] = static_cast<float>(std::log(probability));
    if (!value.empty()) value[r] = q[static_cast<std::size_t>(best)];
  }
  decode(chosen, action);
}

std::unique_ptr<ActingPolicy> make_acting_policy(const env::Space& observation,
                                                 const env::Space& action, const DqnConfig& config,
                                                 std::uint64_t seed) {
  return std::make_unique<QPolicy>(observation, action, config, seed);
}

}  // namespace shoal::learn
