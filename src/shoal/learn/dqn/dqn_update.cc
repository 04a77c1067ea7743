#include "shoal/learn/dqn/dqn_update.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "shoal/learn/dqn/dqn_loss.h"
#include "shoal/learn/learner/optimizer_state.h"
#include "shoal/learn/learner/state_arrays.h"

namespace shoal::learn {

DqnUpdate::DqnUpdate(const env::Space& observation, const env::Space& action,
                     const DqnConfig& config, std::uint64_t seed)
    : config_(config),
      policy_(observation, action, config, seed),
      optimizer_(make_optimizer(config, policy_.parameters().flat().size())),
      gradient_(policy_.parameters().flat().size()) {
  const QLayers layers =
      QLayers::create(policy_.encoder(), policy_.layers().actions, config.dueling, config, target_);
  std::ranges::copy(policy_.parameters().flat(), target_.flat().begin());
  target_network_ = make_q_network(layers, target_);
}

void DqnUpdate::explore(std::span<const shm::TensorView> obs, const OffPolicyTime& time,
                        bool anyhow, const shm::TensorView& actions) {
  const double share = anyhow ? 1.0 : exploration(config_, time.remaining);
  policy_.choose(obs, share, Stream::kAction, static_cast<std::uint64_t>(time.number), actions);
}

void DqnUpdate::stepped(std::int64_t before, std::int64_t after) {
  const std::int64_t interval = config_.target_update_interval;
  const std::int64_t times = after / interval - before / interval;
  if (times == 0) return;
  // Nothing is learned between these moves: together they are one.
  const double tau =
      times == 1 ? config_.tau : 1.0 - std::pow(1.0 - config_.tau, static_cast<double>(times));
  move_towards(std::as_const(policy_).parameters().flat(), static_cast<float>(tau), target_.flat());
  target_network_->parameters_changed();
}

void DqnUpdate::learn(const ReplayMinibatch& batch, const OffPolicyTime& time,
                      std::span<double> td_errors, OffPolicySums& sums) {
  const auto n = static_cast<std::size_t>(policy_.layers().actions);
  const std::size_t size = batch.returns.size() * n;
  for (auto* values : {&q_, &q_target_, &d_q_}) values->resize(size);
  q_next_.resize(config_.double_dqn ? size : 0);
  QNetwork& online = policy_.network();
  if (config_.double_dqn) online.forward(batch.next_obs, q_next_);
  target_network_->forward(batch.next_obs, q_target_);
  online.forward_train(batch.obs, q_);  // last: what it computed is kept
  const DqnLosses losses = dqn_loss({.actions = n,
                                     .q = q_,
                                     .q_next = q_next_,
                                     .q_target = q_target_,
                                     .action = batch.action.as<std::int32_t>(),
                                     .returns = batch.returns,
                                     .discounts = batch.discounts,
                                     .weights = batch.weights},
                                    config_.td_loss, d_q_, td_errors);
  online.backward(d_q_, gradient_.span());
  const double length = norm(gradient_.span(), online.team());
  optimizer_->step(policy_.parameters().flat(), gradient_.span(),
                   clip_factor(length, config_.max_grad_norm),
                   scheduled(config_.learning_rate, config_.learning_rate_schedule, time.remaining),
                   online.team());
  online.parameters_changed();
  sums.value_loss += losses.loss;
  sums.q_value += losses.q_value;
  sums.grad_norm += length;
}

void DqnUpdate::report(const OffPolicyTime& time, IterationStats& stats) const {
  stats.policy_loss = stats.entropy = std::numeric_limits<double>::quiet_NaN();
  stats.loss = stats.value_loss;
  stats.exploration = exploration(config_, time.remaining);
}

void DqnUpdate::save(LearnerState& state) const {
  save_flat("target.", target_, target_.flat(), state.optimizer);
  OptimizerState::save(*optimizer_, policy_.parameters(), state);
}

OffPolicyUpdate::PutBack DqnUpdate::read(const LearnerState& state) {
  auto values = std::make_shared<AlignedFloats>(target_.flat().size());
  load_flat(state.optimizer, "target.", target_, values->span());
  auto optimizer = std::make_shared<OptimizerState>(
      OptimizerState::read(state, *optimizer_, policy_.parameters()));
  return [this, values, optimizer] {
    std::ranges::copy(values->span(), target_.flat().begin());
    target_network_->parameters_changed();
    optimizer->put_into(*optimizer_);
  };
}

}  // namespace shoal::learn
