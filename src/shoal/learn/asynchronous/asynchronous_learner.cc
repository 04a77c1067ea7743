#include "shoal/learn/asynchronous/asynchronous_learner.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "shoal/learn/asynchronous/collecting_thread.h"
#include "shoal/learn/learner/agent.h"
#include "shoal/learn/learner/optimizer_state.h"
#include "shoal/learn/learner/state_arrays.h"
#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/trace/recorder.h"

namespace shoal::learn {
struct AsynchronousLearner::Impl {
  Impl(const env::Space& observation, const env::Space& action, int num_envs,
       const LearnerConfig& config, const AsynchronousOptions& options, std::uint64_t seed,
       const MakeUpdate& make_update, std::shared_ptr<RolloutSupply> supply)
      : config(config),
        options(options),
        steps_of_rollout(static_cast<std::int64_t>(config.num_steps) * num_envs),
        agent(observation, action, config, seed),
        update(make_update(agent.policy())),
        actor(supply ? std::move(supply)
                     : std::make_shared<CollectingThread>(observation, action, num_envs, config,
                                                          seed)) {
    last.policy_loss = last.value_loss = last.entropy = last.loss = last.approx_kl =
        last.clip_fraction = last.explained_variance = last.grad_norm = last.clip_range =
            UpdateStats::kNone;
  }

  void publish() {
    actor->publish(agent.policy().parameters().flat(), iteration);
    published = true;
  }

  /// Lets the actor begin rollouts: none that would be too old when it is learned from, and none
  /// beyond the end of the run but for `at_least`.
  void allow(std::int64_t at_least) {
    const auto [whole, rest] = std::lldiv(config.total_steps - steps, steps_of_rollout);
    const std::int64_t left = whole + (rest > 0 ? 1 : 0);
    const std::int64_t ahead = std::min<std::int64_t>(options.max_lag + 1, left);
    actor->allow(iteration + std::max(ahead, at_least));
  }

  /// Of an iteration that got no rollout: as the last one that did.
  IterationStats without_learning(double seconds) {
    last.iteration = iteration;
    last.steps = steps;
    IterationStats stats = last;
    stats.learned = false;
    stats.collect_seconds = seconds;
    stats.update_seconds = 0;
    actor->report(stats);
    return stats;
  }

  const LearnerConfig config;
  const AsynchronousOptions options;
  const std::int64_t steps_of_rollout;
  Agent agent;  // the policy that learns; the actor has its own
  std::unique_ptr<RolloutUpdate> update;
  std::int64_t steps = 0;
  std::int64_t iteration = 0;
  bool published = false;  // weights, for the actors to begin with
  IterationStats last;     // of the last iteration that learned
  std::shared_ptr<RolloutSupply> actor;
};

AsynchronousLearner::AsynchronousLearner(const env::Space& observation, const env::Space& action,
                                         int num_envs, const LearnerConfig& config,
                                         const AsynchronousOptions& options, std::uint64_t seed,
                                         const MakeUpdate& make_update,
                                         std::shared_ptr<RolloutSupply> supply)
    : impl_(std::make_unique<Impl>(observation, action, num_envs, config, options, seed,
                                   make_update, std::move(supply))) {}
AsynchronousLearner::~AsynchronousLearner() = default;

std::int64_t AsynchronousLearner::steps() const noexcept { return impl_->steps; }
std::int64_t AsynchronousLearner::iteration() const noexcept { return impl_->iteration; }

void AsynchronousLearner::begin(vector::VectorEnv& envs) {
  impl_->actor->begin(envs);
  impl_->publish();
}

void AsynchronousLearner::resume(vector::VectorEnv& envs, const vector::Batch& current) {
  impl_->actor->resume(envs, current);
  impl_->publish();
}

void AsynchronousLearner::rest() const noexcept { impl_->actor->rest(); }

IterationStats AsynchronousLearner::iterate() {
  Impl& me = *impl_;
  IterationStats stats;
  const double remaining =
      1.0 - static_cast<double>(me.steps) / static_cast<double>(me.config.total_steps);

  auto start = os::Clock::now();
  if (!me.published) me.publish();
  me.allow(1);
  std::optional<CollectedRollout> taken = [&] {
    const trace::Scope scope(trace::Span::kWait);
    return me.actor->take();
  }();
  stats.collect_seconds = os::seconds_since(start);
  if (!taken) return me.without_learning(stats.collect_seconds);
  CollectedRollout& collected = *taken;
  stats.policy_lag = static_cast<double>(me.iteration - collected.version);
  me.agent.encoder().moments() = collected.obs_moments;

  start = os::Clock::now();
  const UpdateStats update = [&] {
    const trace::Scope scope(trace::Span::kUpdate);
    return me.update->run(collected.rollout, {.iteration = me.iteration, .remaining = remaining});
  }();
  stats.update_seconds = os::seconds_since(start);

  me.steps += me.steps_of_rollout;
  ++me.iteration;
  if (me.options.deterministic) {  // all with the weights from before this update
    start = os::Clock::now();
    me.actor->finish();
    stats.collect_seconds += os::seconds_since(start);
  }
  me.publish();
  if (!me.options.deterministic) me.allow(0);
  stats.iteration = me.iteration;
  stats.steps = me.steps;
  collected.report(stats);
  me.actor->give_back(std::move(collected));
  report(update, me.agent.policy(), stats);
  me.actor->report(stats);
  me.last = stats;
  me.last.finished.clear();
  return stats;
}

ActingPolicy& AsynchronousLearner::acting() { return impl_->agent; }

LearnerState AsynchronousLearner::policy_state() const {
  Impl& me = *impl_;
  LearnerState state;
  me.agent.save(state);
  state.counters["seed"] = me.agent.policy().random().seed();
  state.counters["steps"] = me.steps;
  state.counters["iteration"] = me.iteration;
  return state;
}

LearnerState AsynchronousLearner::state() const {
  Impl& me = *impl_;
  me.actor->rest();
  LearnerState state = policy_state();
  OptimizerState::save(me.update->optimizer(), me.agent.policy().parameters(), state);
  save_returns(me.update->returns(), state);
  me.actor->save(state);
  return state;
}

void AsynchronousLearner::load_state(const LearnerState& state) {
  // All is read, and thereby checked, before anything of this learner changes.
  Impl& me = *impl_;
  me.actor->rest();
  auto& optimizer = me.update->optimizer();
  const auto optimizer_state =
      OptimizerState::read(state, optimizer, me.agent.policy().parameters());
  auto returns = read_returns(state, me.update->returns());
  const auto actor = me.actor->read(state);
  const auto steps = counter(state, "steps").get<std::int64_t>();
  const auto iteration = counter(state, "iteration").get<std::int64_t>();
  const auto seed = counter(state, "seed").get<std::uint64_t>();

  load_policy(state);
  optimizer_state.put_into(optimizer);
  me.update->returns() = std::move(returns);
  me.actor->put_back(*actor, iteration, seed);
  me.agent.reseed(seed);
  me.steps = steps;
  me.iteration = iteration;
  me.publish();
}

void AsynchronousLearner::load_policy(const LearnerState& state) {
  impl_->agent.load(state);
  impl_->publish();
}

std::unique_ptr<Learner> make_rollout_learner(const env::Space& observation,
                                              const env::Space& action, const Shards& shards,
                                              const LearnerConfig& config, std::uint64_t seed,
                                              bool overlap, const RankOptions& ranks,
                                              const MakeUpdate& make_update) {
  if (!overlap)
    return std::make_unique<RolloutLearner>(observation, action, shards, config, seed, make_update,
                                            Recurrence{}, ranks);
  if (!shards.whole())
    throw InvalidArgument("overlap is for one rank and shards = 1: leave it out");
  return std::make_unique<AsynchronousLearner>(observation, action, shards.num_envs(), config,
                                               kOverlap, seed, make_update);
}

}  // namespace shoal::learn
