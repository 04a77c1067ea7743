#include "shoal/learn/run/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

/// One environment's episodes.
struct Tally {
  int wanted = 0;
  double running_return = 0;
  std::int64_t running_length = 0;
  std::vector<double> returns;
  std::vector<std::int64_t> lengths;

  bool done() const noexcept { return static_cast<int>(returns.size()) >= wanted; }
  void forget_episode() noexcept {
    running_return = 0;
    running_length = 0;
  }
  void end_episode() {
    if (!done()) {
      returns.push_back(running_return);
      lengths.push_back(running_length);
    }
    forget_episode();
  }
};

std::vector<Tally> share_out(int episodes, int num_envs) {
  std::vector<Tally> tallies(static_cast<std::size_t>(num_envs));
  for (int i = 0; i < num_envs; ++i)
    tallies[static_cast<std::size_t>(i)].wanted =
        episodes / num_envs + (i < episodes % num_envs ? 1 : 0);
  return tallies;
}

/// Adds one step. In next-step mode a row with `reset` is an autoreset's and no step; in same-step
/// mode it is the last step of its episode.
void count(std::vector<Tally>& tallies, const vector::Batch& batch, bool next_step) {
  for (std::size_t i = 0; i < tallies.size(); ++i) {
    auto& tally = tallies[i];
    if (next_step && batch.reset[i] != 0) continue;
    if (!batch.fault.empty() && batch.fault[i] != 0) {
      tally.forget_episode();
      continue;
    }
    tally.running_return += batch.reward[i];
    ++tally.running_length;
    if (batch.terminated[i] != 0 || batch.truncated[i] != 0) tally.end_episode();
  }
}

/// Ends and resets the episodes that are as long as allowed, and marks them. Returns the batch that
/// is current then.
vector::Batch cut_long_episodes(vector::VectorEnv& envs, std::vector<Tally>& tallies,
                                const vector::Batch& batch, std::int64_t limit,
                                std::vector<std::uint8_t>& is_first) {
  std::vector<std::uint8_t> mask(tallies.size(), 0);
  bool any = false;
  for (std::size_t i = 0; i < tallies.size(); ++i) {
    if (tallies[i].running_length < limit) continue;
    tallies[i].end_episode();
    mask[i] = is_first[i] = 1;
    any = true;
  }
  return any ? envs.reset({}, mask) : batch;
}

double mean(const auto& values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (auto value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

}  // namespace

double Evaluation::mean_return() const noexcept { return mean(returns); }
double Evaluation::mean_length() const noexcept { return mean(lengths); }

double Evaluation::std_return() const noexcept {
  const double center = mean_return();
  double sum = 0;
  for (double value : returns) sum += (value - center) * (value - center);
  return std::sqrt(sum / static_cast<double>(returns.size()));
}

Evaluation evaluate(vector::VectorEnv& envs, const Actor& actor, const EvaluationOptions& options) {
  if (options.episodes < 1)
    throw InvalidArgument(
        fmt::format("evaluate: episodes is {}, at least 1 is needed", options.episodes));
  if (envs.autoreset_mode() == vector::AutoresetMode::kDisabled)
    throw InvalidArgument("evaluate: the environments' autoreset is disabled; use next_step");
  const bool next_step = envs.autoreset_mode() == vector::AutoresetMode::kNextStep;
  auto tallies = share_out(options.episodes, envs.num_envs());
  std::vector<std::optional<std::uint64_t>> seeds;
  for (int i = 0; i < envs.num_envs(); ++i)
    seeds.emplace_back(options.seed + static_cast<std::uint64_t>(i));

  vector::Batch batch = envs.reset(seeds);
  const auto all_done = [&] {
    return std::ranges::all_of(tallies, [](const Tally& tally) { return tally.done(); });
  };
  std::vector<std::uint8_t> is_first(tallies.size(), 1);
  for (std::uint64_t step = 0; !all_done(); ++step) {
    if (options.cancelled && options.cancelled()) return {};
    actor(batch.obs, is_first, envs.actions(), step);
    batch = envs.step();
    is_first.assign(batch.reset.begin(), batch.reset.end());
    count(tallies, batch, next_step);
    batch = cut_long_episodes(envs, tallies, batch, options.max_episode_steps, is_first);
  }

  Evaluation evaluation;
  evaluation.complete = true;
  for (const auto& tally : tallies) {
    evaluation.returns.insert(evaluation.returns.end(), tally.returns.begin(), tally.returns.end());
    evaluation.lengths.insert(evaluation.lengths.end(), tally.lengths.begin(), tally.lengths.end());
  }
  return evaluation;
}

Evaluation evaluate(vector::VectorEnv& envs, ActingPolicy& policy, bool deterministic,
                    const EvaluationOptions& options) {
  EpisodeMemory memory(policy.memory_size());
  const Actor actor = [&](auto obs, auto is_first, auto actions, std::uint64_t step) {
    policy.act(obs, memory.of(is_first), actions, deterministic, step);
  };
  return evaluate(envs, actor, options);
}

}  // namespace shoal::learn
