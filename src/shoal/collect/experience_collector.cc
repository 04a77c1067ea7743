#include "shoal/collect/experience_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "shoal/env/space.h"
#include "shoal/os/error.h"
#include "shoal/trace/recorder.h"

namespace shoal::collect {
namespace {

std::vector<double> per_element(const std::vector<double>& bound, std::int64_t n, double none) {
  const auto count = static_cast<std::size_t>(n);
  if (bound.size() == count) return bound;
  return std::vector<double>(count, bound.empty() ? none : bound[0]);
}

template <class T>
void clip_rows(const shm::TensorView& from, const shm::TensorView& to, std::span<const double> low,
               std::span<const double> high) {
  const auto* in = reinterpret_cast<const T*>(from.data);
  auto* out = reinterpret_cast<T*>(to.data);
  for (std::int64_t row = 0; row < from.rows; ++row) {
    for (std::size_t i = 0; i < low.size(); ++i, ++in, ++out) {
      *out = std::clamp(*in, static_cast<T>(low[i]), static_cast<T>(high[i]));
    }
  }
}

}  // namespace

ExperienceCollector::ExperienceCollector(vector::VectorEnv& envs,
                                         std::optional<std::chrono::nanoseconds> timeout,
                                         int first_env, int total_envs)
    : envs_(envs),
      timeout_(timeout),
      first_env_(first_env),
      total_envs_(total_envs == 0 ? envs.num_envs() : total_envs),
      episodes_(envs.num_envs()) {
  if (first_env < 0 || first_env + envs.num_envs() > total_envs_) {
    throw InvalidArgument(fmt::format("environments {} to {} of {}", first_env,
                                      first_env + envs.num_envs() - 1, total_envs_));
  }
  if (envs.autoreset_mode() == vector::AutoresetMode::kDisabled) {
    throw InvalidArgument(
        "collect from environments that are not reset: create them with next-step or same-step "
        "autoreset");
  }
  const env::Space& actions = envs.single_action_space();
  for (const env::Space* space : {&envs.single_observation_space(), &actions}) {
    if (const env::Opaque* opaque = env::first_opaque(*space)) {
      throw InvalidArgument(
          fmt::format("collect from environments with {}: it has no arrays of fixed size; turn it "
                      "into one of Box, Discrete, MultiDiscrete and MultiBinary with a wrapper",
                      opaque->text));
    }
  }
  if (actions.get_if<env::Dict>() != nullptr || actions.get_if<env::Tuple>() != nullptr) {
    throw InvalidArgument(
        fmt::format("collect actions of the space {}: Box, Discrete, MultiDiscrete and MultiBinary "
                    "are supported; flatten it with a wrapper (gymnasium.spaces.flatten_space)",
                    actions.repr()));
  }
  spec_.envs = envs.num_envs();
  for (const env::Leaf& leaf : env::leaves(envs.single_observation_space()))
    spec_.obs.push_back(leaf.spec);
  spec_.action = env::leaves(actions)[0].spec;
  const auto* box = actions.get_if<env::Box>();
  if (box != nullptr &&
      (spec_.action.dtype == shm::DType::kF32 || spec_.action.dtype == shm::DType::kF64)) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    low_ = per_element(box->low, spec_.action.numel(), -kInf);
    high_ = per_element(box->high, spec_.action.numel(), kInf);
  }
  const auto n = static_cast<std::size_t>(spec_.envs);
  at_.episode.resize(n);
  at_.is_first.resize(n);
  skip_.resize(n);
  for (const shm::TensorSpec& leaf : spec_.obs) {
    auto& bytes = at_.obs.emplace_back(n * leaf.bytes());
    current_.push_back({bytes.data(), spec_.envs, leaf});
  }
}

void ExperienceCollector::copy(std::span<const shm::TensorView> from,
                               std::span<const shm::TensorView> to) {
  for (std::size_t leaf = 0; leaf < from.size(); ++leaf)
    std::memcpy(to[leaf].data, from[leaf].data, from[leaf].bytes());
}

void ExperienceCollector::reset(std::span<const std::optional<std::uint64_t>> seeds) {
  ready_ = false;
  envs_.reset_async(seeds);
  copy(envs_.wait(timeout_).obs, current_);
  for (std::int64_t& episode : at_.episode) episode += begun_;
  begun_ = true;
  std::ranges::fill(at_.is_first, std::uint8_t{1});
  episodes_.restart();
  ready_ = true;
}

void ExperienceCollector::require_ready(const char* what) const {
  if (!ready_)
    throw InvalidState(fmt::format(
        "{} before the environments were reset, or after they or the policy failed: call reset() "
        "first",
        what));
}

void ExperienceCollector::require_room(const Experience& out, const CollectOrder& order) const {
  if (order.first < 0 || order.count < 0 || order.first + order.count > out.steps() ||
      order.column < 0 || order.column + spec_.envs > out.envs()) {
    throw InvalidArgument(fmt::format(
        "collect steps {} to {} of {} environments from column {} on into experience of {} steps "
        "of {} environments",
        order.first, order.first + order.count - 1, spec_.envs, order.column, out.steps(),
        out.envs()));
  }
}

void ExperienceCollector::begin_step(Actor& actor, const Experience& out, const CollectOrder& order,
                                     int t) {
  decide(actor, out, order, t);
  envs_.step_async();
  stepping_ = true;
}

void ExperienceCollector::end_step(const Experience& out, int column, int t) {
  const vector::Batch batch = envs_.wait(timeout_);
  stepping_ = false;
  take_in(batch, out, column, t);
}

void ExperienceCollector::collect_in_turn(std::span<const Cohort> cohorts, const Experience& out,
                                          const CollectOrder& order) {
  CollectOrder own = order;
  own.stage = nullptr;
  own.progress = nullptr;
  for (const Cohort& cohort : cohorts) {
    cohort.collector->require_ready("collect");
    own.column = cohort.column;
    cohort.collector->require_room(out, own);
  }
  for (const Cohort& cohort : cohorts) cohort.collector->ready_ = false;
  const int last = order.first + order.count;
  try {
    for (int t = order.first; t <= last; ++t) {
      for (const Cohort& cohort : cohorts) {
        if (t > order.first) cohort.collector->end_step(out, cohort.column, t - 1);
        own.column = cohort.column;
        if (t < last) cohort.collector->begin_step(*cohort.actor, out, own, t);
      }
    }
  } catch (...) {
    // The steps of the others come to an end, so that all can be reset.
    for (const Cohort& cohort : cohorts) {
      if (!std::exchange(cohort.collector->stepping_, false)) continue;
      try {
        static_cast<void>(cohort.collector->envs_.wait(cohort.collector->timeout_));
      } catch (...) {  // the first failure is the one to tell
      }
    }
    throw;
  }
  for (const Cohort& cohort : cohorts) cohort.collector->ready_ = true;
}

int ExperienceCollector::collect(Actor& actor, const Experience& out, const CollectOrder& order) {
  require_ready("collect");
  require_room(out, order);
  SHOAL_CHECK(order.stage == nullptr || (order.stage_column >= 0 &&
                                         order.stage_column + spec_.envs <= order.stage->envs()),
              "columns of the stage");
  ready_ = false;
  int done = 0;
  while (done < order.count) {
    if (done > 0 && order.progress != nullptr && order.progress->is_stopped(order.number)) break;
    const int t = order.first + done;
    begin_step(actor, out, order, t);
    end_step(out, order.column, t);
    ++done;
    if (order.progress != nullptr) order.progress->count_rows(spec_.envs);
  }
  ready_ = true;
  if (done < order.count) {
    CollectOrder rest = order;
    rest.first += done;
    rest.count -= done;
    leave_out(out, rest);
  }
  return done;
}

void ExperienceCollector::name_rows(const Experience& out, const CollectOrder& order, int t) const {
  const int n = spec_.envs;
  const auto episode_id = out.at<std::int64_t>(out.episode_id(), t, order.column, n);
  const auto env_id = out.at<std::int64_t>(out.env_id(), t, order.column, n);
  for (std::size_t i = 0; i < env_id.size(); ++i) {
    env_id[i] = first_env_ + static_cast<std::int64_t>(i);
    episode_id[i] = at_.episode[i] * total_envs_ + env_id[i];
  }
  std::ranges::fill(out.at<std::int64_t>(out.policy_version(), t, order.column, n),
                    order.policy_version);
}

void ExperienceCollector::leave_out(const Experience& out, const CollectOrder& order) const {
  const auto views = out.views();
  for (int t = order.first; t < order.first + order.count; ++t) {
    for (const shm::TensorView* view : views) {
      const shm::TensorView rows = out.at(*view, t, order.column, spec_.envs);
      std::memset(rows.data, 0, rows.bytes());
    }
    name_rows(out, order, t);
  }
}

void ExperienceCollector::decide(Actor& actor, const Experience& out, const CollectOrder& order,
                                 int t) {
  const int n = spec_.envs;
  std::vector<shm::TensorView> obs;
  obs.reserve(current_.size());
  for (const shm::TensorView& leaf : out.obs()) obs.push_back(out.at(leaf, t, order.column, n));
  copy(current_, obs);
  const auto is_first = out.at<std::uint8_t>(out.is_first(), t, order.column, n);
  std::ranges::copy(at_.is_first, is_first.begin());
  name_rows(out, order, t);
  const Decision decision{.obs = obs,
                          .is_first = is_first,
                          .step = at_.steps,
                          .t = t,
                          .action = out.at(out.action(), t, order.column, n),
                          .log_prob = out.at<float>(out.log_prob(), t, order.column, n),
                          .value = out.at<float>(out.value(), t, order.column, n)};
  {
    const trace::Scope scope(trace::Span::kInfer, static_cast<std::uint64_t>(n));
    if (order.stage != nullptr) {
      decide_on_stage(actor, decision, order);
    } else {
      actor.act(decision);
    }
  }
  send_actions(decision.action);
  ++at_.steps;
}

void ExperienceCollector::decide_on_stage(Actor& actor, const Decision& own,
                                          const CollectOrder& order) {
  const Experience& stage = *order.stage;
  const int n = spec_.envs;
  const auto own_part = [&](const shm::TensorView& view) {
    return stage.at(view, 0, order.stage_column, n);
  };
  std::vector<shm::TensorView> obs;
  obs.reserve(own.obs.size());
  for (std::size_t leaf = 0; leaf < own.obs.size(); ++leaf) {
    const shm::TensorView& all = obs.emplace_back(stage.at(stage.obs()[leaf], 0));
    for (int i = 0; i < stage.envs(); ++i)
      std::memcpy(all.row_data(i), own.obs[leaf].data, all.row_bytes());
    copy({&own.obs[leaf], 1}, std::array{own_part(stage.obs()[leaf])});
  }
  const auto is_first = stage.at<std::uint8_t>(stage.is_first(), 0);
  std::ranges::fill(is_first, own.is_first[0]);
  std::ranges::copy(own.is_first, is_first.begin() + order.stage_column);
  actor.act({.obs = obs,
             .is_first = is_first,
             .step = own.step,
             .t = 0,
             .action = stage.at(stage.action(), 0),
             .log_prob = stage.at<float>(stage.log_prob(), 0),
             .value = stage.at<float>(stage.value(), 0)});
  copy(std::array{own_part(stage.action())}, std::array{own.action});
  const auto own_floats = [&](const shm::TensorView& view) {
    return stage.at<float>(view, 0, order.stage_column, n);
  };
  if (!own.log_prob.empty()) std::ranges::copy(own_floats(stage.log_prob()), own.log_prob.begin());
  if (!own.value.empty()) std::ranges::copy(own_floats(stage.value()), own.value.begin());
}

void ExperienceCollector::send_actions(const shm::TensorView& chosen) {
  const shm::TensorView& to = envs_.actions()[0];
  if (low_.empty()) {
    std::memcpy(to.data, chosen.data, chosen.bytes());
  } else if (spec_.action.dtype == shm::DType::kF32) {
    clip_rows<float>(chosen, to, low_, high_);
  } else {
    clip_rows<double>(chosen, to, low_, high_);
  }
}

void ExperienceCollector::take_in(const vector::Batch& batch, const Experience& out, int column,
                                  int t) {
  const int n = spec_.envs;
  const trace::Scope scope(trace::Span::kCopy, static_cast<std::uint64_t>(n));
  const auto reward = out.at<float>(out.reward(), t, column, n);
  const auto terminated = out.at<std::uint8_t>(out.terminated(), t, column, n);
  const auto truncated = out.at<std::uint8_t>(out.truncated(), t, column, n);
  const auto valid = out.at<std::uint8_t>(out.valid(), t, column, n);
  for (std::size_t i = 0; i < valid.size(); ++i) {
    terminated[i] = batch.terminated[i];
    truncated[i] = batch.truncated[i];
    const bool was_reset = batch.reset[i] != 0;
    // Nothing but a reset: next-step autoreset, or the first step after a worker was replaced.
    skip_[i] = was_reset && (terminated[i] | truncated[i]) == 0;
    valid[i] = skip_[i] == 0 && batch.fault[i] == 0;
    reward[i] = valid[i] != 0 ? static_cast<float>(batch.reward[i]) : 0.0F;
    at_.resets += skip_[i];
    at_.faults += batch.fault[i] != 0;
    at_.episode[i] += was_reset;
    at_.is_first[i] = was_reset;
  }
  episodes_.step(batch.reward, terminated, truncated, skip_, batch.fault);
  episodes_.forget_finished();
  if (!out.next_obs().empty()) keep_next_obs(batch, out, column, t);
  copy(batch.obs, current_);
}

void ExperienceCollector::keep_next_obs(const vector::Batch& batch, const Experience& out,
                                        int column, int t) {
  for (std::size_t leaf = 0; leaf < out.next_obs().size(); ++leaf) {
    const shm::TensorView to = out.at(out.next_obs()[leaf], t, column, spec_.envs);
    std::memcpy(to.data, batch.obs[leaf].data, to.bytes());
    for (std::size_t i = 0; i < batch.has_final.size(); ++i) {
      if (batch.has_final[i] == 0) continue;
      const auto row = static_cast<std::int64_t>(i);
      std::memcpy(to.row_data(row), batch.final_obs[leaf].row_data(row), to.row_bytes());
    }
  }
}

ExperienceCollectorState ExperienceCollector::state() const {
  require_ready("save a collector");
  ExperienceCollectorState state = at_;
  const auto returns = episodes_.running_return();
  const auto lengths = episodes_.running_length();
  state.running_return.assign(returns.begin(), returns.end());
  state.running_length.assign(lengths.begin(), lengths.end());
  state.window.assign(episodes_.window().begin(), episodes_.window().end());
  state.finished = episodes_.count();
  return state;
}

void ExperienceCollector::restore(ExperienceCollectorState state) {
  const auto n = static_cast<std::size_t>(spec_.envs);
  bool fits =
      state.obs.size() == at_.obs.size() && state.episode.size() == n && state.is_first.size() == n;
  for (std::size_t leaf = 0; fits && leaf < at_.obs.size(); ++leaf)
    fits = state.obs[leaf].size() == at_.obs[leaf].size();
  if (!fits)
    throw InvalidArgument(
        fmt::format("load a collector's state: it is not of {} environments with observations {}",
                    n, envs_.single_observation_space().repr()));
  EpisodeStats episodes(spec_.envs);
  episodes.restore(std::move(state.window), state.finished, state.running_return,
                   state.running_length);
  episodes_ = std::move(episodes);
  at_.steps = state.steps;
  at_.resets = state.resets;
  at_.faults = state.faults;
  at_.episode = std::move(state.episode);
  at_.is_first = std::move(state.is_first);
  for (std::size_t leaf = 0; leaf < at_.obs.size(); ++leaf)  // current_ points there
    std::ranges::copy(state.obs[leaf], at_.obs[leaf].begin());
  begun_ = ready_ = true;
}

}  // namespace shoal::collect
