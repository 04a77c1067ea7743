#include "shoal/learn/off_policy/off_policy_learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "shoal/learn/off_policy/off_policy_learner_impl.h"
#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/trace/recorder.h"

namespace shoal::learn {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

collect::ReplaySpec replay_spec(OffPolicyAgent& agent, int num_envs,
                                const OffPolicyConfig& config) {
  const std::int64_t rows = config.buffer_size / num_envs + 1;  // the newest row has no end yet
  if (rows < config.n_step + 2)
    throw InvalidArgument(fmt::format(
        "learn with a buffer_size of {}: {} environments share it, and each needs more than n_step "
        "rows, {} here; take {} or more",
        config.buffer_size, num_envs, config.n_step,
        static_cast<std::int64_t>(num_envs) * (config.n_step + 1)));
  return {.obs = agent.encoder().specs(),
          .action = agent.decoder().spec(),
          .columns = num_envs,
          .rows = rows,
          .prioritized = config.prioritized};
}

}  // namespace

void move_towards(std::span<const float> online, float tau, std::span<float> target) noexcept {
  if (tau == 1.0F) {
    std::ranges::copy(online, target.begin());
    return;
  }
  const float* __restrict from = online.data();
  float* __restrict to = target.data();
  for (std::size_t i = 0; i < target.size(); ++i) to[i] += tau * (from[i] - to[i]);
}

OffPolicyLearner::Impl::Impl(const env::Space& observation, const env::Space& action, int num_envs,
                             const OffPolicyConfig& config, std::unique_ptr<OffPolicyUpdate> its)
    : observation_space(observation),
      action_space(action),
      num_envs(num_envs),
      config(config),
      update(std::move(its)),
      replay(collect::Replay::create(replay_spec(update->agent(), num_envs, config))),
      standing(num_envs, config),
      stream(observation, num_envs, update->agent().encoder(), replay, standing),
      action_bytes(static_cast<std::size_t>(num_envs) * update->agent().decoder().spec().bytes()),
      actions{action_bytes.data(), num_envs, update->agent().decoder().spec()} {}

OffPolicyLearner::OffPolicyLearner(const env::Space& observation, const env::Space& action,
                                   int num_envs, const OffPolicyConfig& config,
                                   std::unique_ptr<OffPolicyUpdate> update)
    : impl_(std::make_unique<Impl>(observation, action, num_envs, config, std::move(update))) {}
OffPolicyLearner::~OffPolicyLearner() = default;

std::int64_t OffPolicyLearner::steps() const noexcept { return impl_->steps; }
std::int64_t OffPolicyLearner::iteration() const noexcept { return impl_->iteration; }

void OffPolicyLearner::Impl::attach(vector::VectorEnv& its) {
  check_environments(its, observation_space, action_space, num_envs);
  if (its.autoreset_mode() == vector::AutoresetMode::kDisabled)
    throw InvalidArgument(
        "learn from environments that are not reset: create them with next-step or same-step "
        "autoreset");
  envs = &its;
}

void OffPolicyLearner::begin(vector::VectorEnv& envs) {
  Impl& me = *impl_;
  me.attach(envs);
  me.stream.begin(envs.reset(reset_seeds(me.update->agent().random(), me.iteration, me.num_envs)));
}

void OffPolicyLearner::resume(vector::VectorEnv& envs, const vector::Batch& current) {
  impl_->attach(envs);
  impl_->stream.resume(current);
}

// One iteration

double OffPolicyLearner::Impl::remaining() const {
  return std::clamp(1.0 - static_cast<double>(steps) / static_cast<double>(config.total_steps), 0.0,
                    1.0);
}

IterationStats OffPolicyLearner::iterate() {
  Impl& me = *impl_;
  if (me.envs == nullptr)
    throw InvalidState("iterate before the learner has environments: call begin() first");
  IterationStats stats;
  OffPolicySums sums;
  const std::int64_t updates = me.updates;
  for (int t = 0; t < me.config.num_steps; ++t) {
    auto start = os::Clock::now();
    const std::int64_t before = me.steps;
    me.step();
    stats.collect_seconds += os::seconds_since(start);
    start = os::Clock::now();
    me.learn(before, sums);
    stats.update_seconds += os::seconds_since(start);
  }
  ++me.iteration;
  me.report(sums, static_cast<double>(me.updates - updates), stats);
  return stats;
}

void OffPolicyLearner::Impl::step() {
  const OffPolicyTime time{.number = steps / num_envs, .remaining = remaining()};
  {
    const trace::Scope scope(trace::Span::kInfer, static_cast<std::uint64_t>(num_envs));
    update->explore(stream.obs(), time, steps < config.learning_starts, actions);
    update->agent().decode(actions, envs->actions()[0]);
  }
  const vector::Batch batch = envs->step();
  const trace::Scope scope(trace::Span::kCopy, static_cast<std::uint64_t>(num_envs));
  stream.take(batch, actions, envs->autoreset_mode() == vector::AutoresetMode::kSameStep);
  steps += num_envs;
}

void OffPolicyLearner::Impl::learn(std::int64_t before, OffPolicySums& sums) {
  update->stepped(before, steps);
  if (steps <= config.learning_starts) return;
  const std::int64_t times = steps / config.train_freq - before / config.train_freq;
  if (times == 0) return;
  const trace::Scope scope(trace::Span::kUpdate);
  for (std::int64_t k = 0; k < times * config.updates_each_time(); ++k) learn_once(sums);
}

void OffPolicyLearner::Impl::learn_once(OffPolicySums& sums) {
  const OffPolicyTime time{.number = updates, .remaining = remaining()};
  const double beta =
      config.prioritized_beta + (1.0 - config.prioritized_beta) * (1.0 - time.remaining);
  const auto random = [this](std::uint32_t sample, std::uint32_t attempt) {
    const auto bits = update->agent().random()(Stream::kReplay, static_cast<std::uint64_t>(updates),
                                               sample, attempt);
    return std::uint64_t{bits[0]} << 32 | bits[1];
  };
  if (!replay.sample({.samples = config.batch_size,
                      .n_step = config.n_step,
                      .prioritized = config.prioritized,
                      .beta = beta,
                      .random = random},
                     samples))
    return;  // resets alone so far
  td_errors.resize(samples.picks.size());
  update->learn(minibatch(), time, td_errors, sums);
  ++updates;
  if (!config.prioritized) return;
  for (double& error : td_errors)
    error = std::pow(error + config.prioritized_eps, config.prioritized_alpha);
  replay.set_priorities(samples.picks, td_errors);
}

ReplayMinibatch OffPolicyLearner::Impl::minibatch() {
  update->agent().encoder().normalize(samples.obs);
  update->agent().encoder().normalize(samples.next_obs);
  const std::size_t n = samples.picks.size();
  const auto width = static_cast<std::size_t>(config.n_step);
  returns.resize(n);
  discounts.resize(n);
  for (std::size_t k = 0; k < n; ++k) {
    double sum = 0;
    double discount = 1;
    for (int s = 0; s < samples.steps[k]; ++s, discount *= config.gamma) {
      const float reward = samples.rewards[k * width + static_cast<std::size_t>(s)];
      sum += discount * static_cast<double>(standing.rewards.of(reward));
    }
    const bool ended =
        samples.terminated[k] != 0 || (samples.truncated[k] != 0 && !config.bootstrap_truncated);
    returns[k] = static_cast<float>(sum);
    discounts[k] = ended ? 0.0F : static_cast<float>(discount);
  }
  return {.obs = samples.obs,
          .next_obs = samples.next_obs,
          .action = samples.action,
          .returns = returns,
          .discounts = discounts,
          .weights = samples.weights};
}

void OffPolicyLearner::Impl::report(const OffPolicySums& sums, double count,
                                    IterationStats& stats) {
  stats.iteration = iteration;
  stats.steps = steps;
  stats.updates = updates;
  stats.learned = count > 0;
  stats.take(standing.episodes);
  const double each = count > 0 ? 1.0 / count : kNan;
  stats.value_loss = sums.value_loss * each;
  stats.policy_loss = sums.policy_loss * each;
  stats.entropy = sums.entropy * each;
  stats.q_value = sums.q_value * each;
  stats.grad_norm = sums.grad_norm * each;
  stats.loss = stats.value_loss + stats.policy_loss;
  stats.approx_kl = stats.clip_fraction = stats.explained_variance = stats.clip_range = kNan;
  stats.learning_rate = scheduled(config.learning_rate, config.learning_rate_schedule, remaining());
  update->report({.number = updates, .remaining = remaining()}, stats);
}

ActingPolicy& OffPolicyLearner::acting() { return impl_->update->agent(); }

}  // namespace shoal::learn
