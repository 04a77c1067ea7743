// OnFault::kRestart: what a death leads to when it is not to be an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "shoal/os/testing/message_of.h"
#include "shoal/process/worker_died.h"
#include "shoal/vector/testing/process_toys.h"

namespace shoal::vector::testing {
namespace {

using namespace std::chrono_literals;
using os::testing::message_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Options restarting(int max_restarts = 3) {
  Options options;
  options.faults.on_fault = OnFault::kRestart;
  options.faults.max_restarts = max_restarts;
  return options;
}

std::vector<int> ints(std::span<const std::uint8_t> values) {
  return {values.begin(), values.end()};
}

// Steps until these rows are reset.
Batch until_back(ProcessVectorEnv& envs, const std::vector<std::size_t>& rows) {
  const std::vector<std::int64_t> actions(static_cast<std::size_t>(envs.num_envs()), kAct);
  for (;;) {
    const Batch batch = act(envs, actions);
    for (const RowFaultRecord& fault : envs.faults()) ADD_FAILURE() << fault.fault->describe();
    if (std::ranges::all_of(rows, [&](std::size_t row) { return batch.reset[row] != 0; })) {
      return batch;
    }
    for (const std::size_t row : rows) {
      EXPECT_EQ(batch.fault[row], static_cast<int>(RowFault::kDown));
      EXPECT_EQ(batch.truncated[row], 1);
      EXPECT_EQ(batch.reward[row], 0);
    }
  }
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
  ASSERT_EQ(envs->faults().size(), 2U);
  EXPECT_EQ(envs->faults()[0].fault, envs->faults()[1].fault);
  EXPECT_EQ(envs->faults()[1].fault->env, 2);

  batch = until_back(*envs, {1, 2});
  EXPECT_THAT(ints(batch.fault), ElementsAre(0, 0, 0));
  EXPECT_THAT(ints(batch.reset), ElementsAre(batch.reset[0], 1, 1));
  EXPECT_THAT(ints(batch.truncated), ElementsAre(batch.truncated[0], 0, 0));
  EXPECT_EQ(batch.obs[1].as<std::int64_t>()[1], 0);
  EXPECT_NE(envs->pid(1), old_pid);

  batch = act(*envs, {kAct, kAct, kAct});
  EXPECT_EQ(batch.obs[1].as<std::int64_t>()[1], 1);
  EXPECT_EQ(batch.reset[1], 0);
  EXPECT_TRUE(envs->faults().empty());
  EXPECT_EQ(envs->stats().workers[1].restarts, 1U);
  EXPECT_EQ(text_of(envs->request(1, bytes_of("echo new"))), "new");
}

INSTANTIATE_TEST_SUITE_P(Points, RestartAfter,
                         ::testing::Combine(::testing::Values(Kind::kFork, Kind::kForkserver),
                                            ::testing::Values(ToyAction::kKill,
                                                              ToyAction::kKillWriting,
                                                              ToyAction::kExit)),
                         [](const auto& info) {
                           return name(std::get<0>(info.param)) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(ProcessVectorEnvRestart, OfAnIdleWorkerFirstEndsItsRowsInTheNextStep) {
  auto envs = start(Kind::kForkserver, {1, 1}, restarting());
  envs->reset(std::uint64_t{0});
  EXPECT_THROW(envs->request(1, bytes_of("kill")), process::WorkerDied);
  EXPECT_EQ(text_of(envs->request(1, bytes_of("echo new"))), "new");
  Batch batch = act(*envs, {kAct, kAct});
  EXPECT_THAT(ints(batch.fault), ElementsAre(0, 1));
  batch = until_back(*envs, {1});
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

TEST(ProcessVectorEnvRestart, TheZygotesDeathIsOneFaultHoweverManyWorkersItTakes) {
  constexpr int kWorkers = 6;
  const std::vector<std::int64_t> actions(kWorkers, kAct);
  auto launcher = make_launcher(Kind::kForkserver);
  ProcessVectorEnv envs(launcher, toy_specs(std::vector(kWorkers, 1)), restarting(1));
  envs.reset(std::uint64_t{0});
  const int old_zygote = launcher->zygote_pid();
  ::kill(old_zygote, SIGKILL);
  std::vector<Fault> faults;
  for (int t = 0; t < 100'000 && faults.size() < kWorkers; ++t) {
    act(envs, actions);
    for (const RowFaultRecord& row : envs.faults()) faults.push_back(row.fault);
  }
  ASSERT_EQ(faults.size(), kWorkers);
  for (const Fault& fault : faults) {
    EXPECT_EQ(fault->number, 1U);
    EXPECT_EQ(fault->kind, FaultKind::kKilled);
    EXPECT_EQ(fault->cause, faults[0]->cause);
    EXPECT_THAT(fault->message,
                HasSubstr("ended with its zygote (pid " + std::to_string(old_zygote) +
                          "), which ended with signal 9 (SIGKILL) and takes its workers with it"));
  }
  EXPECT_NO_THROW(act(envs, actions));
  EXPECT_NE(launcher->zygote_pid(), old_zygote);
  ::kill(launcher->zygote_pid(), SIGKILL);  // another cause: one more than is forgiven
  const std::string text = message_of<TooManyFaults>([&] {
    for (int t = 0; t < 100'000; ++t) act(envs, actions);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("fault number 2 within 60 s"), HasSubstr("fault 1 (killed)"),
                          HasSubstr("fault 2 ("), Not(HasSubstr("fault 3"))));
}

TEST(ProcessVectorEnvRestart, GivesUpAfterTooManyInTheWindow) {
  auto envs = start(Kind::kForkserver, {1}, restarting(2));
  envs->reset(std::uint64_t{0});
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(ints(act(*envs, {ToyAction::kKill}).fault), ElementsAre(1));
    EXPECT_THAT(ints(act(*envs, {kAct}).reset), ElementsAre(1));
  }
  EXPECT_THAT(
      message_of<TooManyFaults>([&] { act(*envs, {ToyAction::kKill}); }),
      AllOf(HasSubstr("fault 1 (killed): worker 0"), HasSubstr("fault 2 (killed): worker 0"),
            HasSubstr("fault 3 (killed): worker 0")));
  EXPECT_THAT(message_of<InvalidState>([&] { envs->step_async(); }),
              HasSubstr("fault number 3 within 60 s, of which max_restarts=2"));
}

TEST(ProcessVectorEnvRestart, ForgivesAgainWhenTheWindowHasPassed) {
  Options options = restarting(1);
  options.faults.restart_window = 0ms;
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
  EXPECT_THAT(message_of<TooManyFaults>([&] { act(*envs, {ToyAction::kThrow}); }),
              HasSubstr("toy 0 refuses"));
}

TEST(ProcessVectorEnvRestart, OfOneEnvironmentThatFailsLeavesItsNeighboursAlone) {
  auto envs = start(Kind::kForkserver, {3}, restarting());
  envs->reset(std::uint64_t{0});
  const int pid = envs->pid(0);
  Batch batch = act(*envs, {kAct, ToyAction::kThrow, kAct});
  EXPECT_THAT(ints(batch.fault), ElementsAre(0, 1, 0));
  EXPECT_EQ(batch.truncated[1], 1);
  ASSERT_EQ(envs->faults().size(), 1U);
  EXPECT_EQ(envs->faults()[0].row, 1);
  EXPECT_EQ(envs->faults()[0].fault->kind, FaultKind::kException);
  EXPECT_THAT(envs->faults()[0].fault->message, HasSubstr("toy 1 refuses"));
  batch = act(*envs, {kAct, kAct, kAct});
  EXPECT_THAT(ints(batch.fault), ElementsAre(0, 0, 0));
  EXPECT_EQ(batch.reset[1], 1);
  EXPECT_EQ(batch.obs[1].as<std::int64_t>()[0], 2);
  EXPECT_EQ(batch.obs[1].as<std::int64_t>()[1], 0);
  EXPECT_EQ(batch.obs[1].as<std::int64_t>()[2], 2);
  EXPECT_EQ(envs->pid(0), pid);
}

TEST(ProcessVectorEnvRestart, BacksOffWhileTheOthersGoOn) {
  Options options = restarting();
  options.faults.backoff = 60s;
  options.faults.max_backoff = 60s;
  auto envs = start(Kind::kForkserver, {1, 2}, options);
  envs->reset(std::uint64_t{0});
  act(*envs, {kAct, kAct, ToyAction::kThrow});  // forgiven at once
  EXPECT_EQ(act(*envs, {kAct, kAct, kAct}).reset[2], 1);
  act(*envs, {kAct, kAct, ToyAction::kThrow});  // waits
  for (int t = 0; t < 20; ++t) {
    EXPECT_THAT(ints(act(*envs, {kAct, kAct, kAct}).fault), ElementsAre(0, 0, 2));
  }
  const std::vector<std::uint8_t> mask{0, 0, 1};
  EXPECT_THAT(ints(envs->reset({}, mask).fault), Each(0));  // whoever asks for it gets it
  EXPECT_THAT(ints(act(*envs, {kAct, kAct, kAct}).fault), Each(0));
}

TEST(ProcessVectorEnvRestart, OfAnEnvironmentThatHangsTellsItsStack) {
  Options options = restarting();
  options.faults.step_timeout = 1s;
  auto envs = start(Kind::kForkserver, {1, 2}, options);
  envs->reset(std::uint64_t{0});
  const Batch batch = act(*envs, {kAct, kAct, ToyAction::kHang});
  EXPECT_THAT(ints(batch.fault), ElementsAre(0, 1, 1));
  ASSERT_EQ(envs->faults().size(), 2U);
  const FaultRecord& fault = *envs->faults()[0].fault;
  EXPECT_EQ(fault.kind, FaultKind::kHang);
  EXPECT_EQ(fault.env, 2);
  EXPECT_THAT(fault.message, HasSubstr("environment 2 did not finish its step within 1 s"));
  EXPECT_THAT(fault.details, HasSubstr("pause"));
  until_back(*envs, {1, 2});
}

TEST(ProcessVectorEnvDrop, KeepsTheRestAndFailsWithTheLast) {
  Options options;
  options.faults.on_fault = OnFault::kDrop;
  auto envs = start(Kind::kForkserver, {1, 2}, options);
  envs->reset(std::uint64_t{0});
  EXPECT_THAT(ints(act(*envs, {kAct, ToyAction::kThrow, kAct}).fault), ElementsAre(0, 1, 0));
  EXPECT_THAT(ints(act(*envs, {kAct, kAct, kAct}).fault), ElementsAre(0, 3, 0));
  EXPECT_THAT(ints(act(*envs, {kAct, ToyAction::kKill, ToyAction::kKill}).fault),
              ElementsAre(0, 1, 1));
  for (int t = 0; t < 3; ++t) {
    const Batch batch = act(*envs, {kAct, kAct, kAct});
    EXPECT_THAT(ints(batch.fault), ElementsAre(0, 3, 3));
    EXPECT_THAT(ints(batch.truncated), ElementsAre(batch.truncated[0], 1, 1));
  }
  EXPECT_THAT(ints(envs->reset(std::uint64_t{1}).fault), ElementsAre(0, 3, 3));
  EXPECT_THAT(message_of<InvalidState>([&] { envs->request(1, bytes_of("echo x")); }),
              HasSubstr("has been dropped"));
  EXPECT_THAT(message_of<TooManyFaults>([&] { act(*envs, {ToyAction::kExit, kAct, kAct}); }),
              AllOf(HasSubstr("every environment has been dropped"), HasSubstr("toy 1 refuses")));
}

TEST(ProcessVectorEnvHealth, IsToldFromAnyThreadWhileAStepIsUnderWay) {
  auto envs = start(Kind::kForkserver, {1, 2}, restarting());
  envs->reset(std::uint64_t{0});
  set_actions(*envs, {kAct, kAct, ToyAction::kHang});
  envs->step_async();
  std::vector<WorkerHealth> health;
  do {
    std::thread([&] { health = envs->health(); }).join();
  } while (health[1].env != 2 || health[1].since < 5ms || health[0].state != WorkerState::kIdle);
  EXPECT_EQ(health[1].state, WorkerState::kStepping);
  EXPECT_EQ(health[1].pid, envs->pid(1));
  EXPECT_GT(health[1].rss_bytes, 0U);
  ::kill(envs->pid(1), SIGKILL);
  envs->wait();
  health = envs->health();
  EXPECT_EQ(health[1].faults[static_cast<std::size_t>(FaultKind::kKilled)], 1U);
  ASSERT_NE(health[1].last_fault, nullptr);
  EXPECT_EQ(health[1].last_fault->env, 2);
  until_back(*envs, {1, 2});
  EXPECT_EQ(envs->health()[1].restarts, 1U);
}

}  // namespace
}  // namespace shoal::vector::testing
