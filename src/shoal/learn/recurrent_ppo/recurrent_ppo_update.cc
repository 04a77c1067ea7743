#include "shoal/learn/recurrent_ppo/recurrent_ppo_update.h"

#include <algorithm>

namespace shoal::learn {

RecurrentPpoUpdate::RecurrentPpoUpdate(ActorCriticPolicy& policy, const RecurrentPpoConfig& config)
    : PpoUpdate(policy, config) {}

std::size_t RecurrentPpoUpdate::split(collect::Rollout& rollout) {
  find_sequences(rollout);
  return std::min(PpoUpdate::split(rollout), envs_.size());
}

void RecurrentPpoUpdate::shuffle(std::int64_t iteration, int epoch) {
  PpoUpdate::shuffle(envs_, iteration, epoch);
}

void RecurrentPpoUpdate::find_sequences(collect::Rollout& rollout) {
  num_envs_ = rollout.envs();
  of_env_.assign(static_cast<std::size_t>(num_envs_), {});
  envs_.clear();
  for (int env = 0; env < num_envs_; ++env) {
    auto& sequences = of_env_[static_cast<std::size_t>(env)];
    const auto i = static_cast<std::size_t>(env);
    bool goes_on = false;
    for (int t = 0; t < rollout.steps(); ++t) {
      const bool valid = rollout.valid(t)[i] != 0;
      if (valid && !goes_on) sequences.push_back({env, t, 0});
      if (valid) ++sequences.back().length;
      goes_on = valid && rollout.terminated(t)[i] == 0 && rollout.truncated(t)[i] == 0;
    }
    if (!sequences.empty()) envs_.push_back(env);
  }
}

RolloutUpdate::Parts RecurrentPpoUpdate::minibatch(std::size_t which, std::size_t count) {
  const std::size_t from = envs_.size() * which / count;
  const std::size_t to = envs_.size() * (which + 1) / count;
  sequences_.clear();
  for (std::size_t k = from; k < to; ++k) {
    const auto& more = of_env_[static_cast<std::size_t>(envs_[k])];
    sequences_.insert(sequences_.end(), more.begin(), more.end());
  }
  std::ranges::stable_sort(sequences_, std::ranges::greater(), &Sequence::length);
  lay_out();
  return {Sequences(rows_, counts_, memory_)};
}

void RecurrentPpoUpdate::lay_out() {
  rows_.clear();
  counts_.clear();
  memory_.clear();
  for (int step = 0; step < sequences_.front().length; ++step) {
    const std::size_t before = rows_.size();
    for (const Sequence& s : sequences_) {
      if (s.length <= step) break;
      rows_.push_back((s.first + step) * num_envs_ + s.env);
    }
    counts_.push_back(static_cast<std::int32_t>(rows_.size() - before));
  }
  const std::size_t size = policy_.model().memory_size();
  for (const Sequence& s : sequences_) {
    if (s.first > 0) {
      memory_.resize(memory_.size() + size);
      continue;
    }
    const auto start = policy_.memory_at_start().row(static_cast<std::size_t>(s.env));
    memory_.insert(memory_.end(), start.begin(), start.end());
  }
}

}  // namespace shoal::learn
