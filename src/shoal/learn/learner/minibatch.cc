#include "shoal/learn/learner/minibatch.h"

#include <algorithm>
#include <cstring>

namespace shoal::learn {

Minibatch::Minibatch(ActorCriticPolicy& policy, const LearnerConfig& config)
    : policy_(policy), config_(config), gradient_(policy.parameters().flat().size()) {}

LossRows Minibatch::rows() noexcept {
  return {.head = head_,
          .value = value_,
          .log_std = policy_.log_std(),
          .actions = {actions_.data(), static_cast<std::int64_t>(value_.size()), action_},
          .old_logp = old_logp_,
          .old_value = old_value_,
          .advantage = advantage_,
          .returns = returns_};
}

void Minibatch::take(collect::Rollout& rollout, const Advantages& advantages,
                     const Sequences& sequences) {
  const std::span<const std::int32_t> rows = sequences.rows;
  const std::size_t n = rows.size();
  const shm::TensorView all_actions = rollout.action();
  for (auto* v : {&value_, &d_value_, &old_logp_, &old_value_, &advantage_, &returns_})
    v->resize(n);
  for (auto* v : {&head_, &d_head_}) v->resize(n * policy_.distribution().head_size());
  d_log_std_.resize(policy_.log_std().size());
  actions_.resize(n * all_actions.row_bytes());
  action_ = all_actions.row;
  for (std::size_t k = 0; k < n; ++k) {
    const auto r = static_cast<std::size_t>(rows[k]);
    old_logp_[k] = rollout.logp()[r];
    old_value_[k] = rollout.value()[r];
    advantage_[k] = advantages.advantage[r];
    returns_[k] = advantages.returns[r];
    std::memcpy(actions_.data() + k * all_actions.row_bytes(), all_actions.row_data(rows[k]),
                all_actions.row_bytes());
  }
  if (config_.advantage_normalization == AdvantageNormalization::kMinibatch)
    normalize_advantages(advantage_);
  policy_.model().forward_train(rollout.obs(), sequences, head_, value_);
}

double Minibatch::differentiate() {
  policy_.model().backward(d_head_, d_value_, gradient_.span());
  if (!d_log_std_.empty()) {
    const auto& parameter =
        policy_.parameters()[static_cast<std::size_t>(policy_.network().log_std)];
    std::ranges::copy(d_log_std_, gradient_.span().subspan(parameter.offset).begin());
  }
  return norm(gradient_.span());
}

void Minibatch::step(Optimizer& optimizer, double norm, double learning_rate) {
  optimizer.step(policy_.parameters().flat(), gradient_.span(),
                 clip_factor(norm, config_.max_grad_norm), learning_rate);
  policy_.model().parameters_changed();
}

}  // namespace shoal::learn
