#include "shoal/learn/a3c/a3c.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "shoal/collect/running_moments.h"
#include "shoal/learn/a2c/a2c_update.h"
#include "shoal/learn/a3c/a3c_arena.h"
#include "shoal/learn/a3c/learning_actor.h"
#include "shoal/learn/config/option.h"
#include "shoal/learn/learner/agent.h"
#include "shoal/learn/learner/optimizer_state.h"
#include "shoal/learn/learner/rollout_learner.h"
#include "shoal/learn/learner/state_arrays.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

constexpr std::chrono::milliseconds kSlice{50};  // between two looks at the actors, at most
constexpr std::size_t kWindow = 100;             // episodes in the means

const A3cConfig& checked(const A3cConfig& config) {
  validate(config);
  if (config.normalize_obs)
    throw InvalidArgument(
        "normalize_obs is for one process: a3c's actors share no running mean of observations. "
        "Leave "
        "it out, or normalise in the environment, by numbers that stay; or learn in this process "
        "(num_workers=0)");
  return config;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::ceil(std::min(seconds, 1e9) * 1000)));
}

vector::FaultPolicy faults_of(const A3cConfig& config) {
  vector::FaultPolicy policy;
  policy.max_restarts = config.max_restarts;
  policy.restart_window = milliseconds_of(config.restart_window);
  return policy;
}

std::string rewards_of(std::size_t actor) { return fmt::format("return.{}", actor); }

/// The reward normalisers that state() kept, for `actors` actors: those of as many as it had, in turn.
std::vector<collect::RunningMoments> rewards_from(const LearnerState& state,
                                                  const A3cConfig& config, std::size_t actors) {
  std::vector<collect::RunningMoments> rewards(actors, collect::RunningMoments(1));
  if (!config.normalize_reward) return rewards;
  const auto kept = state.counters.value("actors", std::size_t{0});  // absent from older ones
  for (std::size_t actor = 0; actor < actors && kept > 0; ++actor)
    load_moments(rewards_of(actor % kept), state.normalizer, rewards[actor]);
  return rewards;
}

}  // namespace

void validate(const A3cConfig& config) {
  validate(static_cast<const LearnerConfig&>(config));
  check_option(config.max_restarts >= 0, "max_restarts", config.max_restarts, "0 or more");
  check_option(config.restart_window > 0, "restart_window", config.restart_window,
               "seconds, more than 0");
  check_option(config.step_timeout >= 0, "step_timeout", config.step_timeout,
               "seconds, or 0 for no bound");
}

struct A3c::Impl {
  Impl(std::shared_ptr<ActorProcesses> its_actors, const A3cConfig& its_config, std::uint64_t seed)
      : config(checked(its_config)),
        actors(std::move(its_actors)),
        agent(actors->observation_space(), actors->action_space(), config, seed),
        averages(make_optimizer(config, agent.policy().parameters().flat().size())),
        arena(A3cArena::create({.actors = actors->size(),
                                .floats = agent.policy().parameters().flat().size(),
                                .averages = averages->averages().size()})),
        before(static_cast<std::size_t>(actors->size())),
        rewards(static_cast<std::size_t>(actors->size()), collect::RunningMoments(1)) {
    share();
  }

  ~Impl() {
    end();
    actors->close();
  }

  std::span<float> own_parameters() { return agent.policy().parameters().flat(); }

  void share() { arena.parameters().write(own_parameters(), *averages); }

  /// A copy of what is shared, unless there is one since the last iterate().
  void take_snapshot() {
    if (std::exchange(has_snapshot, true)) return;
    arena.parameters().read(own_parameters(), *averages);
    agent.policy().model().parameters_changed();
    for (int actor = 0; actor < arena.actors(); ++actor)
      arena.line(actor).get_rewards(rewards[static_cast<std::size_t>(actor)]);
  }

  void end() noexcept { arena.board().give_order(A3cBoard::Order::kEnd); }

  void start();
  void take_over(ActorLine line);
  void wait_for_updates();
  void take_episodes(IterationStats& stats);
  void take_measurements(IterationStats& stats);
  std::vector<std::byte> order_of(int actor, int generation) const;

  const A3cConfig config;
  const std::shared_ptr<ActorProcesses> actors;
  Agent agent;
  std::unique_ptr<Optimizer> averages;  // of the snapshot
  A3cArena arena;
  bool started = false;
  bool has_snapshot = true;
  os::Deadline attend_at{};
  std::int64_t steps = 0;
  std::int64_t iteration = 0;
  std::int64_t first_step = 0;  // of this session: names its random numbers
  std::vector<ActorTotals> before;
  std::vector<collect::RunningMoments> rewards;  // of each actor, at the snapshot
  IterationStats last;                           // losses of the last updates
  std::deque<collect::Episode> window;
  std::int64_t episodes = 0;
};

A3c::A3c(std::shared_ptr<ActorProcesses> actors, const A3cConfig& config, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(std::move(actors), config, seed)) {}
A3c::~A3c() = default;

std::int64_t A3c::steps() const noexcept { return impl_->steps; }
std::int64_t A3c::iteration() const noexcept { return impl_->iteration; }

void A3c::begin(vector::VectorEnv&) {
  throw InvalidState("A3C's actors have environments of their own: call iterate()");
}

void A3c::resume(vector::VectorEnv& envs, const vector::Batch&) { begin(envs); }

void A3c::attend() {
  Impl& me = *impl_;
  const os::Deadline now = os::Clock::now();
  const bool going_on = me.arena.board().current_order() == A3cBoard::Order::kGo;
  if (!me.started || !going_on || now < me.attend_at) return;
  me.attend_at = now + kSlice;
  me.actors->watch();
}

void A3c::rest() const noexcept { impl_->arena.board().give_order(A3cBoard::Order::kPause); }

// The actors

void A3c::Impl::start() {
  first_step = steps;
  started = true;
  actors->start({.faults = faults_of(config),
                 .arena_fd = arena.fd(),
                 .order = [this](int actor, int gone) { return order_of(actor, gone); },
                 .signs = [this](int actor) { return arena.line(actor).signs(); },
                 .ended = [this](int actor) { take_over(arena.line(actor)); },
                 .step_timeout = milliseconds_of(config.step_timeout),
                 .wake = [this] { arena.board().progress.change_and_wake_all(); },
                 .end = [this] { end(); }});
}

/// Of an actor that has died.
void A3c::Impl::take_over(ActorLine line) {
  line.forget_signs();
  arena.board().give_back(line.under_way());
  line.set_under_way(0);
}

std::vector<std::byte> A3c::Impl::order_of(int actor, int generation) const {
  const auto bits = agent.policy().random()(Stream::kActor, static_cast<std::uint64_t>(first_step),
                                            static_cast<std::uint32_t>(actor),
                                            static_cast<std::uint32_t>(generation));
  ActorOrder order;
  order.config = config;
  order.actor = actor;
  order.first_env = actors->first_env(actor);
  order.seed = (std::uint64_t{bits[0]} << 32 | bits[1]) >> 1;
  order.observation_space = actors->observation_space().repr();
  order.action_space = actors->action_space().repr();
  return order.encode();
}

// One iteration

IterationStats A3c::iterate() {
  Impl& me = *impl_;
  if (!me.started) me.start();
  A3cBoard& board = me.arena.board();
  if (board.current_order() != A3cBoard::Order::kGo) board.give_order(A3cBoard::Order::kGo);
  me.wait_for_updates();
  me.has_snapshot = false;
  me.steps = board.finished_steps();
  me.iteration = static_cast<std::int64_t>(board.updates.load(std::memory_order_relaxed));
  if (!me.agent.policy().log_std().empty()) me.take_snapshot();  // whose deviation is reported

  IterationStats stats = me.last;
  me.take_measurements(stats);
  me.last = stats;
  stats.iteration = me.iteration;
  stats.steps = me.steps;
  me.take_episodes(stats);
  return stats;
}

void A3c::Impl::wait_for_updates() {
  A3cBoard& board = arena.board();
  const auto wanted = static_cast<std::uint64_t>(iteration / config.log_interval + 1) *
                      static_cast<std::uint64_t>(config.log_interval);
  board.wake_at.store(wanted, std::memory_order_relaxed);  // who passes it meanwhile is seen below
  const os::Deadline until = os::deadline_after(kSlice);
  while (true) {
    const std::uint32_t seen = board.progress.generation();
    actors->watch();
    if (board.updates.load(std::memory_order_relaxed) >= wanted ||
        board.finished_steps() >= config.total_steps || os::Clock::now() >= until)
      return;
    static_cast<void>(board.progress.sleep(seen, until));
  }
}

void A3c::Impl::take_measurements(IterationStats& stats) {
  ActorTotals sums;
  for (int actor = 0; actor < arena.actors(); ++actor) {
    const ActorTotals now = arena.line(actor).totals();
    ActorTotals since = now;
    since -= std::exchange(before[static_cast<std::size_t>(actor)], now);
    sums += since;
  }
  stats.collect_seconds = sums.collect_seconds / arena.actors();
  stats.update_seconds = sums.update_seconds / arena.actors();
  if (sums.updates == 0) return;
  const auto count = static_cast<double>(sums.updates);
  UpdateStats update;
  update.policy_loss = sums.policy_loss / count;
  update.value_loss = sums.value_loss / count;
  update.entropy = sums.entropy / count;
  update.loss = sums.loss / count;
  update.grad_norm = sums.grad_norm / count;
  update.explained_variance = sums.explained > 0
                                  ? sums.explained_variance / static_cast<double>(sums.explained)
                                  : std::numeric_limits<double>::quiet_NaN();
  update.learning_rate = sums.learning_rate;
  update.epochs = 1;
  report(update, agent.policy(), stats);
  stats.policy_lag = sums.lag / count;
}

void A3c::Impl::take_episodes(IterationStats& stats) {
  stats.finished.clear();
  for (int actor = 0; actor < arena.actors(); ++actor) arena.line(actor).take(stats.finished);
  episodes += static_cast<std::int64_t>(stats.finished.size());
  for (const collect::Episode& episode : stats.finished) window.push_back(episode);
  while (window.size() > kWindow) window.pop_front();
  double return_sum = 0;
  double length_sum = 0;
  for (const collect::Episode& episode : window) {
    return_sum += episode.episode_return;
    length_sum += static_cast<double>(episode.length);
  }
  const auto count = static_cast<double>(window.size());
  stats.episodes = episodes;
  stats.episode_return_mean =
      window.empty() ? std::numeric_limits<double>::quiet_NaN() : return_sum / count;
  stats.episode_length_mean =
      window.empty() ? std::numeric_limits<double>::quiet_NaN() : length_sum / count;
}

// Acting, and what is kept

ActingPolicy& A3c::acting() {
  impl_->take_snapshot();
  return impl_->agent;
}

LearnerState A3c::state() const {
  Impl& me = *impl_;
  me.take_snapshot();
  LearnerState state;
  me.agent.save(state);
  OptimizerState::save(*me.averages, me.agent.policy().parameters(), state);
  state.counters["seed"] = me.agent.policy().random().seed();
  state.counters["steps"] = me.steps;
  state.counters["iteration"] = me.iteration;
  state.counters["episodes"] = me.episodes;
  state.counters["last_episodes"] = episodes_to_json(me.window);
  if (me.config.normalize_reward) {
    state.counters["actors"] = me.rewards.size();
    for (std::size_t actor = 0; actor < me.rewards.size(); ++actor)
      save_moments(rewards_of(actor), me.rewards[actor], state.normalizer);
  }
  return state;
}

void A3c::load_state(const LearnerState& state) {
  // All is read, and thereby checked, before anything of this learner changes.
  Impl& me = *impl_;
  if (me.started) throw InvalidState("load A3C's state: its actors learn already");
  const auto averages = OptimizerState::read(state, *me.averages, me.agent.policy().parameters());
  const auto steps = counter(state, "steps").get<std::int64_t>();
  const auto iteration = counter(state, "iteration").get<std::int64_t>();
  const auto seed = counter(state, "seed").get<std::uint64_t>();
  const auto episodes = counter(state, "episodes").get<std::int64_t>();
  const auto window = episodes_from_json(counter(state, "last_episodes"));
  const auto rewards = rewards_from(state, me.config, me.rewards.size());

  me.agent.load(state);
  averages.put_into(*me.averages);
  me.agent.reseed(seed);
  me.steps = steps;
  me.iteration = iteration;
  me.episodes = episodes;
  me.window.assign(window.begin(), window.end());
  me.rewards = rewards;
  for (int actor = 0; actor < me.arena.actors(); ++actor)
    me.arena.line(actor).set_rewards(rewards[static_cast<std::size_t>(actor)]);
  A3cBoard& board = me.arena.board();
  board.begun.store(static_cast<std::uint64_t>(steps), std::memory_order_relaxed);
  board.steps.store(static_cast<std::uint64_t>(steps), std::memory_order_relaxed);
  board.updates.store(static_cast<std::uint64_t>(iteration), std::memory_order_relaxed);
  me.has_snapshot = true;
  me.share();
}

void A3c::load_policy(const LearnerState& state) {
  Impl& me = *impl_;
  if (me.started) throw InvalidState("load A3C's policy: its actors learn already");
  me.agent.load(state);
  me.share();
}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const A3cConfig& config, std::uint64_t seed) {
  return std::make_unique<RolloutLearner>(
      observation, action, Shards(num_envs), validated(config), seed,
      [&](ActorCriticPolicy& policy) { return std::make_unique<A2cUpdate>(policy, config); });
}

}  // namespace shoal::learn
