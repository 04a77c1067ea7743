#include "shoal/learn/recurrent_ppo/recurrent_ppo_update.h"

#include <algorithm>

namespace shoal::learn {
namespace {

/// Steps that the pieces of an environment begin with.
std::vector<int> firsts_of(const RecurrentPpoConfig& config, int num_envs) {
  const std::int64_t rows = std::int64_t{config.num_steps} * num_envs;
  const std::int64_t minibatches = (rows + config.batch_size / 2) / config.batch_size;
  const std::int64_t pieces =
      std::clamp<std::int64_t>((minibatches + num_envs - 1) / num_envs, 1, config.num_steps);
  std::vector<int> firsts;
  for (std::int64_t piece = 0; piece < pieces; ++piece)
    firsts.push_back(static_cast<int>(config.num_steps * piece / pieces));
  return firsts;
}

}  // namespace

RecurrentPpoUpdate::RecurrentPpoUpdate(ActorCriticPolicy& policy, const RecurrentPpoConfig& config,
                                       int num_envs)
    : PpoUpdate(policy, config), num_envs_(num_envs), firsts_(firsts_of(config, num_envs)) {
  policy.keep_memory_before(firsts_);
}

std::size_t RecurrentPpoUpdate::split(collect::Rollout& rollout) {
  find_sequences(rollout);
  return std::min(PpoUpdate::split(rollout), pieces_.size());
}

void RecurrentPpoUpdate::shuffle(std::int64_t iteration, int epoch) {
  PpoUpdate::shuffle(pieces_, iteration, epoch);
}

void RecurrentPpoUpdate::find_sequences(collect::Rollout& rollout) {
  of_piece_.assign(static_cast<std::size_t>(num_envs_) * firsts_.size(), {});
  pieces_.clear();
  for (int env = 0; env < num_envs_; ++env) {
    const auto i = static_cast<std::size_t>(env);
    for (std::size_t k = 0; k < firsts_.size(); ++k) {
      const std::size_t piece = i * firsts_.size() + k;
      auto& sequences = of_piece_[piece];
      const int end = k + 1 < firsts_.size() ? firsts_[k + 1] : rollout.steps();
      bool goes_on = false;
      for (int t = firsts_[k]; t < end; ++t) {
        const bool valid = rollout.valid(t)[i] != 0;
        if (valid && !goes_on) sequences.push_back({env, t, 0});
        if (valid) ++sequences.back().length;
        goes_on = valid && rollout.terminated(t)[i] == 0 && rollout.truncated(t)[i] == 0;
      }
      if (!sequences.empty()) pieces_.push_back(static_cast<std::int32_t>(piece));
    }
  }
}

RolloutUpdate::Parts RecurrentPpoUpdate::minibatch(std::size_t which, std::size_t count) {
  const std::size_t from = pieces_.size() * which / count;
  const std::size_t to = pieces_.size() * (which + 1) / count;
  sequences_.clear();
  for (std::size_t k = from; k < to; ++k) {
    const auto& more = of_piece_[static_cast<std::size_t>(pieces_[k])];
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
    if (!std::ranges::binary_search(firsts_, s.first)) {  // an episode begins
      memory_.resize(memory_.size() + size);
      continue;
    }
    const auto start = policy_.memory_before(s.first).row(static_cast<std::size_t>(s.env));
    memory_.insert(memory_.end(), start.begin(), start.end());
  }
}

}  // namespace shoal::learn
