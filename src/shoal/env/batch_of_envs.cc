// Single environments behind the batch interface: one virtual call per environment and step.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "shoal/env/env_watcher.h"
#include "shoal/env/registry.h"
#include "shoal/os/error.h"

namespace shoal::env {
namespace {

/// A leaf of the action space that is integers: element k is one of `count[k]` from `first[k]` on.
struct Choice {
  std::size_t index;
  Leaf leaf;
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> count;
};

std::vector<Choice> choices(const Space& action_space) {
  std::vector<Choice> found;
  const auto all = leaves(action_space);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto elements = static_cast<std::size_t>(all[i].spec.numel());
    if (const auto* const discrete = all[i].space.get_if<Discrete>()) {
      found.push_back({i, all[i], {discrete->start}, {discrete->n}});
    } else if (const auto* const multi = all[i].space.get_if<MultiDiscrete>()) {
      found.push_back({i, all[i], multi->start, multi->nvec});
    } else if (all[i].space.get_if<MultiBinary>() != nullptr) {
      found.push_back({i, all[i], std::vector<std::int64_t>(elements, 0),
                       std::vector<std::int64_t>(elements, 2)});
    }
  }
  return found;
}

/// Throws InvalidArgument for an element that is none of its choices.
template <class T>
void check_chosen(std::span<const T> chosen, const Choice& choice) {
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    // One below the first wraps around, to more than any count: first + count is an int64.
    const std::uint64_t beyond_first =
        static_cast<std::uint64_t>(chosen[k]) - static_cast<std::uint64_t>(choice.first[k]);
    if (beyond_first < static_cast<std::uint64_t>(choice.count[k])) continue;
    const Leaf& leaf = choice.leaf;
    throw InvalidArgument(fmt::format(
        "{}action {}{} is not in {}", leaf.path.empty() ? "" : leaf.path + ": ", +chosen[k],
        leaf.spec.shape.empty() ? "" : fmt::format(" (element {})", k), leaf.space.repr()));
  }
}

template <class E>
void rethrow_as(const std::exception& error, const std::string& text) {
  if (typeid(error) == typeid(E)) throw E(text);
}

/// Throws the exception that is being handled again, with the environment in its text where its class has but a text.
[[noreturn]] void rethrow_of(int env) {
  try {
    throw;
  } catch (const std::exception& error) {
    const std::string text = fmt::format("environment {}: {}", env, error.what());
    rethrow_as<InvalidArgument>(error, text);
    rethrow_as<InvalidState>(error, text);
    rethrow_as<Error>(error, text);
    rethrow_as<std::runtime_error>(error, text);
    rethrow_as<std::logic_error>(error, text);
    rethrow_as<std::invalid_argument>(error, text);
    rethrow_as<std::out_of_range>(error, text);
    rethrow_as<std::domain_error>(error, text);
    throw;
  } catch (...) {
    throw Error(fmt::format("environment {}: it threw what is no std::exception", env));
  }
}

/// Throws InvalidArgument unless environment i has the spaces of the others.
void check_same(const Env& env, int i, const Space& observation_space, const Space& action_space) {
  if (env.observation_space() == observation_space && env.action_space() == action_space) return;
  throw InvalidArgument(
      fmt::format("environment {} of the batch has spaces {} and {}, the others have {} and {}", i,
                  env.observation_space().repr(), env.action_space().repr(),
                  observation_space.repr(), action_space.repr()));
}

class BatchOfEnvs final : public BatchEnv {
 public:
  BatchOfEnvs(std::vector<std::unique_ptr<Env>> envs, int max_episode_steps,
              std::function<std::unique_ptr<Env>()> make_one)
      : watcher_(WatchScope::watcher()),
        make_one_(std::move(make_one)),
        observation_space_(envs.front()->observation_space()),
        action_space_(envs.front()->action_space()),
        envs_(std::move(envs)),
        elapsed_(envs_.size(), -1),
        max_episode_steps_(max_episode_steps),
        choices_(choices(action_space_)) {}

  const Space& observation_space() const noexcept override { return observation_space_; }
  const Space& action_space() const noexcept override { return action_space_; }
  int count() const noexcept override { return static_cast<int>(envs_.size()); }

  void reset(int i, std::optional<std::uint64_t> seed) override { reset_with(i, seed, {}); }

  void reset_with(int i, std::optional<std::uint64_t> seed, const ResetOptions& options) override {
    const auto at = static_cast<std::size_t>(i);
    if (seed) envs_[at]->np_random().seed(*seed);
    elapsed_[at] = 0;
    watched([&] {
      named(i, [&] {
        if (seed && watcher_) watcher_->set_seed(i, *seed);
        if (options.empty()) {
          envs_[at]->reset(Row(rows().obs, i));
        } else {
          envs_[at]->reset_with(Row(rows().obs, i), options);
        }
      });
    });
    write(at, Outcome{});
  }

  void check_reset_options(const ResetOptions& options) const override {
    envs_.front()->check_reset_options(options);
  }

  bool can_renew() const noexcept override { return true; }

  void renew(int i) override {
    watched([&] {
      named(i, [&] {
        std::unique_ptr<Env> made = make_one_();
        check_same(*made, i, observation_space_, action_space_);
        envs_[static_cast<std::size_t>(i)] = std::move(made);
      });
    });
    elapsed_[static_cast<std::size_t>(i)] = -1;
  }

  int elapsed(int i) const noexcept override { return elapsed_[static_cast<std::size_t>(i)]; }

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

  /// Runs code of environment i, whose failures have its number.
  template <class Run>
  void named(int i, Run&& run) const {
    enter(i);
    try {
      run();
    } catch (...) {
      rethrow_of(watcher_ ? watcher_->number(i) : i);
    }
  }

  void step_each(int lo, int hi) {
    for (int i = lo; i < hi; ++i) {
      named(i, [&] { step_one(static_cast<std::size_t>(i)); });
    }
  }

  void step_one(std::size_t i) {
    if (elapsed_[i] < 0) throw InvalidState("step before its reset");
    const Row action(rows().actions, static_cast<std::int64_t>(i));
    check(action);
    Outcome outcome = envs_[i]->step(action, Row(rows().obs, static_cast<std::int64_t>(i)));
    outcome.truncated |= ++elapsed_[i] >= max_episode_steps_ && max_episode_steps_ > 0;
    write(i, outcome);
  }

  void check(const Row& action) const {
    for (const Choice& choice : choices_) {
      shm::with_type_of(choice.leaf.spec.dtype, [&](auto type) {
        if constexpr (std::is_integral_v<decltype(type)>) {
          check_chosen<decltype(type)>(action.as<decltype(type)>(choice.index), choice);
        }
      });
    }
  }

  void write(std::size_t i, const Outcome& outcome) const noexcept {
    rows().reward[i] = outcome.reward;
    rows().terminated[i] = outcome.terminated;
    rows().truncated[i] = outcome.truncated;
  }

  const std::shared_ptr<const EnvWatcher> watcher_;  // nullptr: nobody asks
  const std::function<std::unique_ptr<Env>()> make_one_;
  const Space observation_space_;
  const Space action_space_;
  std::vector<std::unique_ptr<Env>> envs_;
  std::vector<int> elapsed_;  // steps since the reset; -1: never reset
  int max_episode_steps_;
  std::vector<Choice> choices_;
};

}  // namespace

void Row::throw_no_leaf(std::size_t leaf) const {
  throw InvalidArgument(
      fmt::format("there is no array {} of the row, which has {}", leaf, arrays_.size()));
}

std::vector<std::byte> Env::save() const {
  throw InvalidState(
      "this environment does not support snapshots: its class does not override both save() and "
      "load()");
}

void Env::load(std::span<const std::byte> /*state*/) {
  throw InvalidState(
      "this environment does not support snapshots: its class does not override both save() and "
      "load()");
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
    if (i == 0) {
      check_native("observation", envs.front()->observation_space());
      check_native("action", envs.front()->action_space());
    }
    check_same(*envs.back(), i, envs.front()->observation_space(), envs.front()->action_space());
  }
  return std::make_unique<BatchOfEnvs>(std::move(envs), max_episode_steps, make_one);
}

}  // namespace shoal::env
