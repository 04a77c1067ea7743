#include "shoal/learn/sac/sac_update.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "shoal/learn/learner/optimizer_state.h"
#include "shoal/learn/learner/state_arrays.h"
#include "shoal/learn/network/mlp_layers.h"
#include "shoal/learn/sac/squashed_gaussian.h"

namespace shoal::learn {
namespace {

constexpr std::uint64_t kCriticSeed = 0x5ac;  // critics begin with numbers that are not the actor's
constexpr const char* kActorSteps = "optimizer_steps";
constexpr const char* kCriticSteps = "critic_optimizer_steps";
constexpr const char* kTemperatureSteps = "temperature_optimizer_steps";

}  // namespace

TwinCritics::TwinCritics(std::int64_t inputs, const SacConfig& config) {
  for (std::size_t c = 0; c < 2; ++c)
    layers[c] =
        add_mlp(parameters, "critic." + std::to_string(c), inputs, config.value_hidden, 1, 1.0);
  parameters.build();
  for (const Mlp& mlp : layers) chains.emplace_back(mlp, config.activation, parameters);
}

void TwinCritics::parameters_changed() {
  for (MlpChain& chain : chains) chain.parameters_changed();
}

SacUpdate::SacUpdate(const env::Space& observation, const env::Space& action,
                     const SacConfig& config, std::uint64_t seed)
    : config_(config),
      policy_(observation, action, config, seed),
      critics_(policy_.encoder().dense() + static_cast<std::int64_t>(policy_.dimensions()), config),
      targets_(policy_.encoder().dense() + static_cast<std::int64_t>(policy_.dimensions()), config),
      target_entropy_(config.target_entropy.value_or(-static_cast<double>(policy_.dimensions()))),
      actor_optimizer_(make_optimizer(config, policy_.parameters().flat().size())),
      critic_optimizer_(make_optimizer(config, critics_.parameters.flat().size())),
      actor_gradient_(policy_.parameters().flat().size()),
      critic_gradient_(critics_.parameters.flat().size()) {
  temperature_.add("log_alpha", {1});
  temperature_.build();
  temperature_optimizer_ = make_optimizer(config, temperature_.flat().size());
  temperature_gradient_ = AlignedFloats(temperature_.flat().size());
  temperature_.values(0)[0] =
      config.automatic_entropy ? static_cast<float>(std::log(config.entropy_coef)) : 0.0F;
  const Philox random(seed ^ kCriticSeed);
  for (const Mlp& mlp : critics_.layers)
    for (const Layer& layer : mlp)
      initialize_layer(layer, critics_.parameters, config.orthogonal_init, random);
  critics_.parameters_changed();
  move_towards(critics_.parameters.flat(), 1.0F, targets_.parameters.flat());
  targets_.parameters_changed();
}

double SacUpdate::temperature() const noexcept {
  return config_.automatic_entropy ? std::exp(static_cast<double>(temperature_.values(0)[0]))
                                   : config_.entropy_coef;
}

void SacUpdate::explore(std::span<const shm::TensorView> obs, const OffPolicyTime& time,
                        bool anyhow, const shm::TensorView& actions) {
  const auto unit = actions.as<float>();
  const auto step = static_cast<std::uint64_t>(time.number);
  if (!anyhow) {
    here_.logp.resize(static_cast<std::size_t>(actions.rows));
    policy_.sample(obs, Stream::kAction, step, unit, here_.logp);
    return;
  }
  const std::size_t n = policy_.dimensions();
  for (std::size_t i = 0; i < unit.size(); ++i) {
    const std::size_t k = i % n;
    const auto bits = policy_.random()(Stream::kAction, step, static_cast<std::uint32_t>(i / n),
                                       static_cast<std::uint32_t>(k / 4));
    unit[i] = 2.0F * uniform(bits[k % 4]) - 1.0F;
  }
}

// One update

void SacUpdate::reserve(std::size_t rows) {
  const std::size_t n = policy_.dimensions();
  for (Drawn* drawn : {&here_, &next_}) {
    drawn->noise.resize(rows * n);
    drawn->action.resize(rows * n);
    drawn->logp.resize(rows);
  }
  target_values_.resize(rows);
  if (rows <= capacity_) return;
  capacity_ = rows;
  const std::int64_t width =
      padded(policy_.encoder().dense() + static_cast<std::int64_t>(policy_.dimensions()));
  const std::size_t size = rows * static_cast<std::size_t>(width);
  inputs_ = AlignedFloats(size);
  next_inputs_ = AlignedFloats(size);
  for (AlignedFloats& by : by_input_) by = AlignedFloats(size);
}

void SacUpdate::lay_out(std::span<const shm::TensorView> obs, const float* actions,
                        AlignedFloats& inputs) const {
  const std::int64_t dense = obs[0].row.numel();
  const auto n = static_cast<std::int64_t>(policy_.dimensions());
  const std::int64_t width = padded(dense + n);
  const auto* from = reinterpret_cast<const float*>(obs[0].data);
  for (std::int64_t r = 0; r < obs[0].rows; ++r) {
    std::copy_n(from + r * dense, dense, inputs.data() + r * width);
    if (actions != nullptr) std::copy_n(actions + r * n, n, inputs.data() + r * width + dense);
  }
}

FloatRows SacUpdate::draw(const AlignedFloats& inputs, std::int64_t rows, std::uint64_t number,
                          std::uint32_t which, Drawn& drawn) {
  const std::size_t n = policy_.dimensions();
  const std::int64_t width = padded(policy_.encoder().dense() + static_cast<std::int64_t>(n));
  const FloatRows head = policy_.network().forward({inputs.data(), width}, rows);
  policy_.fill_noise(Stream::kNoise, number, which, drawn.noise);
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r)
    drawn.logp[r] =
        squash({head.row(static_cast<std::int64_t>(r)), 2 * n},
               std::span(drawn.noise).subspan(r * n, n), std::span(drawn.action).subspan(r * n, n));
  return head;
}

double SacUpdate::learn_temperature(double rate) {
  double sum = 0;
  for (const float logp : here_.logp) sum += static_cast<double>(logp);
  const double mean = sum / static_cast<double>(here_.logp.size());
  if (!config_.automatic_entropy) return mean;
  temperature_gradient_.span()[0] = static_cast<float>(-(mean + target_entropy_));
  temperature_optimizer_->step(temperature_.flat(), temperature_gradient_.span(), 1.0, rate);
  return mean;
}

void SacUpdate::take_targets(const ReplayMinibatch& batch, std::uint64_t number, float alpha) {
  const std::int64_t rows = batch.obs[0].rows;
  lay_out(batch.next_obs, nullptr, next_inputs_);
  draw(next_inputs_, rows, number, 1, next_);
  lay_out(batch.next_obs, next_.action.data(), next_inputs_);
  const FloatRows x{next_inputs_.data(), padded(batch.obs[0].row.numel() +
                                                static_cast<std::int64_t>(policy_.dimensions()))};
  const FloatRows first = targets_.chains[0].forward(x, rows);
  const FloatRows second = targets_.chains[1].forward(x, rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto k = static_cast<std::size_t>(r);
    const float value = std::min(*first.row(r), *second.row(r)) - alpha * next_.logp[k];
    target_values_[k] = batch.returns[k] + batch.discounts[k] * value;
  }
}

double SacUpdate::learn_critics(const ReplayMinibatch& batch, double rate,
                                std::span<double> td_errors, OffPolicySums& sums) {
  const std::int64_t rows = batch.obs[0].rows;
  lay_out(batch.obs, reinterpret_cast<const float*>(batch.action.data), inputs_);
  const FloatRows x{inputs_.data(), padded(batch.obs[0].row.numel() +
                                           static_cast<std::int64_t>(policy_.dimensions()))};
  const float each = 1.0F / static_cast<float>(rows);
  double loss = 0;
  double q_sum = 0;
  std::ranges::fill(td_errors, 0.0);
  for (MlpChain& critic : critics_.chains) {
    const FloatRows q = critic.forward(x, rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto k = static_cast<std::size_t>(r);
      const float error = *q.row(r) - target_values_[k];
      critic.delta()[r * critic.delta_stride()] = each * batch.weights[k] * error;
      loss += 0.5 * static_cast<double>(batch.weights[k] * error * error);
      q_sum += static_cast<double>(*q.row(r));
      td_errors[k] += 0.5 * static_cast<double>(std::abs(error));  // the mean of both
    }
    critic.backward(x, rows, critic_gradient_.span());
  }
  const double length = norm(critic_gradient_.span());
  critic_optimizer_->step(critics_.parameters.flat(), critic_gradient_.span(),
                          clip_factor(length, config_.max_grad_norm), rate);
  critics_.parameters_changed();
  sums.value_loss += loss / static_cast<double>(rows);
  sums.q_value += q_sum / static_cast<double>(2 * rows);
  return length;
}

double SacUpdate::learn_actor(FloatRows head, std::int64_t rows, double rate, float alpha,
                              OffPolicySums& sums) {
  const std::size_t n = policy_.dimensions();
  const std::int64_t dense = policy_.encoder().dense();
  const std::int64_t width = padded(dense + static_cast<std::int64_t>(n));
  const FloatRows x{inputs_.data(), width};
  const FloatRows q[] = {critics_.chains[0].forward(x, rows), critics_.chains[1].forward(x, rows)};
  const float each = 1.0F / static_cast<float>(rows);
  double loss = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const bool second = *q[1].row(r) < *q[0].row(r);
    for (std::size_t c = 0; c < 2; ++c) {
      MlpChain& critic = critics_.chains[c];
      critic.delta()[r * critic.delta_stride()] = (c == 1) == second ? -each : 0.0F;
    }
    loss += static_cast<double>(alpha * here_.logp[static_cast<std::size_t>(r)]) -
            static_cast<double>(*q[second ? 1 : 0].row(r));
  }
  for (MlpChain& critic : critics_.chains) critic.backward(x, rows, {});
  MlpChain::backward_shared_input(critics_.chains[0], critics_.chains[1], rows, by_input_[0].data(),
                                  by_input_[1]);
  MlpChain& actor = policy_.network();
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto at = static_cast<std::size_t>(r) * n;
    float* by_action = by_input_[0].data() + r * width + dense;
    squash_backward({head.row(r), 2 * n}, std::span(here_.noise).subspan(at, n),
                    std::span(here_.action).subspan(at, n), each * alpha, {by_action, n},
                    {actor.delta() + r * actor.delta_stride(), 2 * n});
  }
  actor.backward(x, rows, actor_gradient_.span());
  const double length = norm(actor_gradient_.span());
  actor_optimizer_->step(policy_.parameters().flat(), actor_gradient_.span(),
                         clip_factor(length, config_.max_grad_norm), rate);
  actor.parameters_changed();
  sums.policy_loss += loss / static_cast<double>(rows);
  return length;
}

void SacUpdate::learn(const ReplayMinibatch& batch, const OffPolicyTime& time,
                      std::span<double> td_errors, OffPolicySums& sums) {
  const std::int64_t rows = batch.obs[0].rows;
  const auto number = static_cast<std::uint64_t>(time.number);
  const double rate =
      scheduled(config_.learning_rate, config_.learning_rate_schedule, time.remaining);
  const auto alpha = static_cast<float>(temperature());
  reserve(static_cast<std::size_t>(rows));
  take_targets(batch, number, alpha);  // which depend on no step of this update
  lay_out(batch.obs, nullptr, inputs_);
  const FloatRows head = draw(inputs_, rows, number, 0, here_);  // last: what it computed is kept
  sums.entropy -= learn_temperature(rate);
  const double by_critics = learn_critics(batch, rate, td_errors, sums);
  lay_out(batch.obs, here_.action.data(), inputs_);
  const double by_actor = learn_actor(head, rows, rate, alpha, sums);
  sums.grad_norm += std::hypot(by_critics, by_actor);
  move_towards(critics_.parameters.flat(), static_cast<float>(config_.tau),
               targets_.parameters.flat());
  targets_.parameters_changed();
}

void SacUpdate::report(const OffPolicyTime&, IterationStats& stats) const {
  stats.temperature = temperature();
}

// What is kept

void SacUpdate::save(LearnerState& state) const {
  save_flat("", critics_.parameters, critics_.parameters.flat(), state.optimizer);
  save_flat("target.", targets_.parameters, targets_.parameters.flat(), state.optimizer);
  save_flat("", temperature_, temperature_.flat(), state.optimizer);
  OptimizerState::save(*actor_optimizer_, policy_.parameters(), state, kActorSteps);
  OptimizerState::save(*critic_optimizer_, critics_.parameters, state, kCriticSteps);
  OptimizerState::save(*temperature_optimizer_, temperature_, state, kTemperatureSteps);
}

OffPolicyUpdate::PutBack SacUpdate::read(const LearnerState& state) {
  struct Read {
    AlignedFloats critics, targets, temperature;
    OptimizerState actor, critic, alpha;
  };
  auto all = std::make_shared<Read>();
  const auto floats = [&](const char* prefix, const Parameters& layout) {
    AlignedFloats values(layout.flat().size());
    load_flat(state.optimizer, prefix, layout, values.span());
    return values;
  };
  all->critics = floats("", critics_.parameters);
  all->targets = floats("target.", targets_.parameters);
  all->temperature = floats("", temperature_);
  all->actor = OptimizerState::read(state, *actor_optimizer_, policy_.parameters(), kActorSteps);
  all->critic = OptimizerState::read(state, *critic_optimizer_, critics_.parameters, kCriticSteps);
  all->alpha =
      OptimizerState::read(state, *temperature_optimizer_, temperature_, kTemperatureSteps);
  return [this, all] {
    std::ranges::copy(all->critics.span(), critics_.parameters.flat().begin());
    std::ranges::copy(all->targets.span(), targets_.parameters.flat().begin());
    std::ranges::copy(all->temperature.span(), temperature_.flat().begin());
    critics_.parameters_changed();
    targets_.parameters_changed();
    all->actor.put_into(*actor_optimizer_);
    all->critic.put_into(*critic_optimizer_);
    all->alpha.put_into(*temperature_optimizer_);
  };
}

}  // namespace shoal::learn
