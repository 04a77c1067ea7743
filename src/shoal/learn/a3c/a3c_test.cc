// The learner with its actors: as threads, which ThreadSanitizer sees, and as processes, which can be
// killed.
#include "shoal/learn/a3c/a3c.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shoal/learn/a3c/learning_actor.h"
#include "shoal/learn/learner/state_arrays.h"
#include "shoal/learn/testing/policy_difference.h"
#include "shoal/os/error.h"
#include "shoal/process/identity/welcome.h"
#include "shoal/vector/testing/thread_launcher.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using vector::VectorEnv;

constexpr const char* kCartPole = "shoal/CartPole-v1";
constexpr std::chrono::seconds kLong{60};

std::unique_ptr<VectorEnv> make(const std::string& id, int num_envs) {
  return VectorEnv::create(id, {.num_envs = num_envs, .backend = vector::Backend::kSerial});
}

/// The payload is the environments' id.
int learn(process::WorkerContext& context) {
  if (!process::receive_welcome(context)) return 0;
  os::Message message;
  if (context.channel.recv(message) != os::RecvOutcome::kMessage) return 0;
  const std::string id(reinterpret_cast<const char*>(context.payload.data()),
                       context.payload.size());
  const auto envs = make(id, context.num_envs);
  LearningActor(*envs, ActorOrder::decode(message.bytes), std::move(message.fds.at(0))).run();
  return 0;
}

int leave(process::WorkerContext&) { return 7; }

/// Until its parent is gone, or has closed the channel.
int build_for_ever(process::WorkerContext& context) {
  os::Message message;
  while (context.channel.recv(message) == os::RecvOutcome::kMessage) {
  }
  return 0;
}

process::EntryTable entries() {
  process::EntryTable table;
  table.add("learn", &learn);
  table.add("leave", &leave);
  table.add("build for ever", &build_for_ever);
  return table;
}

std::shared_ptr<process::Launcher> threads() {
  return std::make_shared<vector::testing::ThreadLauncher>(entries());
}

std::shared_ptr<process::Launcher> processes() {
  process::LaunchOptions options;
  options.method = process::StartMethod::kFork;
  options.fork_hooks = std::make_shared<process::ForkHooks>(process::ForkHooks{
      .before_fork = {}, .after_fork_parent = {}, .after_fork_child = {}, .entries = entries()});
  return process::Launcher::create(std::move(options));
}

std::shared_ptr<ActorProcesses> actors(std::shared_ptr<process::Launcher> launcher, int count,
                                       const std::string& entry = "learn",
                                       const std::string& id = kCartPole,
                                       std::chrono::milliseconds start_timeout = kLong) {
  const auto envs = make(kCartPole, 1);
  ActorProcesses::Setup setup{.launcher = std::move(launcher),
                              .actors = {},
                              .observation_space = envs->single_observation_space(),
                              .action_space = envs->single_action_space(),
                              .start_timeout = start_timeout};
  for (int actor = 0; actor < count; ++actor) {
    process::WorkerSpec spec;
    spec.entry = entry;
    const auto payload = std::as_bytes(std::span(id));
    spec.payload.assign(payload.begin(), payload.end());
    spec.first_env = 4 * actor;
    spec.num_envs = 4;
    setup.actors.push_back(std::move(spec));
  }
  return std::make_shared<ActorProcesses>(std::move(setup));
}

A3cConfig config_of(std::int64_t total_steps) {
  A3cConfig config;
  config.total_steps = total_steps;
  config.entropy_coef = 0;
  config.learning_rate_schedule = Schedule::kLinear;
  return config;
}

template <class Thrown>
std::string error_of(A3c& a3c) {
  const auto until = os::deadline_after(kLong);
  try {
    while (os::Clock::now() < until) a3c.iterate();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "no error";
}

void iterate_until(A3c& a3c, std::int64_t steps) {
  while (a3c.steps() < steps) a3c.iterate();
}

void expect_finite(const LearnerState& state) {
  for (const auto* arrays : {&state.policy, &state.optimizer}) {
    for (const auto& array : *arrays) {
      const auto* values = reinterpret_cast<const float*>(array.bytes.data());
      for (std::int64_t k = 0; k < array.spec.numel(); ++k)
        ASSERT_TRUE(std::isfinite(values[k])) << array.name;
    }
  }
}

class A3cWith : public testing::TestWithParam<const char*> {
 protected:
  static std::shared_ptr<process::Launcher> launcher() {
    return std::string(GetParam()) == "threads" ? threads() : processes();
  }
};

INSTANTIATE_TEST_SUITE_P(Actors, A3cWith, testing::Values("threads", "processes"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(A3cWith, TwoActorsLearnCartPole) {
  A3c a3c(actors(launcher(), 2), config_of(60'000), 1);
  const LearnerState before = a3c.state();
  double best = 0;
  std::int64_t episodes = 0;
  while (a3c.steps() < 60'000) {
    const IterationStats stats = a3c.iterate();
    episodes += static_cast<std::int64_t>(stats.finished.size());
    EXPECT_EQ(stats.steps, a3c.steps());
    EXPECT_EQ(stats.iteration, a3c.iteration());
    EXPECT_EQ(stats.episodes, episodes);
    if (stats.iteration > 0) {
      EXPECT_GE(stats.policy_lag, 0);
      EXPECT_TRUE(std::isnan(stats.approx_kl));
      EXPECT_TRUE(std::isfinite(stats.loss));
      EXPECT_GT(stats.learning_rate, 0);
    }
    if (episodes >= 100) best = std::max(best, stats.episode_return_mean);
  }
  EXPECT_EQ(a3c.steps(), 60'000);
  EXPECT_EQ(a3c.steps(), a3c.iteration() * 20);
  EXPECT_GT(best, 100) << "a random policy has 22";
  const LearnerState after = a3c.state();
  EXPECT_EQ(after.counters.at("optimizer_steps"), a3c.iteration()) << "none is under way";
  EXPECT_GT(policy_difference(before, after), 0.01);
  expect_finite(after);
}

TEST_P(A3cWith, GoesOnFromItsState) {
  LearnerState saved;
  {
    A3c whole(actors(launcher(), 2), config_of(1'000'000'000), 3);
    iterate_until(whole, 8'000);
    saved = whole.state();
    EXPECT_EQ(whole.state(), saved) << "of one snapshot";
    EXPECT_EQ(saved.counters.at("steps"), whole.steps());
    expect_finite(saved);
  }
  A3c resumed(actors(launcher(), 2), config_of(1'000'000'000), 99);
  resumed.load_state(saved);
  EXPECT_EQ(resumed.state(), saved);
  const auto steps = saved.counters.at("steps").get<std::int64_t>();
  EXPECT_EQ(resumed.steps(), steps);
  const IterationStats stats = resumed.iterate();
  EXPECT_GE(stats.episodes, saved.counters.at("episodes").get<std::int64_t>());
  iterate_until(resumed, steps + 8'000);
  EXPECT_GT(policy_difference(resumed.state(), saved), 1e-4);
  EXPECT_THROW(resumed.load_state(saved), InvalidState);
}

double weight_of_rewards(const LearnerState& state, int actor) {
  return find_array<double>(state.normalizer, fmt::format("return.{}.count", actor), 1)[0];
}

TEST_P(A3cWith, RewardNormalisersGoOnFromItsState) {
  auto config = config_of(1'000'000'000);
  config.normalize_reward = true;
  LearnerState saved;
  {
    A3c whole(actors(launcher(), 2), config, 3);
    iterate_until(whole, 8'000);
    saved = whole.state();
  }
  const double all = weight_of_rewards(saved, 0) + weight_of_rewards(saved, 1);
  EXPECT_GE(all, 0.8 * saved.counters.at("steps").get<double>()) << "all but rows of resets";
  // One actor more than there were: it begins with the first one's.
  A3c resumed(actors(launcher(), 3), config, 99);
  resumed.load_state(saved);
  const LearnerState loaded = resumed.state();
  for (int actor = 0; actor < 3; ++actor)
    EXPECT_EQ(weight_of_rewards(loaded, actor), weight_of_rewards(saved, actor % 2));
  iterate_until(resumed, resumed.steps() + 8'000);
  const LearnerState after = resumed.state();
  for (int actor = 0; actor < 3; ++actor)
    EXPECT_GE(weight_of_rewards(after, actor), weight_of_rewards(loaded, actor));

  // One of a run that kept none: they begin anew.
  LearnerState older = saved;
  older.counters.erase("actors");
  older.normalizer.clear();
  A3c begun(actors(launcher(), 2), config, 99);
  begun.load_state(older);
  EXPECT_LT(weight_of_rewards(begun.state(), 0), 1);

  config.normalize_reward = false;
  A3c raw(actors(launcher(), 2), config, 3);
  EXPECT_THAT(raw.state().normalizer, testing::IsEmpty());
}

TEST_P(A3cWith, WhatAnActorReportsIsThrown) {
  A3c a3c(actors(launcher(), 2, "learn", "shoal/Acrobot-v1"), config_of(50'000), 1);
  EXPECT_THAT(error_of<process::RemoteError>(a3c),
              AllOf(HasSubstr("actor "), HasSubstr("observation space")));
}

TEST_P(A3cWith, AnActorThatDoesNotBeginIsAnErrorInTime) {
  A3c a3c(actors(launcher(), 1, "build for ever", kCartPole, std::chrono::milliseconds(50)),
          config_of(50'000), 1);
  EXPECT_THAT(error_of<TimedOut>(a3c), HasSubstr("actor 0 has not built"));
}

TEST_P(A3cWith, ActorsThatEndAtOnceAreTooManyFaults) {
  auto config = config_of(50'000);
  config.max_restarts = 2;
  A3c a3c(actors(launcher(), 1, "leave"), config, 1);
  EXPECT_THAT(error_of<vector::TooManyFaults>(a3c),
              AllOf(HasSubstr("max_restarts=2"), HasSubstr("exit code 7")));
}

TEST_P(A3cWith, WithoutRestartsTheFirstDeathEndsTheRun) {
  auto config = config_of(50'000);
  config.max_restarts = 0;
  A3c a3c(actors(launcher(), 2, "leave"), config, 1);
  EXPECT_THAT(error_of<process::WorkerDied>(a3c), HasSubstr("exit code 7"));
}

TEST(A3c, AnActorThatIsKilledIsReplacedAndTheRunGoesOn) {
  const auto its = actors(processes(), 2);
  auto config = config_of(1'000'000'000);
  A3c a3c(its, config, 1);
  iterate_until(a3c, 2'000);
  for (int round = 0; round < 3; ++round) {
    const std::vector<int> before = its->pids();
    ASSERT_EQ(before.size(), 2U);
    ASSERT_EQ(::kill(before[static_cast<std::size_t>(round % 2)], SIGKILL), 0);
    while (its->replaced() == round) a3c.iterate();
    EXPECT_NE(its->pids(), before);
    const LearnerState state = a3c.state();
    expect_finite(state);
    iterate_until(a3c, a3c.steps() + 2'000);
  }
  ASSERT_EQ(::kill(its->pids().at(0), SIGKILL), 0);
  EXPECT_THAT(error_of<vector::TooManyFaults>(a3c),
              AllOf(HasSubstr("fault number 4"), HasSubstr("SIGKILL")));
}

TEST(A3c, AnActorThatIsKilledLeavesItsRewardNormaliserToTheNext) {
  const auto its = actors(processes(), 1);
  auto config = config_of(1'000'000'000);
  config.normalize_reward = true;
  A3c a3c(its, config, 1);
  iterate_until(a3c, 8'000);
  const double before = weight_of_rewards(a3c.state(), 0);
  ASSERT_EQ(::kill(its->pids().at(0), SIGKILL), 0);
  while (its->replaced() == 0) a3c.iterate();
  iterate_until(a3c, a3c.steps() + 200);
  EXPECT_GE(weight_of_rewards(a3c.state(), 0), before);
}

TEST(A3c, RolloutsOfActorsThatWereKilledAreMadeByOthers) {
  const auto its = actors(processes(), 2);
  auto config = config_of(200'000);
  config.max_restarts = 100;
  A3c a3c(its, config, 1);
  int kills = 0;
  for (std::int64_t next = 1'000; a3c.steps() < config.total_steps;) {
    a3c.iterate();
    if (a3c.steps() < next || kills >= 6) continue;
    next = a3c.steps() + 1'000;
    for (const int pid : its->pids()) kills += ::kill(pid, SIGKILL) == 0 ? 1 : 0;
  }
  EXPECT_GT(kills, 0);
  EXPECT_GE(a3c.steps(), 200'000);
  EXPECT_LE(a3c.steps(), 200'000 + kills * 20);
}

TEST(A3c, WhatAnActorLeavesIsToldBeforeAnotherTakesItsPlace) {
  const auto its = actors(processes(), 1, "build for ever");
  const os::Fd arena(::dup(STDERR_FILENO));
  constexpr std::chrono::hours kNever{1};
  std::vector<int> ended;
  its->start({.faults = {.backoff = kNever, .max_backoff = kNever},
              .arena_fd = arena.get(),
              .order = [](int, int) { return std::vector<std::byte>(1); },
              .signs = [](int) { return 0; },
              .ended = [&](int actor) { ended.push_back(actor); },
              .wake = {},
              .end = [] {}});
  for (std::size_t deaths = 1; deaths <= 2; ++deaths) {
    while (its->pids().empty()) its->watch();  // at once after the first death, then in an hour
    ASSERT_EQ(::kill(its->pids().at(0), SIGKILL), 0);
    while (ended.size() < deaths) its->watch();
  }
  EXPECT_EQ(ended, std::vector<int>({0, 0}));
  EXPECT_EQ(its->replaced(), 1);
  EXPECT_THAT(its->pids(), testing::IsEmpty());
}

TEST(A3c, ADeathIsSeenBetweenTwoIterations) {
  const auto its = actors(processes(), 2);
  A3c a3c(its, config_of(1'000'000'000), 1);
  a3c.attend();  // before they begin: there is nothing to look after
  iterate_until(a3c, 1'000);
  ASSERT_EQ(::kill(its->pids().at(0), SIGKILL), 0);
  while (its->replaced() == 0) a3c.attend();
  EXPECT_EQ(its->pids().size(), 2U);
}

TEST(A3c, AnActorThatDoesNotGoOnIsAnErrorThatNamesIt) {
  const auto its = actors(processes(), 2);
  auto config = config_of(1'000'000'000);
  config.step_timeout = 2;  // longer than other processes keep an actor from its CPU
  config.normalize_reward = true;
  A3c a3c(its, config, 1);
  while (weight_of_rewards(a3c.state(), 1) < 1) a3c.iterate();  // until actor 1 has begun
  const int pid = its->pids().at(1);
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  EXPECT_THAT(error_of<TimedOut>(a3c), AllOf(HasSubstr("actor 1 (pid " + std::to_string(pid) + ")"),
                                             HasSubstr("for 2 s, which step_timeout allows")));
}

TEST(A3c, ActorsThatPauseAreNotTakenForHung) {
  auto config = config_of(1'000'000'000);
  config.step_timeout = 2;
  A3c a3c(actors(processes(), 2), config, 1);
  iterate_until(a3c, 1'000);
  a3c.rest();
  std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  iterate_until(a3c, a3c.steps() + 1'000);
}

TEST(A3c, ActorsMayWaitForTheirLearnerForLongerThanTheyMayTakeToBegin) {
  const auto its = actors(threads(), 2, "learn", kCartPole, std::chrono::milliseconds(1500));
  const auto late = os::deadline_after(std::chrono::milliseconds(1600));
  A3c a3c(its, config_of(1'000'000'000), 1);
  std::this_thread::sleep_until(late);
  iterate_until(a3c, 1'000);
}

TEST(A3c, PausesWhenItRests) {
  A3c a3c(actors(threads(), 2), config_of(1'000'000'000), 1);
  iterate_until(a3c, 1'000);
  a3c.rest();
  EXPECT_NO_THROW(a3c.state());
  iterate_until(a3c, a3c.steps() + 1'000);  // and goes on
}

TEST(A3c, ClosedActorsAreAnError) {
  const auto its = actors(threads(), 1);
  A3c a3c(its, config_of(1'000), 1);
  its->close();
  EXPECT_THROW(a3c.iterate(), InvalidState);
  EXPECT_THROW(ActorProcesses({}), InvalidArgument);
}

TEST(A3c, RefusesWhatOneProcessAloneCanDo) {
  auto config = config_of(1'000);
  config.normalize_obs = true;
  EXPECT_THROW(A3c(actors(threads(), 1), config, 1), InvalidArgument);
  A3c a3c(actors(threads(), 1), config_of(1'000), 1);
  const auto envs = make(kCartPole, 4);
  EXPECT_THROW(a3c.begin(*envs), InvalidState);
}

TEST(A3cConfig, ItsOptionsAreChecked) {
  A3cConfig config;
  EXPECT_NO_THROW(validate(config));
  config.max_restarts = -1;
  EXPECT_THROW(validate(config), InvalidArgument);
  config = {};
  config.restart_window = 0;
  EXPECT_THROW(validate(config), InvalidArgument);
  config = {};
  config.step_timeout = -1;
  EXPECT_THROW(validate(config), InvalidArgument);
}

}  // namespace
}  // namespace shoal::learn
