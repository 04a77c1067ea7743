#include "shoal/learn/learner/rollout_learner.h"

#include <chrono>

#include "shoal/learn/learner/rollout_learner_impl.h"
#include "shoal/trace/recorder.h"

namespace shoal::learn {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

RolloutLearner::RolloutLearner(const env::Space& observation, const env::Space& action,
                               int num_envs, const LearnerConfig& config, std::uint64_t seed,
                               const MakeUpdate& make_update, const Recurrence& recurrence)
    : impl_(std::make_unique<Impl>(observation, action, num_envs, config, seed, make_update,
                                   recurrence)) {}
RolloutLearner::~RolloutLearner() = default;

std::int64_t RolloutLearner::steps() const noexcept { return impl_->steps; }
std::int64_t RolloutLearner::iteration() const noexcept { return impl_->iteration; }

void RolloutLearner::begin(vector::VectorEnv& envs) { impl_->source.begin(envs, impl_->iteration); }

void RolloutLearner::resume(vector::VectorEnv& envs, const vector::Batch& current) {
  impl_->source.resume(envs, current);
}

IterationStats RolloutLearner::iterate() {
  Impl& me = *impl_;
  IterationStats stats;
  const double remaining =
      1.0 - static_cast<double>(me.steps) / static_cast<double>(me.config.total_steps);

  auto start = Clock::now();
  const auto first_step =
      static_cast<std::uint64_t>(me.iteration) * static_cast<std::uint64_t>(me.config.num_steps);
  collect::Rollout& rollout = me.source.collector().collect(first_step);
  stats.collect_seconds = seconds_since(start);

  start = Clock::now();
  const UpdateStats update = [&] {
    const trace::Scope scope(trace::Span::kUpdate);
    return me.update->run(rollout, {.iteration = me.iteration, .remaining = remaining});
  }();
  stats.update_seconds = seconds_since(start);

  me.steps += static_cast<std::int64_t>(me.config.num_steps) * me.num_envs;
  ++me.iteration;
  stats.iteration = me.iteration;
  stats.steps = me.steps;
  stats.take(me.source.episodes());
  report(update, me.agent.policy(), stats);
  return stats;
}

ActingPolicy& RolloutLearner::acting() { return impl_->agent; }

}  // namespace shoal::learn
