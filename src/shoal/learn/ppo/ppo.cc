#include "shoal/learn/ppo/ppo.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "shoal/collect/collector.h"
#include "shoal/learn/ppo/ppo_impl.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

const PpoConfig& valid(const PpoConfig& config) {
  validate(config);
  return config;
}

collect::RewardScalerOptions reward_options(const PpoConfig& config) {
  collect::RewardForm form = collect::RewardForm::kRaw;
  if (config.normalize_reward) form = collect::RewardForm::kNormalized;
  if (config.sign_reward) form = collect::RewardForm::kSign;
  return {.form = form, .gamma = config.gamma, .clip = config.clip_reward};
}

}  // namespace

Ppo::Impl::Impl(const env::Space& observation, const env::Space& action, int num_envs,
                const PpoConfig& config, std::uint64_t seed)
    : config(valid(config)),
      num_envs(num_envs),
      observation_space(observation),
      action_space(action),
      encoder(observation, {.normalize = config.normalize_obs, .clip = config.clip_obs}),
      decoder(action),
      rewards(num_envs, reward_options(config)),
      episodes(num_envs),
      policy(encoder, decoder, this->config, seed),
      update(policy, this->config) {}

void Ppo::Impl::attach(vector::VectorEnv& envs) {
  if (envs.num_envs() != num_envs || envs.single_observation_space() != observation_space ||
      envs.single_action_space() != action_space) {
    throw InvalidArgument(fmt::format(
        "learn from {} environments with observations {} and actions {}: the learner was made for "
        "{} with {} and {}",
        envs.num_envs(), envs.single_observation_space().repr(), envs.single_action_space().repr(),
        num_envs, observation_space.repr(), action_space.repr()));
  }
  collector = std::make_unique<collect::Collector>(
      envs, collect::CollectorParts{policy, encoder, decoder, rewards, episodes}, config.num_steps);
}

Ppo::Ppo(const env::Space& observation, const env::Space& action, int num_envs,
         const PpoConfig& config, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(observation, action, num_envs, config, seed)) {}
Ppo::~Ppo() = default;
Ppo::Ppo(Ppo&&) noexcept = default;
Ppo& Ppo::operator=(Ppo&&) noexcept = default;

std::int64_t Ppo::steps() const noexcept { return impl_->steps; }
std::int64_t Ppo::iteration() const noexcept { return impl_->iteration; }
const PpoConfig& Ppo::config() const noexcept { return impl_->config; }

void Ppo::begin(vector::VectorEnv& envs) {
  impl_->attach(envs);
  std::vector<std::optional<std::uint64_t>> seeds;
  for (int i = 0; i < impl_->num_envs; ++i) {
    // 31 bits: what every environment's own generator takes.
    const auto bits =
        impl_->policy.random()(Stream::kReset, static_cast<std::uint64_t>(impl_->iteration),
                               static_cast<std::uint32_t>(i));
    seeds.emplace_back(bits[0] >> 1);
  }
  impl_->collector->reset(seeds);
}

void Ppo::resume(vector::VectorEnv& envs, const vector::Batch& current) {
  impl_->attach(envs);
  impl_->collector->resume(current);
}

IterationStats Ppo::iterate() {
  Impl& me = *impl_;
  if (me.collector == nullptr)
    throw InvalidState("iterate before the learner has environments: call begin() first");
  IterationStats stats;
  const double remaining =
      1.0 - static_cast<double>(me.steps) / static_cast<double>(me.config.total_steps);
  stats.learning_rate =
      scheduled(me.config.learning_rate, me.config.learning_rate_schedule, remaining);
  stats.clip_range = scheduled(me.config.clip_range, me.config.clip_range_schedule, remaining);

  auto start = Clock::now();
  const auto first_step =
      static_cast<std::uint64_t>(me.iteration) * static_cast<std::uint64_t>(me.config.num_steps);
  collect::Rollout& rollout = me.collector->collect(first_step);
  stats.collect_seconds = seconds_since(start);

  start = Clock::now();
  const UpdateStats update =
      me.update.run(rollout, me.iteration, stats.learning_rate, stats.clip_range);
  stats.update_seconds = seconds_since(start);

  me.steps += static_cast<std::int64_t>(me.config.num_steps) * me.num_envs;
  ++me.iteration;
  me.report(update, stats);
  return stats;
}

void Ppo::Impl::report(const UpdateStats& update, IterationStats& stats) {
  stats.iteration = iteration;
  stats.steps = steps;
  stats.finished = episodes.take_finished();
  stats.episodes = episodes.count();
  stats.episode_return_mean = episodes.mean_return();
  stats.episode_length_mean = episodes.mean_length();
  stats.policy_loss = update.losses.policy;
  stats.value_loss = update.losses.value;
  stats.entropy = update.losses.entropy;
  stats.loss = update.losses.total;
  stats.approx_kl = update.losses.approx_kl;
  stats.clip_fraction = update.losses.clip_fraction;
  stats.explained_variance = update.explained_variance;
  stats.grad_norm = update.grad_norm;
  stats.epochs = update.epochs;
  if (const auto log_std = policy.log_std(); !log_std.empty()) {
    double sum = 0;
    for (const float s : log_std) sum += std::exp(static_cast<double>(s));
    stats.action_std = sum / static_cast<double>(log_std.size());
  }
}

std::vector<shm::TensorView> Ppo::Impl::encoded(std::span<const shm::TensorView> obs) {
  const std::int64_t rows = obs.front().rows;
  std::vector<shm::TensorView> encoded;
  act_obs.resize(encoder.specs().size());
  for (std::size_t leaf = 0; leaf < act_obs.size(); ++leaf) {
    const auto& spec = encoder.specs()[leaf];
    act_obs[leaf].resize(static_cast<std::size_t>(rows) * spec.bytes());
    encoded.push_back({act_obs[leaf].data(), rows, spec});
  }
  encoder.encode(obs, encoded, false);
  return encoded;
}

shm::TensorView Ppo::Impl::room_for_actions(std::int64_t rows) {
  const auto& spec = decoder.spec();
  act_actions.resize(static_cast<std::size_t>(rows) * spec.bytes());
  return {act_actions.data(), rows, spec};
}

void Ppo::act(std::span<const shm::TensorView> obs, std::span<const shm::TensorView> actions,
              bool deterministic, std::uint64_t step) {
  Impl& me = *impl_;
  const shm::TensorView chosen = me.room_for_actions(obs.front().rows);
  me.policy.act_apart(me.encoded(obs), step, deterministic, chosen);
  me.decoder.decode(chosen, actions[0]);
}

void Ppo::reseed(std::uint64_t seed) noexcept { impl_->policy.reseed(seed); }

void Ppo::decide(std::span<const shm::TensorView> obs, std::uint64_t step,
                 const shm::TensorView& action, std::span<float> log_prob, std::span<float> value) {
  Impl& me = *impl_;
  const shm::TensorView chosen = me.room_for_actions(obs.front().rows);
  me.policy.act(me.encoded(obs), step, chosen, log_prob, value);
  if (me.decoder.is_continuous() && action.row.dtype == shm::DType::kF32) {
    std::memcpy(action.data, chosen.data, chosen.bytes());
  } else {
    me.decoder.decode(chosen, action);
  }
}

}  // namespace shoal::learn
