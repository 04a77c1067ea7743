#include "shoal/learn/learner/minibatch.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace shoal::learn {

Minibatch::Minibatch(ActorCriticPolicy& policy, const LearnerConfig& config)
    : policy_(policy),
      config_(config),
      size_(policy.parameters().flat().size()),
      gradient_(size_) {}

LossRows Minibatch::rows() noexcept {
  return {.head = head_,
          .value = value_,
          .log_std = policy_.log_std(),
          .actions = {actions_.data(), static_cast<std::int64_t>(value_.size()), action_},
          .old_logp = old_logp_,
          .old_value = old_value_,
          .advantage = advantage_,
          .returns = returns_,
          .total = total_};
}

void Minibatch::take(collect::Rollout& rollout, const Advantages& advantages,
                     const Sequences& sequences, const WholeBatch* whole) {
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
  total_ = whole == nullptr ? n : static_cast<std::size_t>(whole->rows);
  if (config_.advantage_normalization == AdvantageNormalization::kMinibatch) {
    if (whole == nullptr) {
      normalize_advantages(advantage_);
    } else {
      for (float& a : advantage_) a = static_cast<float>((a - whole->mean) * whole->scale);
    }
  }
  policy_.model().forward_train(rollout.obs(), sequences, head_, value_);
}

void Minibatch::write_gradient(std::span<float> gradient) {
  policy_.model().backward(d_head_, d_value_, gradient);
  if (d_log_std_.empty()) return;
  const auto& parameter = policy_.parameters()[static_cast<std::size_t>(policy_.network().log_std)];
  std::ranges::copy(d_log_std_, gradient.subspan(parameter.offset).begin());
}

double Minibatch::differentiate() {
  write_gradient(gradient_.span().first(size_));
  return norm(gradient(), policy_.model().team());
}

std::span<float> Minibatch::part_of_gradient(std::size_t part) {
  if (gradient_.size() < (part + 1) * size_) {
    AlignedFloats larger((part + 1) * size_);
    std::ranges::copy(gradient_.span(), larger.span().begin());
    gradient_ = std::move(larger);
  }
  return gradient_.span().subspan(part * size_, size_);
}

void Minibatch::differentiate_part(std::size_t part) { write_gradient(part_of_gradient(part)); }

void Minibatch::leave_out_part(std::size_t part) {
  std::ranges::fill(part_of_gradient(part), 0.0F);
}

double Minibatch::add_parts(const Shards& shards, std::span<double> numbers) {
  shards.sum(gradient_.span(), numbers);
  return norm(gradient(), policy_.model().team());
}

void Minibatch::step(Optimizer& optimizer, double norm, double learning_rate) {
  optimizer.step(policy_.parameters().flat(), gradient(), clip_factor(norm, config_.max_grad_norm),
                 learning_rate, policy_.model().team());
  policy_.model().parameters_changed();
}

}  // namespace shoal::learn
