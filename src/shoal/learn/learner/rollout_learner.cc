#include "shoal/learn/learner/rollout_learner.h"

#include <optional>
#include <span>
#include <vector>

#include "shoal/learn/learner/episodes_of_run.h"
#include "shoal/learn/learner/finite_experience.h"
#include "shoal/learn/learner/rollout_learner_impl.h"
#include "shoal/os/clock.h"
#include "shoal/trace/recorder.h"

namespace shoal::learn {
RolloutLearner::RolloutLearner(const env::Space& observation, const env::Space& action,
                               const Shards& shards, const LearnerConfig& config,
                               std::uint64_t seed, const MakeUpdate& make_update,
                               const Recurrence& recurrence, const RankOptions& ranks)
    : impl_(std::make_unique<Impl>(observation, action, shards, config, seed, make_update,
                                   recurrence, ranks)) {}
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

  auto start = os::Clock::now();
  const auto first_step =
      static_cast<std::uint64_t>(me.iteration) * static_cast<std::uint64_t>(me.config.num_steps);
  std::optional<EpisodesOfRun> before;
  if (me.shards.group() != nullptr) before.emplace(me.source.episodes());
  collect::Rollout& rollout = me.rounds.collect(me.source.collector(), me.iteration, first_step);
  require_finite(rollout, me.shards.first_env());
  stats.collect_seconds = os::seconds_since(start);

  start = os::Clock::now();
  const UpdateStats update = [&] {
    const trace::Scope scope(trace::Span::kUpdate);
    return me.sharing.run(*me.update, rollout, {.iteration = me.iteration, .remaining = remaining});
  }();
  if (!me.shards.whole()) me.agree();
  stats.update_seconds = os::seconds_since(start);

  me.steps += static_cast<std::int64_t>(me.config.num_steps) * me.shards.num_envs() -
              me.rounds.cut().value_or(0);
  ++me.iteration;
  stats.iteration = me.iteration;
  stats.steps = me.steps;
  if (before) {
    stats.finished = before->add_those_of_all(me.shards, me.source.episodes());
    stats.take_means(me.source.episodes());
  } else {
    stats.take(me.source.episodes());
  }
  report(update, me.agent.policy(), stats);
  stats.splits_update = me.sharing.splits();
  stats.steps_cut = me.rounds.cut();
  return stats;
}

void RolloutLearner::Impl::agree() {
  const auto agree_on = [&](collect::ShardMoments* of_shards, collect::RunningMoments& agreed) {
    if (of_shards == nullptr || agreed.size() == 0) return;
    const std::size_t width = of_shards->width();
    std::vector<double> news(static_cast<std::size_t>(shards.count()) * width);
    of_shards->tell(std::span(news).subspan(static_cast<std::size_t>(shards.first()) * width,
                                            static_cast<std::size_t>(shards.here()) * width));
    shards.collect(news);
    of_shards->agree(news, agreed);
  };
  agree_on(source.rewards().shards(), source.rewards().moments());
  agree_on(agent.encoder().shards(), agent.encoder().moments());
  if (agent.encoder().moments().size() > 0) source.collector().encode_again();
}

ActingPolicy& RolloutLearner::acting() { return impl_->agent; }

}  // namespace shoal::learn
