// Single environments behind the batch interface: one virtual call per environment and step.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

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
      : envs_(std::move(envs)),
        elapsed_(envs_.size(), -1),
        max_episode_steps_(max_episode_steps),
        choices_(choices(envs_.front()->action_space())) {}

  const Space& observation_space() const noexcept override {
    return envs_.front()->observation_space();
  }
  const Space& action_space() const noexcept override { return envs_.front()->action_space(); }
  int count() const noexcept override { return static_cast<int>(envs_.size()); }

  void reset(int i, std::optional<std::uint64_t> seed) override {
    const auto at = static_cast<std::size_t>(i);
    if (seed) envs_[at]->np_random().seed(*seed);
    elapsed_[at] = 0;
    envs_[at]->reset(Row(rows().obs, i));
    write(at, Outcome{});
  }

  void step_range(int lo, int hi) override {
    for (auto i = static_cast<std::size_t>(lo); i < static_cast<std::size_t>(hi); ++i) {
      if (elapsed_[i] < 0)
        throw InvalidState(fmt::format("step of environment {} before its reset", i));
      const Row action(rows().actions, static_cast<std::int64_t>(i));
      check(action, i);
      Outcome outcome = envs_[i]->step(action, Row(rows().obs, static_cast<std::int64_t>(i)));
      outcome.truncated |= ++elapsed_[i] >= max_episode_steps_ && max_episode_steps_ > 0;
      write(i, outcome);
    }
  }

 private:
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

  std::vector<std::unique_ptr<Env>> envs_;
  std::vector<int> elapsed_;  // steps since the reset; -1: never reset
  int max_episode_steps_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<BatchEnv> batch_of_envs(int count, int max_episode_steps,
                                        const std::function<std::unique_ptr<Env>()>& make_one) {
  if (count < 1)
    throw InvalidArgument(fmt::format("a batch needs at least one environment, not {}", count));
  std::vector<std::unique_ptr<Env>> envs;
  for (int i = 0; i < count; ++i) {
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
