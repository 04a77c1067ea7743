#include "shoal/learn/a3c/learning_actor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "shoal/env/json_text.h"
#include "shoal/learn/config/option.h"
#include "shoal/learn/learner/finite_experience.h"
#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/trace/recorder.h"

namespace shoal::learn {
namespace {

using nlohmann::json;

A3cArena attached(os::Fd arena, const Agent& agent, const LearnerConfig& config) {
  return A3cArena::attach(std::move(arena), agent.policy().parameters().flat().size(),
                          make_optimizer(config, 0)->averages().size());
}

const ActorOrder& checked(const ActorOrder& order, const vector::VectorEnv& envs) {
  const auto check = [&](const char* which, const std::string& theirs, const env::Space& ours) {
    if (ours.repr() != theirs)
      throw InvalidArgument(
          fmt::format("A3C: the {} space of actor {}'s environments is {}, and the learner's is {}",
                      which, order.actor, ours.repr(), theirs));
  };
  check("observation", order.observation_space, envs.single_observation_space());
  check("action", order.action_space, envs.single_action_space());
  return order;
}

}  // namespace

std::vector<std::byte> ActorOrder::encode() const {
  const std::string text = json({{"config", options_to_json(config)},
                                 {"actor", actor},
                                 {"first_env", first_env},
                                 {"seed", seed},
                                 {"observation_space", observation_space},
                                 {"action_space", action_space}})
                               .dump();
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

ActorOrder ActorOrder::decode(std::span<const std::byte> bytes) {
  ActorOrder order;
  try {
    const auto* text = reinterpret_cast<const char*>(bytes.data());
    const json all = env::parse_json({text, bytes.size()});
    options_from_json(all.at("config"), order.config);
    order.actor = all.at("actor").get<int>();
    order.first_env = all.at("first_env").get<int>();
    order.seed = all.at("seed").get<std::uint64_t>();
    order.observation_space = all.at("observation_space").get<std::string>();
    order.action_space = all.at("action_space").get<std::string>();
  } catch (const json::exception& error) {
    throw InvalidArgument(fmt::format("an actor's order cannot be read: {}", error.what()));
  }
  return order;
}

LearningActor::LearningActor(vector::VectorEnv& envs, const ActorOrder& order, os::Fd arena)
    : order_(checked(order, envs)),
      steps_of_rollout_(static_cast<std::int64_t>(order.config.num_steps) * envs.num_envs()),
      envs_(envs),
      agent_(envs.single_observation_space(), envs.single_action_space(), order.config, order.seed),
      source_(envs.single_observation_space(), envs.single_action_space(), envs.num_envs(),
              order.config, agent_),
      arena_(attached(std::move(arena), agent_, order.config)),
      line_(arena_.line(order.actor)),
      update_(
          agent_.policy(), order_.config,
          std::make_unique<SharedOptimizer>(make_optimizer(order.config, 0), arena_.parameters())),
      totals_(line_.totals()) {
  line_.get_rewards(source_.rewards().moments());
}

void LearningActor::run() {
  source_.begin(envs_, 0);
  line_.give_sign();
  source_.collector().after_each_step([this] { line_.give_sign(); });
  for (std::int64_t rollout = 0; begin_rollout(); ++rollout) learn_once(rollout);
}

bool LearningActor::begin_rollout() {
  // The learner's death ends this process; a slice is for a wake-up that died with its sender.
  constexpr std::chrono::milliseconds kSlice{100};
  A3cBoard& board = arena_.board();
  while (true) {
    const std::uint32_t seen = board.orders.generation();
    const A3cBoard::Order now = board.current_order();
    if (now == A3cBoard::Order::kEnd) return false;
    if (now == A3cBoard::Order::kGo) {
      line_.set_under_way(steps_of_rollout_);
      if (board.begin(steps_of_rollout_, order_.config.total_steps)) return true;
      line_.set_under_way(0);
    }
    tell_episodes();
    weights_ = -1;  // others may learn meanwhile
    line_.give_sign();
    static_cast<void>(board.orders.sleep(seen, os::deadline_after(kSlice)));
  }
}

void LearningActor::take_weights() {
  weights_ = static_cast<std::int64_t>(arena_.board().updates.load(std::memory_order_relaxed));
  arena_.parameters().parameters.load(0, agent_.policy().parameters().flat());
  agent_.policy().model().parameters_changed();
}

void LearningActor::learn_once(std::int64_t rollout_index) {
  A3cBoard& board = arena_.board();
  if (weights_ < 0) take_weights();
  const auto start = os::Clock::now();
  collect::Rollout& rollout =
      source_.collector().collect(static_cast<std::uint64_t>(rollout_index) *
                                  static_cast<std::uint64_t>(order_.config.num_steps));
  require_finite(rollout, order_.first_env);
  const auto collected = os::Clock::now();
  const auto steps = static_cast<double>(board.steps.load(std::memory_order_relaxed));
  const auto updates = static_cast<std::int64_t>(board.updates.load(std::memory_order_relaxed));
  const double remaining =
      std::max(0.0, 1.0 - steps / static_cast<double>(order_.config.total_steps));
  // The step leaves the newest parameters in the agent's.
  const UpdateStats update = [&] {
    const trace::Scope scope(trace::Span::kUpdate);
    return update_.run(rollout, {.iteration = updates, .remaining = remaining});
  }();
  const auto lag = static_cast<double>(updates - weights_);
  weights_ = updates + 1;
  report(update, lag, os::seconds_between(start, collected), os::seconds_since(collected));
}

void LearningActor::report(const UpdateStats& update, double lag, double collect_seconds,
                           double update_seconds) {
  const bool explained = !std::isnan(update.explained_variance);
  totals_ += ActorTotals{.updates = 1,
                         .explained = explained ? 1 : 0,
                         .policy_loss = update.policy_loss,
                         .value_loss = update.value_loss,
                         .entropy = update.entropy,
                         .loss = update.loss,
                         .grad_norm = update.grad_norm,
                         .explained_variance = explained ? update.explained_variance : 0.0,
                         .lag = lag,
                         .collect_seconds = collect_seconds,
                         .update_seconds = update_seconds,
                         .learning_rate = update.learning_rate};
  line_.set_totals(totals_);
  line_.set_rewards(source_.rewards().moments());
  tell_episodes();
  A3cBoard& board = arena_.board();
  const A3cBoard::Made made = board.finish(steps_of_rollout_);
  line_.set_under_way(0);
  if (made.updates == board.wake_at.load(std::memory_order_relaxed) ||
      made.steps >= order_.config.total_steps)
    board.progress.change_and_wake_all();
}

void LearningActor::tell_episodes() {
  for (collect::Episode episode : source_.episodes().take_finished()) {
    episode.env += order_.first_env;
    untold_.push_back(episode);
  }
  if (untold_.empty()) return;
  const std::size_t told = line_.put(untold_);
  untold_.erase(untold_.begin(), untold_.begin() + static_cast<std::ptrdiff_t>(told));
}

}  // namespace shoal::learn
