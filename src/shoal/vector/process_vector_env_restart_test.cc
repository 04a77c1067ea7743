// OnFault::kRestart: what a death leads to when it is not to be an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "shoal/process/worker_died.h"
#include "shoal/vector/testing/process_toys.h"

namespace shoal::vector::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Options restarting(int max_restarts = 3) {
  Options options;
  options.on_fault = OnFault::kRestart;
  options.max_restarts = max_restarts;
  return options;
}

std::vector<int> ints(std::span<const std::uint8_t> values) {
  return {values.begin(), values.end()};
}

class RestartAfter : public ::testing::TestWithParam<std::tuple<Kind, std::int64_t>> {};

TEST_P(RestartAfter, TheRowsEndAsAFaultAndTheNextStepResetsThem) {
  const auto& [kind, action] = GetParam();
  auto envs = start(kind, {1, 2}, restarting());
  const Recorded first = record(envs->reset(std::uint64_t{0}));
  const int old_pid = envs->pid(1);
  Batch batch = act(*envs, {kAct, kAct, action});
  EXPECT_THAT(ints(batch.fault), ElementsAre(0, 1, 1));
  EXPECT_THAT(ints(batch.truncated), ElementsAre(batch.truncated[0], 1, 1));
  EXPECT_THAT(ints(batch.terminated), ElementsAre(batch.terminated[0], 0, 0));
  EXPECT_EQ(batch.reward[1] + batch.reward[2], 0);
  EXPECT_EQ(batch.obs[1].as<std::int64_t>()[1], 1);  // it was stepped before the other one died
  const auto state = batch.obs[0].as<double>();
  for (std::size_t i = 6; i < 9; ++i) {
    const double last = reinterpret_cast<const double*>(first.obs[0].data())[i];
    EXPECT_EQ(state[i], action == ToyAction::kKillWriting ? 0 : last);
  }
  EXPECT_TRUE(envs->info(1).empty());

  batch = act(*envs, {kAct, kAct, kAct});
  EXPECT_THAT(ints(batch.fault), ElementsAre(0, 0, 0));
  EXPECT_THAT(ints(batch.reset), ElementsAre(0, 1, 1));
  EXPECT_THAT(ints(batch.truncated), ElementsAre(batch.truncated[0], 0, 0));
  EXPECT_EQ(batch.obs[1].as<std::int64_t>()[1], 0);
  EXPECT_NE(envs->pid(1), old_pid);

  batch = act(*envs, {kAct, kAct, kAct});
  EXPECT_EQ(batch.obs[1].as<std::int64_t>()[1], 1);
  EXPECT_EQ(batch.reset[1], 0);
  EXPECT_EQ(envs->stats().workers[1].restarts, 1U);
  EXPECT_EQ(text_of(envs->request(1, bytes_of("echo new"))), "new");
}

INSTANTIATE_TEST_SUITE_P(
    Points, RestartAfter,
    ::testing::Combine(::testing::ValuesIn(testable({Kind::kFork, Kind::kForkserver})),
                       ::testing::Values(ToyAction::kKill, ToyAction::kKillWriting,
                                         ToyAction::kExit, ToyAction::kThrow)),
    [](const auto& info) {
      return name(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
    });

TEST(ProcessVectorEnvRestart, OfAnIdleWorkerFirstEndsItsRowsInTheNextStep) {
  auto envs = start(Kind::kForkserver, {1, 1}, restarting());
  envs->reset(std::uint64_t{0});
  EXPECT_THROW(envs->request(1, bytes_of("kill")), process::WorkerDied);
  EXPECT_EQ(text_of(envs->request(1, bytes_of("echo new"))), "new");
  Batch batch = act(*envs, {kAct, kAct});
  EXPECT_THAT(ints(batch.fault), ElementsAre(0, 1));
  batch = act(*envs, {kAct, kAct});
  EXPECT_THAT(ints(batch.reset), ElementsAre(0, 1));
  EXPECT_THAT(ints(batch.fault), ElementsAre(0, 0));
}

TEST(ProcessVectorEnvRestart, AResetTakesTheReplacementAtOnce) {
  auto envs = start(Kind::kForkserver, {1, 2}, restarting());
  const Recorded first = record(envs->reset(std::uint64_t{5}));
  EXPECT_THROW(envs->request(1, bytes_of("kill")), process::WorkerDied);
  EXPECT_EQ(record(envs->reset(std::uint64_t{5})), first);
  const Batch batch = act(*envs, {kAct, kAct, kAct});
  EXPECT_THAT(ints(batch.reset), Each(0));
}

TEST(ProcessVectorEnvRestart, AMaskedResetAlsoResetsTheRestOfAReplacement) {
  auto envs = start(Kind::kForkserver, {1, 2}, restarting());
  envs->reset(std::uint64_t{5});
  act(*envs, {kAct, kAct, kAct});
  EXPECT_THROW(envs->request(1, bytes_of("kill")), process::WorkerDied);
  const std::vector<std::uint8_t> mask{0, 1, 0};
  const Batch batch = envs->reset({}, mask);
  EXPECT_THAT(std::vector<std::int64_t>(batch.obs[1].as<std::int64_t>().begin(),
                                        batch.obs[1].as<std::int64_t>().end()),
              ElementsAre(1, 0, 0));
}

TEST(ProcessVectorEnvRestart, AfterTheZygotesDeathBringsAFreshOne) {
  auto launcher = make_launcher(Kind::kForkserver);
  ProcessVectorEnv envs(launcher, toy_specs({1, 1}), restarting());
  envs.reset(std::uint64_t{0});
  const int old_zygote = launcher->zygote_pid();
  ::kill(old_zygote, SIGKILL);
  bool all_faulted = false;
  int faults = 0;
  for (int t = 0; t < 100'000 && faults < 2; ++t) {
    const Batch batch = act(envs, {kAct, kAct});
    faults += batch.fault[0] + batch.fault[1];
    all_faulted = all_faulted || batch.fault[0] + batch.fault[1] == 2;
  }
  EXPECT_EQ(faults, 2);
  EXPECT_NO_THROW(act(envs, {kAct, kAct}));
  EXPECT_NE(launcher->zygote_pid(), old_zygote);
}

TEST(ProcessVectorEnvRestart, GivesUpAfterTooManyInTheWindow) {
  auto envs = start(Kind::kForkserver, {1}, restarting(2));
  envs->reset(std::uint64_t{0});
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(ints(act(*envs, {ToyAction::kKill}).fault), ElementsAre(1));
    EXPECT_THAT(ints(act(*envs, {kAct}).reset), ElementsAre(1));
  }
  EXPECT_THROW(act(*envs, {ToyAction::kKill}), process::WorkerDied);
  EXPECT_THAT(message_of<InvalidState>([&] { envs->step_async(); }),
              HasSubstr("death number 3 within 60 s, of which 2"));
}

TEST(ProcessVectorEnvRestart, ForgivesAgainWhenTheWindowHasPassed) {
  Options options = restarting(1);
  options.restart_window = 0ms;
  auto envs = start(Kind::kForkserver, {1}, options);
  envs->reset(std::uint64_t{0});
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(ints(act(*envs, {ToyAction::kKill}).fault), ElementsAre(1));
    EXPECT_THAT(ints(act(*envs, {kAct}).reset), ElementsAre(1));
  }
}

TEST(ProcessVectorEnvRestart, ThrowsTheFailureOfAnEnvironmentThatFailsTooOften) {
  auto envs = start(Kind::kForkserver, {1}, restarting(0));
  envs->reset(std::uint64_t{0});
  EXPECT_THAT(message_of<process::RemoteError>([&] { act(*envs, {ToyAction::kThrow}); }),
              HasSubstr("toy 0 refuses"));
}

}  // namespace
}  // namespace shoal::vector::testing
