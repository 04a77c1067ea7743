#include "shoal/vector/native/native_stepper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "shoal/env/register_env.h"
#include "shoal/env/registry.h"
#include "shoal/vector/step/fault_guard.h"
#include "shoal/vector/step/row_storage.h"

namespace shoal::vector {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An episode of environment i is i + 1 steps long. The observation is the step; the reward adds ten
// times the action.
class Counting final : public env::BatchEnv {
 public:
  explicit Counting(int count) : ticks_(static_cast<std::size_t>(count), -1) {}

  const env::Space& observation_space() const noexcept override { return observation_; }
  const env::Space& action_space() const noexcept override { return action_; }
  int count() const noexcept override { return static_cast<int>(ticks_.size()); }

  void reset(int i, std::optional<std::uint64_t> seed) override {
    const auto at = static_cast<std::size_t>(i);
    ticks_[at] = 0;
    seeds.push_back(seed);
    rows().obs[0].as<std::int64_t>()[at] = 0;
    rows().reward[at] = 0;
    rows().terminated[at] = rows().truncated[at] = 0;
  }
  void step_range(int lo, int hi) override {
    ranges.emplace_back(lo, hi);
    for (auto at = static_cast<std::size_t>(lo); at < static_cast<std::size_t>(hi); ++at) {
      const std::int64_t action = rows().actions[0].as<std::int64_t>()[at];
      if (action > 1) throw InvalidArgument("an action outside the space");
      rows().obs[0].as<std::int64_t>()[at] = ++ticks_[at];
      rows().reward[at] = static_cast<double>(ticks_[at] + 10 * action);
      rows().terminated[at] = ticks_[at] > static_cast<std::int64_t>(at);
      rows().truncated[at] = 0;
    }
  }

  std::vector<std::pair<int, int>> ranges;  // that were stepped
  std::vector<std::optional<std::uint64_t>> seeds;

 private:
  env::Space observation_ = env::Discrete{.n = 100};
  env::Space action_ = env::Discrete{.n = 2};
  std::vector<std::int64_t> ticks_;
};

constexpr int kLo = 2;     // the stepper's first row
constexpr int kCount = 4;  // its environments
constexpr int kRows = 7;

class NativeStepperTest : public ::testing::TestWithParam<AutoresetMode> {
 protected:
  NativeStepperTest()
      : storage_(env::Discrete{.n = 100}, env::Discrete{.n = 2}, kRows, GetParam()),
        rows_(storage_.rows()),
        stepper_(std::make_unique<Counting>(kCount)) {
    stepper_.attach(rows_, kLo, EnvMarker(&marker_));
    for (std::size_t row = 0; row < kRows; ++row)
      rows_.reset_mask[row] = row >= kLo && row < kLo + kCount;
    for (std::int64_t& obs : obs_all()) obs = 77;
  }
  Counting& batch() { return static_cast<Counting&>(stepper_.batch()); }
  std::span<std::int64_t> obs_all() { return rows_.obs[0].as<std::int64_t>(); }
  template <class T>
  std::vector<int> mine(std::span<T> all) {
    const auto part = all.subspan(kLo, kCount);
    return {part.begin(), part.end()};
  }

  std::atomic<std::int32_t> marker_{EnvMarker::kNone};
  RowStorage storage_;
  Rows rows_;
  NativeStepper stepper_;
};

class NextStep : public NativeStepperTest {};
class SameStep : public NativeStepperTest {};
class Disabled : public NativeStepperTest {};
const auto name_of = [](const auto& info) { return std::string(name(info.param)); };
INSTANTIATE_TEST_SUITE_P(Mode, NextStep, ::testing::Values(AutoresetMode::kNextStep), name_of);
INSTANTIATE_TEST_SUITE_P(Mode, SameStep, ::testing::Values(AutoresetMode::kSameStep), name_of);
INSTANTIATE_TEST_SUITE_P(Mode, Disabled, ::testing::Values(AutoresetMode::kDisabled), name_of);

TEST_P(NextStep, StepsAllInOneCallWhenNoneIsDue) {
  stepper_.reset();
  stepper_.step();
  EXPECT_THAT(batch().ranges, ElementsAre(std::pair(0, 4)));
}

TEST_P(NextStep, ResetsThoseThatEndedAndStepsTheRunsBetween) {
  stepper_.reset();
  stepper_.step();  // environment 0 ends
  stepper_.step();  // 0 is reset, 1 ends
  EXPECT_THAT(mine(rows_.reset), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(mine(rows_.terminated), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(mine(obs_all()), ElementsAre(0, 2, 2, 2));
  EXPECT_THAT(mine(rows_.reward), ElementsAre(0, 2, 2, 2));
  stepper_.step();  // 0 ends again, 1 is reset, 2 ends
  EXPECT_THAT(mine(rows_.reset), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(mine(rows_.terminated), ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(batch().ranges,
              ElementsAre(std::pair(0, 4), std::pair(1, 4), std::pair(0, 1), std::pair(2, 4)));
}

TEST_P(NextStep, LeavesTheRowsOfOthersAlone) {
  stepper_.reset();
  for (int t = 0; t < 6; ++t) stepper_.step();
  for (const std::size_t row : {0, 1, 6}) {
    EXPECT_EQ(obs_all()[row], 77);
    EXPECT_EQ(rows_.reward[row], 0);
  }
}

TEST_P(NextStep, ResetObeysMaskAndSeeds) {
  rows_.has_seed[kLo + 1] = 1;
  rows_.seed[kLo + 1] = 5;
  stepper_.reset();
  EXPECT_THAT(batch().seeds, ElementsAre(std::nullopt, 5, std::nullopt, std::nullopt));
  stepper_.step();
  for (std::size_t i = 0; i < kCount; ++i) rows_.reset_mask[kLo + i] = i == 0;
  rows_.reset[kLo + 3] = 1;  // of the step before: not this reset's to clear
  stepper_.reset();
  EXPECT_EQ(batch().seeds.size(), 5U);
  EXPECT_THAT(mine(obs_all()), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(mine(rows_.reset), ElementsAre(0, 0, 0, 1));
  stepper_.step();  // environment 0 was due, and is not any more
  EXPECT_THAT(mine(obs_all()), ElementsAre(1, 2, 2, 2));
}

TEST_P(SameStep, KeepsTheFinalObservationAndTheOutcome) {
  for (std::size_t i = 0; i < kCount; ++i) rows_.actions[0].as<std::int64_t>()[kLo + i] = 1;
  stepper_.reset();
  stepper_.step();
  EXPECT_THAT(mine(rows_.has_final), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(mine(rows_.reset), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(mine(rows_.terminated), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(mine(rows_.reward), ElementsAre(11, 11, 11, 11));
  EXPECT_THAT(mine(obs_all()), ElementsAre(0, 1, 1, 1));
  EXPECT_EQ(rows_.final_obs[0].as<std::int64_t>()[kLo], 1);
  stepper_.step();
  EXPECT_THAT(mine(rows_.has_final), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(mine(obs_all()), ElementsAre(0, 0, 2, 2));
  EXPECT_EQ(rows_.final_obs[0].as<std::int64_t>()[kLo + 1], 2);
  EXPECT_THAT(batch().ranges, ElementsAre(std::pair(0, 4), std::pair(0, 4)));
}

TEST_P(Disabled, GoesOnSteppingWhatHasEnded) {
  stepper_.reset();
  for (int t = 0; t < 3; ++t) stepper_.step();
  EXPECT_THAT(mine(obs_all()), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(mine(rows_.terminated), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(mine(rows_.reset), ElementsAre(0, 0, 0, 0));
}

TEST_P(NextStep, TheMarkerIsQuietAfterACallAndBlamesTheRowThatIsSteppedAlone) {
  stepper_.reset();
  EXPECT_EQ(marker_.load(), EnvMarker::kNone);
  stepper_.step();
  EXPECT_EQ(marker_.load(), EnvMarker::kNone);
  rows_.actions[0].as<std::int64_t>()[kLo] = 9;
  stepper_.step();  // environment 0 is due: its action is ignored
  stepper_.reset();
  EXPECT_THROW(stepper_.step_range(0, 2), InvalidArgument);
  EXPECT_TRUE(EnvMarker::torn(marker_.load(), kLo));
  EXPECT_EQ(EnvMarker::blamed(marker_.load()), EnvMarker::kNone);
  EXPECT_THROW(stepper_.step_range(0, 1), InvalidArgument);
  EXPECT_TRUE(EnvMarker::torn(marker_.load(), kLo));
  EXPECT_EQ(EnvMarker::blamed(marker_.load()), kLo);
}

TEST(NativeSteppers, AreDividedEvenlyAndKnowTheirSpaces) {
  const auto steppers = make_native_steppers("shoal/CartPole-v1", 8, 3, "{}");
  ASSERT_EQ(steppers.size(), 3U);
  EXPECT_EQ(steppers[0]->count(), 3);
  EXPECT_EQ(steppers[1]->count(), 3);
  EXPECT_EQ(steppers[2]->count(), 2);
  EXPECT_EQ(steppers[2]->hello().action_space, env::Space(env::Discrete{.n = 2}));
}

/// Counts its steps; throws where its action is 1.
struct Fragile : env::Env {
  Fragile() : Env(env::Discrete{.n = 100}, env::Discrete{.n = 2}) {}
  void reset(const env::Row& obs) override { obs.as<std::int64_t>()[0] = ticks_ = 0; }
  env::Outcome step(const env::Row& action, const env::Row& obs) override {
    if (action.as<std::int64_t>()[0] == 1) throw std::runtime_error("no");
    obs.as<std::int64_t>()[0] = ++ticks_;
    return {.reward = 1};
  }
  std::int64_t ticks_ = 0;
};
SHOAL_REGISTER_ENV("test/Fragile-v0", Fragile);

TEST(NativeSteppers, OnlyTheEnvironmentThatThrowsIsReplaced) {
  RowStorage storage(env::Discrete{.n = 100}, env::Discrete{.n = 2}, kRows,
                     AutoresetMode::kNextStep);
  Rows rows = storage.rows();
  std::atomic<std::int32_t> word{EnvMarker::kNone};
  const EnvMarker marker(&word);
  NativeStepper stepper(env::make_batch("test/Fragile-v0", kCount));
  stepper.attach(rows, kLo, marker);
  FaultGuard guard(stepper, rows, kLo, marker, true,
                   [] { return process::ErrorReport::from_current_exception(); });
  const auto obs = [&] {
    const auto part = rows.obs[0].as<std::int64_t>().subspan(kLo, kCount);
    return std::vector<std::int64_t>(part.begin(), part.end());
  };
  for (std::size_t row = kLo; row < kLo + kCount; ++row) {
    rows.reset_mask[row] = rows.has_seed[row] = 1;
    rows.seed[row] = 10 + row;
  }
  guard.reset(false);
  guard.step(false);
  rows.actions[0].as<std::int64_t>()[kLo + 1] = 1;
  guard.step(false);
  ASSERT_EQ(guard.reports().size(), 1U);
  EXPECT_EQ(guard.reports()[0].env_index, kLo + 1);
  EXPECT_EQ(guard.reports()[0].last_seed, 13U);
  EXPECT_EQ(guard.reports()[0].episode_step, 1);
  EXPECT_TRUE(stepper.is_gone(1));
  EXPECT_THAT(obs(), ElementsAre(2, 0, 2, 2));
  rows.order[kLo + 1] = static_cast<std::uint8_t>(RowOrder::kRebuild);
  guard.step(true);
  EXPECT_TRUE(guard.reports().empty());
  EXPECT_FALSE(stepper.is_gone(1));
  EXPECT_THAT(obs(), ElementsAre(3, 0, 3, 3));
  EXPECT_EQ(rows.reset[kLo + 1], 1);
  rows.order[kLo + 1] = static_cast<std::uint8_t>(RowOrder::kObey);
  rows.actions[0].as<std::int64_t>()[kLo + 1] = 0;
  guard.step(false);
  EXPECT_THAT(obs(), ElementsAre(4, 1, 4, 4));
}

TEST(NativeSteppers, TakeNoRequests) {
  NativeStepper stepper(env::make_batch("shoal/CartPole-v1", 1));
  EXPECT_THROW(stepper.request({}), InvalidArgument);
}

}  // namespace
}  // namespace shoal::vector
