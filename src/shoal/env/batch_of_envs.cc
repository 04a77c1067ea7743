// Single environments behind the batch interface: one virtual call per environment and step.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>

#include "shoal/env/env_watcher.h"
#include "shoal/env/keywords.h"
#include "shoal/env/registry.h"
#include "shoal/os/error.h"

namespace shoal::env {
namespace {

/// A leaf of the action space that is one integer, and the values that it may have.
struct Choice {
  std::size_t leaf;
  Discrete space;
};

std::vector<Choice> choices(const Space& action_space) {
  std::vector<Choice> found;
  const auto all = leaves(action_space);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto* const discrete = all[i].space.get_if<Discrete>();
    if (discrete != nullptr && discrete->dtype == shm::DType::kI64) found.push_back({i, *discrete});
  }
  return found;
}

class BatchOfEnvs final : public BatchEnv {
 public:
  BatchOfEnvs(std::vector<std::unique_ptr<Env>> envs, int max_episode_steps)
      : watcher_(WatchScope::watcher()),
        envs_(std::move(envs)),
        elapsed_(envs_.size(), -1),
        max_episode_steps_(max_episode_steps),
        choices_(choices(envs_.front()->action_space())) {}

  const Space& observation_space() const noexcept override {
    return envs_.front()->observation_space();
  }
  const Space& action_space() const noexcept override { return envs_.front()->action_space(); }
  int count() const noexcept override { return static_cast<int>(envs_.size()); }

  void reset(int i, std::optional<std::uint64_t> seed) override { reset_with(i, seed, {}); }

  void reset_with(int i, std::optional<std::uint64_t> seed, const ResetOptions& options) override {
    const auto at = static_cast<std::size_t>(i);
    if (seed) envs_[at]->np_random().seed(*seed);
    elapsed_[at] = 0;
    watched([&] {
      enter(i);
      if (seed && watcher_) watcher_->set_seed(i, *seed);
      if (options.empty()) {
        envs_[at]->reset(Row(rows().obs, i));
      } else {
        envs_[at]->reset_with(Row(rows().obs, i), options);
      }
    });
    write(at, Outcome{});
  }

  void check_reset_options(const ResetOptions& options) const override {
    envs_.front()->check_reset_options(options);
  }

  std::vector<std::byte> save(int i) const override {
    const auto at = static_cast<std::size_t>(i);
    const std::vector<std::byte> own = envs_[at]->save();
    std::vector<std::byte> state(kKeptBytes + own.size());
    std::memcpy(state.data(), &elapsed_[at], sizeof(int));
    std::memcpy(state.data() + sizeof(int), &envs_[at]->np_random(), sizeof(NpRandom));
    std::copy(own.begin(), own.end(), state.begin() + kKeptBytes);
    return state;
  }

  void load(int i, std::span<const std::byte> state) override {
    if (state.size() < kKeptBytes) {
      throw InvalidArgument(
          fmt::format("a state of {} bytes is not of an environment", state.size()));
    }
    const auto at = static_cast<std::size_t>(i);
    envs_[at]->load(state.subspan(kKeptBytes));
    std::memcpy(&elapsed_[at], state.data(), sizeof(int));
    std::memcpy(static_cast<void*>(&envs_[at]->np_random()), state.data() + sizeof(int),
                sizeof(NpRandom));
  }

  void step_range(int lo, int hi) override {
    watched([&] { step_each(lo, hi); });
  }

 private:
  static constexpr std::size_t kKeptBytes = sizeof(int) + sizeof(NpRandom);
  static_assert(std::is_trivially_copyable_v<NpRandom>);

  /// Runs `run`, which runs code of the environments.
  template <class Run>
  void watched(Run&& run) const {
    if (watcher_) {
      watcher_->watch(std::ref(run));  // by reference: nothing is allocated
    } else {
      run();
    }
  }

  void enter(int i) const noexcept {
    if (watcher_) watcher_->enter(i);
  }

  void step_each(int lo, int hi) {
    for (auto i = static_cast<std::size_t>(lo); i < static_cast<std::size_t>(hi); ++i) {
      enter(static_cast<int>(i));
      if (elapsed_[i] < 0)
        throw InvalidState(fmt::format("step of environment {} before its reset", i));
      const Row action(rows().actions, static_cast<std::int64_t>(i));
      check(action, i);
      Outcome outcome = envs_[i]->step(action, Row(rows().obs, static_cast<std::int64_t>(i)));
      outcome.truncated |= ++elapsed_[i] >= max_episode_steps_ && max_episode_steps_ > 0;
      write(i, outcome);
    }
  }

  void check(const Row& action, std::size_t i) const {
    for (const Choice& choice : choices_) {
      const std::int64_t chosen = action.as<std::int64_t>(choice.leaf)[0];
      if (chosen >= choice.space.start && chosen - choice.space.start < choice.space.n) continue;
      throw InvalidArgument(fmt::format("action {} of environment {} is not in {}", chosen, i,
                                        Space(choice.space).repr()));
    }
  }

  void write(std::size_t i, const Outcome& outcome) const noexcept {
    rows().reward[i] = outcome.reward;
    rows().terminated[i] = outcome.terminated;
    rows().truncated[i] = outcome.truncated;
  }

  const std::shared_ptr<const EnvWatcher> watcher_;  // nullptr: nobody asks
  std::vector<std::unique_ptr<Env>> envs_;
  std::vector<int> elapsed_;  // steps since the reset; -1: never reset
  int max_episode_steps_;
  std::vector<Choice> choices_;
};

}  // namespace

std::vector<std::byte> Env::save() const {
  throw InvalidState(
      "this environment does not support snapshots: its class has no save() and load()");
}

void Env::load(std::span<const std::byte> /*state*/) {
  throw InvalidState(
      "this environment does not support snapshots: its class has no save() and load()");
}

std::unique_ptr<BatchEnv> batch_of_envs(int count, int max_episode_steps,
                                        const std::function<std::unique_ptr<Env>()>& make_one) {
  if (count < 1)
    throw InvalidArgument(fmt::format("a batch needs at least one environment, not {}", count));
  std::vector<std::unique_ptr<Env>> envs;
  const auto watcher = WatchScope::watcher();
  for (int i = 0; i < count; ++i) {
    if (watcher) watcher->enter(i);
    envs.push_back(make_one());
    if (envs.back()->observation_space() != envs.front()->observation_space() ||
        envs.back()->action_space() != envs.front()->action_space()) {
      throw InvalidArgument(fmt::format(
          "environment {} of the batch has spaces {} and {}, environment 0 has {} and {}", i,
          envs.back()->observation_space().repr(), envs.back()->action_space().repr(),
          envs.front()->observation_space().repr(), envs.front()->action_space().repr()));
    }
  }
  return std::make_unique<BatchOfEnvs>(std::move(envs), max_episode_steps);
}

namespace internal {

BatchFactory factory_of_envs(std::function<std::unique_ptr<Env>()> make_one) {
  return [make_one = std::move(make_one)](int count, int max_episode_steps,
                                          const nlohmann::json& args) {
    Keywords(args).expect_no_more();
    return batch_of_envs(count, max_episode_steps, make_one);
  };
}

}  // namespace internal
}  // namespace shoal::env
