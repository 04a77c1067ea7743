#include "shoal/collect/rollout_collector.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/trace/recorder.h"

namespace shoal::collect {

RolloutCollector::RolloutCollector(vector::VectorEnv& envs, RolloutCollectorParts parts,
                                   int num_steps)
    : envs_(envs),
      parts_(parts),
      rollout_(num_steps, envs.num_envs(), parts.encoder.specs(), parts.policy.action_spec()) {
  if (envs.autoreset_mode() == vector::AutoresetMode::kDisabled) {
    throw InvalidArgument(
        "collect from environments that are not reset: create them with next-step or same-step "
        "autoreset");
  }
  const auto n = static_cast<std::size_t>(envs.num_envs());
  last_value_.resize(n);
  all_envs_.resize(n);
  std::iota(all_envs_.begin(), all_envs_.end(), 0);
  done_.resize(n);
  skip_.resize(n);
  forgotten_.resize(n);
  if (envs.autoreset_mode() != vector::AutoresetMode::kSameStep) return;
  for (const auto& spec : parts.encoder.specs()) {
    auto& bytes = final_bytes_.emplace_back(n * spec.bytes());
    final_obs_.push_back({bytes.data(), envs.num_envs(), spec});
  }
  final_value_.resize(n);
}

void RolloutCollector::reset(std::span<const std::optional<std::uint64_t>> seeds) {
  ready_ = false;
  last_ = envs_.reset(seeds);
  parts_.encoder.encode(last_.obs, rollout_.obs(rollout_.steps()), true);
  parts_.episodes.restart();
  parts_.rewards.restart();
  std::ranges::fill(forgotten_, std::uint8_t{1});
  parts_.policy.forget(forgotten_);
  ready_ = true;
}

void RolloutCollector::resume(const vector::Batch& current) {
  last_ = current;
  encode_again();
  ready_ = true;
}

Rollout& RolloutCollector::collect(std::uint64_t first_step, const std::function<bool()>& enough) {
  if (!ready_)
    throw InvalidState(
        "collect before the environments were reset, or after they failed: call reset() first");
  const trace::Scope scope(trace::Span::kCollect, last_value_.size());
  ready_ = false;
  rollout_.carry_over();
  parts_.policy.begin_rollout();
  for (taken_ = 0; taken_ < rollout_.steps(); ++taken_) {
    if (enough && 4 * taken_ >= rollout_.steps() && enough()) break;
    choose_actions(taken_, first_step + static_cast<std::uint64_t>(taken_));
    take_in(taken_, envs_.step());
    if (after_step_) after_step_();
  }
  if (taken_ < rollout_.steps()) rollout_.end_at(taken_);
  parts_.policy.values(rollout_.obs(rollout_.steps()), all_envs_, last_value_);
  if (taken_ < rollout_.steps()) std::ranges::copy(last_value_, rollout_.value(taken_).begin());
  rollout_.replace_ends(envs_.autoreset_mode() == vector::AutoresetMode::kSameStep);
  rollout_.link_values(last_value_);
  ready_ = true;
  return rollout_;
}

void RolloutCollector::exchange(Rollout& rollout) {
  SHOAL_CHECK(rollout.steps() == rollout_.steps() && rollout.envs() == rollout_.envs(),
              "rollouts of one shape are exchanged");
  const auto last = rollout_.obs(rollout_.steps());
  for (std::size_t leaf = 0; leaf < last.size(); ++leaf)
    std::memcpy(rollout.obs(rollout.steps())[leaf].data, last[leaf].data, last[leaf].bytes());
  std::swap(rollout_, rollout);
}

void RolloutCollector::encode_again() {
  parts_.encoder.encode(last_.obs, rollout_.obs(rollout_.steps()), false);
}

void RolloutCollector::choose_actions(int t, std::uint64_t step) {
  const shm::TensorView actions = rollout_.action(t);
  const trace::Scope scope(trace::Span::kInfer, last_value_.size());
  parts_.policy.act(rollout_.obs(t), step, actions, rollout_.logp(t), rollout_.value(t));
  parts_.decoder.decode(actions, envs_.actions()[0]);
}

void RolloutCollector::take_in(int t, const vector::Batch& batch) {
  const trace::Scope scope(trace::Span::kCopy, last_value_.size());
  auto valid = rollout_.valid(t);
  auto terminated = rollout_.terminated(t);
  auto truncated = rollout_.truncated(t);
  for (std::size_t i = 0; i < valid.size(); ++i) {
    terminated[i] = batch.terminated[i];
    truncated[i] = batch.truncated[i];
    done_[i] = terminated[i] | truncated[i];
    // Nothing but a reset: next-step autoreset, or the first step after a worker was replaced.
    skip_[i] = batch.reset[i] != 0 && done_[i] == 0;
    valid[i] = skip_[i] == 0 && batch.fault[i] == 0;
  }
  parts_.rewards.scale(batch.reward, valid, done_, rollout_.reward(t));
  parts_.episodes.step(batch.reward, terminated, truncated, skip_, batch.fault);
  if (envs_.autoreset_mode() == vector::AutoresetMode::kSameStep)
    value_final_observations(t, batch);
  for (std::size_t i = 0; i < forgotten_.size(); ++i)
    forgotten_[i] = batch.reset[i] != 0 || batch.fault[i] != 0;
  parts_.policy.forget(forgotten_);
  parts_.encoder.encode(batch.obs, rollout_.obs(t + 1), true);
  last_ = batch;
}

void RolloutCollector::value_final_observations(int t, const vector::Batch& batch) {
  final_env_.clear();
  for (std::size_t i = 0; i < batch.has_final.size(); ++i) {
    if (done_[i] != 0) rollout_.next_value(t)[i] = 0.0F;
    if (batch.has_final[i] == 0 || batch.truncated[i] == 0 || rollout_.valid(t)[i] == 0) continue;
    parts_.encoder.encode_row(batch.final_obs, static_cast<std::int64_t>(i), final_obs_,
                              static_cast<std::int64_t>(final_env_.size()));
    final_env_.push_back(static_cast<int>(i));
  }
  if (final_env_.empty()) return;
  std::vector<shm::TensorView> rows = final_obs_;
  for (auto& view : rows) view.rows = static_cast<std::int64_t>(final_env_.size());
  parts_.policy.values(rows, final_env_, std::span<float>(final_value_).first(final_env_.size()));
  for (std::size_t k = 0; k < final_env_.size(); ++k) {
    rollout_.next_value(t)[static_cast<std::size_t>(final_env_[k])] = final_value_[k];
  }
}

}  // namespace shoal::collect
