#include "shoal/learn/off_policy/replay_stream.h"

#include "shoal/learn/learner/finite_experience.h"

namespace shoal::learn {
namespace {

/// Of encoded observations whose first leaf is the dense vector, row k of environment `first` + k.
void require_finite_rows(const shm::TensorView& dense, std::int64_t first) {
  const auto width = static_cast<std::size_t>(dense.row.numel());
  const std::span<const float> all = dense.as<float>();
  for (std::int64_t r = 0; r < dense.rows; ++r)
    require_finite(all.subspan(static_cast<std::size_t>(r) * width, width), first + r);
}

}  // namespace

ReplayStream::Leaves::Leaves(const std::vector<shm::TensorSpec>& specs, std::int64_t rows) {
  for (const shm::TensorSpec& spec : specs)
    bytes.emplace_back(static_cast<std::size_t>(rows) * spec.bytes());
  for (std::size_t leaf = 0; leaf < specs.size(); ++leaf)
    views.push_back({bytes[leaf].data(), rows, specs[leaf]});
}

ReplayStream::ReplayStream(const env::Space& observation, int num_envs,
                           collect::ObservationEncoder& encoder, collect::Replay& replay,
                           EpisodeStanding& standing)
    : plain_(observation),
      encoder_(encoder),
      replay_(replay),
      standing_(standing),
      kept_(encoder.specs(), num_envs),
      seen_(encoder.specs(), num_envs),
      final_(encoder.specs(), 1) {
  const auto n = static_cast<std::size_t>(num_envs);
  for (auto* flags : {&valid_, &done_, &skip_}) flags->resize(n);
  scaled_.resize(n);
}

void ReplayStream::observe(const vector::Batch& batch, bool learn) {
  plain_.encode(batch.obs, kept_.views, false);
  if (plain_.has_dense()) require_finite_rows(kept_.views[0], 0);
  obs_ = kept_.views;
  if (encoder_.moments().size() == 0) return;
  encoder_.encode(batch.obs, seen_.views, learn);
  obs_ = seen_.views;
}

void ReplayStream::begin(const vector::Batch& batch) {
  standing_.episodes.restart();
  standing_.rewards.restart();
  observe(batch, true);
  for (int i = 0; i < replay_.spec().columns; ++i) replay_.begin(i, kept_.views, i);
}

void ReplayStream::resume(const vector::Batch& current) { observe(current, false); }

void ReplayStream::take(const vector::Batch& batch, const shm::TensorView& actions,
                        bool same_step) {
  for (std::size_t i = 0; i < valid_.size(); ++i) {
    done_[i] = batch.terminated[i] | batch.truncated[i];
    // Nothing but a reset: next-step autoreset, or the first step after a worker was replaced.
    skip_[i] = batch.reset[i] != 0 && done_[i] == 0;
    valid_[i] = skip_[i] == 0 && batch.fault[i] == 0;
  }
  for (std::size_t i = 0; i < valid_.size(); ++i)
    if (valid_[i] != 0)
      require_finite(standing_.rewards.of(batch.reward[i]), batch.reward[i],
                     static_cast<std::int64_t>(i));
  standing_.rewards.scale(batch.reward, valid_, done_, scaled_);
  standing_.episodes.step(batch.reward, batch.terminated, batch.truncated, skip_, batch.fault);
  observe(batch, true);
  for (std::size_t i = 0; i < valid_.size(); ++i) take_row(batch, actions, i, same_step);
}

void ReplayStream::take_row(const vector::Batch& batch, const shm::TensorView& actions,
                            std::size_t i, bool same_step) {
  const auto row = static_cast<std::int64_t>(i);
  const auto column = static_cast<int>(i);
  const collect::ReplayStep step{.action = actions.row_data(row),
                                 .reward = static_cast<float>(batch.reward[i]),
                                 .terminated = batch.terminated[i] != 0,
                                 .truncated = batch.truncated[i] != 0,
                                 .valid = valid_[i] != 0};
  if (same_step && batch.has_final[i] != 0) {
    plain_.encode_row(batch.final_obs, row, final_.views, 0);
    if (plain_.has_dense()) require_finite_rows(final_.views[0], row);
    replay_.step(column, step, final_.views, 0);
    replay_.begin(column, kept_.views, row);
  } else {
    replay_.step(column, step, kept_.views, row);
  }
}

}  // namespace shoal::learn
