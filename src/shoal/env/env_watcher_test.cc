#include "shoal/env/env_watcher.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "shoal/env/env.h"
#include "shoal/env/registry.h"
#include "shoal/env/testing/batch_arrays.h"

namespace shoal::env {
namespace {

using ::testing::ElementsAre;

/// What environments and watchers did, in order.
std::vector<std::string> events;
std::vector<std::string> taken() { return std::exchange(events, {}); }

class Talking final : public Env {
 public:
  Talking() : Env(Discrete{.n = 2}, Discrete{.n = 2}) { events.emplace_back("built"); }
  void reset(const Row& /*obs*/) override { events.emplace_back("reset"); }
  Outcome step(const Row& /*action*/, const Row& /*obs*/) override {
    events.emplace_back("stepped");
    return {};
  }
};

std::unique_ptr<BatchEnv> two_talking() {
  return batch_of_envs(2, 0, [] { return std::make_unique<Talking>(); });
}

class Listening final : public EnvWatcher {
 public:
  void watch(const std::function<void()>& run) const override {
    events.emplace_back("(");
    run();
    events.emplace_back(")");
  }
  int number(int i) const noexcept override { return i; }
  void enter(int i) const noexcept override { events.push_back(fmt::format("enter {}", i)); }
  void set_seed(int i, std::uint64_t seed) const noexcept override {
    events.push_back(fmt::format("seed {} {}", i, seed));
  }
};

TEST(EnvWatcher, IsToldWhoseCodeRuns) {
  events.clear();
  std::unique_ptr<BatchEnv> batch;
  {
    const WatchScope scope(std::make_shared<Listening>());
    batch = two_talking();
  }
  EXPECT_THAT(taken(), ElementsAre("enter 0", "built", "enter 1", "built"));
  BatchArrays arrays(*batch);
  batch->reset(1, 7);
  EXPECT_THAT(taken(), ElementsAre("(", "enter 1", "seed 1 7", "reset", ")"));
  batch->reset(0, {});
  EXPECT_THAT(taken(), ElementsAre("(", "enter 0", "reset", ")"));
  batch->step_range(0, 2);
  EXPECT_THAT(taken(), ElementsAre("(", "enter 0", "stepped", "enter 1", "stepped", ")"));
}

TEST(EnvWatcher, FollowsWhatIsMadeInItsInnermostScopeAlone) {
  const auto outer = std::make_shared<Listening>();
  const auto inner = std::make_shared<Listening>();
  EXPECT_EQ(WatchScope::watcher(), nullptr);
  {
    const WatchScope around(outer);
    {
      const WatchScope within(inner);
      EXPECT_EQ(WatchScope::watcher(), inner);
    }
    EXPECT_EQ(WatchScope::watcher(), outer);
  }
  events.clear();
  const auto batch = two_talking();
  BatchArrays arrays(*batch);
  batch->reset(0, 7);
  EXPECT_THAT(taken(), ElementsAre("built", "built", "reset"));
}

}  // namespace
}  // namespace shoal::env
