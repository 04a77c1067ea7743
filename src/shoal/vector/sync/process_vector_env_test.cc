// What only workers in processes do: start, die, come back, answer requests, send large infos.
#include "shoal/vector/sync/process_vector_env.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "shoal/os/limits/affinity.h"
#include "shoal/os/testing/child.h"
#include "shoal/os/testing/message_of.h"
#include "shoal/process/worker_died.h"
#include "shoal/vector/testing/process_toys.h"
#include "shoal/vector/testing/toy_stepper.h"

namespace shoal::vector::testing {
namespace {

using namespace std::chrono_literals;
using os::testing::message_of;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// --- also with workers that are threads
// -------------------------------------------------------------------------------

class ProcessVectorEnvRequests : public ::testing::TestWithParam<Kind> {};

TEST_P(ProcessVectorEnvRequests, AreAnsweredByTheWorkerThatIsAsked) {
  auto envs = start(GetParam(), {2, 1});
  EXPECT_EQ(text_of(envs->hello(0).extra), "2 toys");
  EXPECT_EQ(text_of(envs->hello(1).extra), "1 toys");
  EXPECT_EQ(text_of(envs->request(1, bytes_of("echo hello"))), "hello");
  EXPECT_EQ(text_of(envs->request(0, bytes_of("pid"))), std::to_string(envs->pid(0)));
  EXPECT_EQ(envs->stats().workers[1].requests, 1U);
}

TEST_P(ProcessVectorEnvRequests, MayBeLarge) {
  auto envs = start(GetParam(), {1});
  const std::string large(3'000'000, 'x');
  EXPECT_EQ(text_of(envs->request(0, bytes_of("echo " + large))), large);
}

TEST_P(ProcessVectorEnvRequests, ThatFailChangeNothingElse) {
  auto envs = start(GetParam(), {2, 1});
  envs->reset(std::uint64_t{0});
  EXPECT_THAT(message_of<process::RemoteError>([&] { envs->request(1, bytes_of("sing")); }),
              HasSubstr("a toy does not know \"sing\""));
  EXPECT_NO_THROW(act(*envs, {kAct, kAct, kAct}));
  EXPECT_EQ(text_of(envs->request(1, bytes_of("echo still here"))), "still here");
}

TEST_P(ProcessVectorEnvRequests, AreRefusedWhileAStepIsUnderWayAndForUnknownWorkers) {
  auto envs = start(GetParam(), {1});
  envs->reset_async({});
  EXPECT_THROW(envs->request(0, bytes_of("pid")), InvalidState);
  envs->wait();
  EXPECT_THAT(message_of<InvalidArgument>([&] { envs->request(1, bytes_of("pid")); }),
              HasSubstr("no worker 1"));
}

std::vector<std::string> messages_of(const VectorEnv::CloseOutcome& outcome) {
  std::vector<std::string> messages;
  for (const auto& failure : outcome.failures) {
    messages.push_back(failure.worker() + ": " + failure.report().message);
  }
  return messages;
}

TEST_P(ProcessVectorEnvRequests, WhatFailsWhileItIsClosedIsToldOnce) {
  auto envs = start(GetParam(), {2, 1, 1});
  envs->request(0, bytes_of("close badly"));
  envs->request(2, bytes_of("close badly"));
  EXPECT_THAT(messages_of(envs->take_close_outcome()), ElementsAre());
  envs->close();
  EXPECT_THAT(messages_of(envs->take_close_outcome()),
              ElementsAre("worker 0: toy 0 wants to play on", "worker 0: toy 1 wants to play on",
                          "worker 2: toy 3 wants to play on"));
  EXPECT_THAT(messages_of(envs->take_close_outcome()), ElementsAre());
}

TEST_P(ProcessVectorEnvRequests, InfosArriveWhateverTheirSize) {
  auto envs = start(GetParam(), {2, 2});
  envs->reset(std::uint64_t{0});
  EXPECT_TRUE(envs->info(0).empty());
  act(*envs, {ToyAction::kSmallInfo, ToyAction::kSmallInfo, kAct, ToyAction::kLargeInfo});
  EXPECT_EQ(text_of(envs->info(0)), "toy 0;toy 1;");
  EXPECT_EQ(envs->info(1).size(), 300'000U);
  EXPECT_THAT(envs->info(1).first(3), Each(std::byte{3}));
  act(*envs, {kAct, kAct, kAct, kAct});
  EXPECT_TRUE(envs->info(0).empty());
  EXPECT_TRUE(envs->info(1).empty());
}

INSTANTIATE_TEST_SUITE_P(Launchers, ProcessVectorEnvRequests,
                         ::testing::Values(Kind::kProcessAsThreads, Kind::kFork, Kind::kForkserver),
                         [](const auto& info) { return name(info.param); });

// --- start
// ------------------------------------------------------------------------------------------------------------

std::vector<process::WorkerSpec> with_payload(std::vector<process::WorkerSpec> specs, int worker,
                                              std::string_view payload) {
  specs[static_cast<std::size_t>(worker)].payload = bytes_of(payload);
  return specs;
}

TEST(ProcessVectorEnvStart, ReportsAWorkerThatFailsToBuildItsEnvironments) {
  EXPECT_THAT(message_of<process::RemoteError>([] {
                ProcessVectorEnv(make_launcher(Kind::kForkserver),
                                 with_payload(toy_specs({1, 1}), 1, "throw"), {});
              }),
              HasSubstr("no toys today"));
}

TEST(ProcessVectorEnvStart, ReportsAWorkerThatEndsWhileAnotherIsSlow) {
  auto specs = with_payload(with_payload(toy_specs({1, 2}), 1, "exit"), 0, "hang");
  const std::string message = message_of<process::WorkerDied>(
      [&] { ProcessVectorEnv(make_launcher(Kind::kForkserver), std::move(specs), {}); });
  EXPECT_THAT(message, HasSubstr("worker 1"));
  EXPECT_THAT(message, HasSubstr("exit code 7"));
}

TEST(ProcessVectorEnvStart, EndsAtItsTimeout) {
  Options options;
  options.faults.start_timeout = 30ms;
  EXPECT_THAT(message_of<TimedOut>([&] {
                ProcessVectorEnv(make_launcher(Kind::kForkserver),
                                 with_payload(toy_specs({1}), 0, "hang"), options);
              }),
              HasSubstr("worker 0 (environment 0)"));
}

TEST(ProcessVectorEnvStart, NamesTheEnvironmentWithOtherSpaces) {
  const std::string message = message_of<InvalidArgument>([] {
    ProcessVectorEnv(make_launcher(Kind::kForkserver),
                     with_payload(toy_specs({2, 3, 1}), 2, "other spaces"), {});
  });
  EXPECT_THAT(message, StartsWith("environment 5 has another action space than environment 0: "));
  EXPECT_THAT(message, HasSubstr("Discrete(5)"));
}

TEST(ProcessVectorEnvStart, RefusesAWorkerWithoutEnvironments) {
  EXPECT_THROW(start(Kind::kForkserver, {1, 0}), InvalidArgument);
  EXPECT_THROW(start(Kind::kForkserver, {}), InvalidArgument);
}

// --- death, on_fault raise
// --------------------------------------------------------------------------------------------

TEST(ProcessVectorEnvDeath, IsThrownWithAllThatIsKnownOfIt) {
  auto envs = start(Kind::kForkserver, {2, 2});
  envs->reset(std::uint64_t{0});
  set_actions(*envs, {kAct, kAct, kAct, ToyAction::kExit});
  envs->step_async();
  try {
    envs->wait();
    FAIL() << "nothing was thrown";
  } catch (const process::WorkerDied& death) {
    EXPECT_EQ(death.certificate().index, 1);
    EXPECT_EQ(death.certificate().first_env, 2);
    EXPECT_EQ(death.certificate().num_envs, 2);
    EXPECT_EQ(death.certificate().status, (process::ExitStatus{.code = 3}));
    EXPECT_THAT(death.what(), HasSubstr("these are the last words of toy 3"));
  }
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { envs->step_async(); }, [&] { envs->reset_async({}); }, [&] { envs->wait(); },
           [&] { envs->request(0, bytes_of("pid")); }}) {
    EXPECT_THAT(message_of<InvalidState>(call),
                HasSubstr("because worker 1 (environments 2 to 3) died (exit code 3)"));
  }
}

class KillAt : public ::testing::TestWithParam<std::tuple<Kind, std::string>> {};

TEST_P(KillAt, EndsInATypedErrorThatNamesTheWorker) {
  const auto& [kind, point] = GetParam();
  auto envs = start(kind, {1, 1, 1});
  envs->reset(std::uint64_t{0});
  const std::string message = message_of<process::WorkerDied>([&, &point = point] {
    if (point == "idle") {
      ::kill(envs->pid(1), SIGKILL);
      // The death of an idle worker may be seen by the call that begins, or only by its wait.
      for (;;) act(*envs, {kAct, kAct, kAct});
    }
    if (point == "in a reset") {
      ASSERT_TRUE(os::testing::stop(envs->pid(1)));
      envs->reset_async({});
      ::kill(envs->pid(1), SIGKILL);
      envs->wait();
    }
    if (point == "in a step") act(*envs, {kAct, ToyAction::kKill, kAct});
    if (point == "while writing") act(*envs, {kAct, ToyAction::kKillWriting, kAct});
    if (point == "while another hangs") act(*envs, {ToyAction::kHang, ToyAction::kKill, kAct});
    if (point == "in a request") envs->request(1, bytes_of("kill"));
  });
  EXPECT_THAT(message, HasSubstr("worker 1"));
  EXPECT_THAT(message, HasSubstr("signal 9 (SIGKILL)"));
  EXPECT_THROW(envs->reset_async({}), InvalidState);
}

INSTANTIATE_TEST_SUITE_P(
    Points, KillAt,
    ::testing::Combine(::testing::Values(Kind::kFork, Kind::kForkserver, Kind::kSpawn),
                       ::testing::Values("idle", "in a reset", "in a step", "while writing",
                                         "while another hangs", "in a request")),
    [](const auto& info) {
      std::string text = name(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
      std::replace(text.begin(), text.end(), ' ', '_');
      return text;
    });

TEST(ProcessVectorEnvDeath, OfTheZygoteIsTheDeathOfAllWorkers) {
  auto launcher = make_launcher(Kind::kForkserver);
  ProcessVectorEnv envs(launcher, toy_specs({1, 1}), {});
  envs.reset(std::uint64_t{0});
  const int zygote = launcher->zygote_pid();
  ::kill(zygote, SIGKILL);
  EXPECT_THAT(message_of<process::WorkerDied>([&] {
                for (;;) act(envs, {kAct, kAct});
              }),
              HasSubstr("ended with its zygote (pid " + std::to_string(zygote) + ")"));
}

TEST(ProcessVectorEnvInterrupt, EndsAWaitAndLeavesTheRestInOrder) {
  struct Interrupted {};
  std::unique_ptr<ProcessVectorEnv> envs;
  Options options;
  options.interrupt_check = [&] {
    if (!envs) return;  // they are starting
    ::kill(envs->pid(0), SIGCONT);
    throw Interrupted();
  };
  envs = start(Kind::kForkserver, {1}, options);
  EXPECT_THROW(envs->request(0, bytes_of("stop")), Interrupted);
  EXPECT_EQ(text_of(envs->request(0, bytes_of("echo next"))), "next");  // not the other's answer

  envs->reset(std::uint64_t{0});
  ASSERT_TRUE(os::testing::stop(envs->pid(0)));
  set_actions(*envs, {kAct});
  envs->step_async();
  EXPECT_THROW(envs->wait(), Interrupted);
  EXPECT_NO_THROW(envs->wait());
  EXPECT_EQ(envs->stats().workers[0].steps, 1U);
}

TEST(ProcessVectorEnvInterrupt, KillsTheWorkersThatAreStillClosing) {
  struct Interrupted {};
  bool closing = false;
  Options options;
  options.interrupt_check = [&] {
    if (closing) throw Interrupted();
  };
  auto envs = start(Kind::kForkserver, {1, 1}, options);
  envs->request(0, bytes_of("never close"));
  envs->request(1, bytes_of("close badly"));
  const int pid = envs->pid(0);
  closing = true;
  envs->close_within(std::chrono::hours(1));
  EXPECT_NE(::kill(pid, 0), 0);
  EXPECT_THROW(std::rethrow_exception(envs->take_close_outcome().interrupt), Interrupted);
}

TEST(ProcessVectorEnvTimeout, OfRequestsHoweverManyAWorkerHasNotTaken) {
  auto envs = start(Kind::kForkserver, {1, 1});
  ASSERT_TRUE(os::testing::stop(envs->pid(1)));
  const std::vector<std::byte> message = bytes_of("echo " + std::string(60'000, 'x'));
  for (int i = 0; i < 20; ++i) EXPECT_THROW(envs->request(1, message, 1ms), TimedOut);
  EXPECT_EQ(text_of(envs->request(0, bytes_of("echo hello"))), "hello");
}

// --- placing ---

// As the workers answer "cpus": each of this process's CPUs alone, and all of them.
std::vector<std::string> single_cpus() {
  std::vector<std::string> each;
  for (const int cpu : os::cpu_set()) each.push_back(fmt::format("{}", cpu));
  return each;
}

std::vector<std::string> cpus_of_workers(ProcessVectorEnv& envs) {
  std::vector<std::string> cpus;
  for (int w = 0; w < envs.num_workers(); ++w)
    cpus.push_back(text_of(envs.request(w, bytes_of("cpus"))));
  return cpus;
}

class ProcessVectorEnvPlacing : public ::testing::Test {
 protected:
  void SetUp() override {
    if (single_cpus().size() < 2 ||
        single_cpus().size() != static_cast<std::size_t>(os::allowed_cpus())) {
      GTEST_SKIP() << "needs two CPUs without a quota";
    }
  }
};

TEST_F(ProcessVectorEnvPlacing, GivesEachWorkerACpuWhenThereIsOneForEach) {
  const std::vector<int> counts(single_cpus().size(), 1);
  Options options;
  options.faults.on_fault = OnFault::kRestart;
  auto envs = start(Kind::kForkserver, counts, options);
  EXPECT_EQ(cpus_of_workers(*envs), single_cpus());
  EXPECT_THROW(envs->request(1, bytes_of("kill")), process::WorkerDied);
  EXPECT_EQ(cpus_of_workers(*envs), single_cpus());  // the replacement too
}

TEST_F(ProcessVectorEnvPlacing, IsLeftToTheKernelWithAnotherNumberOfWorkersOrWhenToldSo) {
  const std::string all = fmt::format("{}", fmt::join(os::cpu_set(), ","));
  EXPECT_THAT(
      cpus_of_workers(*start(Kind::kForkserver, std::vector<int>(single_cpus().size() - 1, 1))),
      Each(all));
  EXPECT_THAT(
      cpus_of_workers(*start(Kind::kForkserver, std::vector<int>(single_cpus().size() + 1, 1))),
      Each(all));
  Options options;
  options.pin_workers = false;
  EXPECT_THAT(cpus_of_workers(
                  *start(Kind::kForkserver, std::vector<int>(single_cpus().size(), 1), options)),
              Each(all));
}

TEST(ProcessVectorEnvTimeout, NamesWhoIsLateAndLeavesTheStepUnderWay) {
  auto envs = start(Kind::kForkserver, {2, 2});
  envs->reset(std::uint64_t{0});
  set_actions(*envs, {kAct, kAct, kAct, ToyAction::kHang});
  envs->step_async();
  EXPECT_THAT(message_of<TimedOut>([&] { envs->wait(20ms); }),
              HasSubstr("worker 1 (environments 2 to 3) in environment 3"));
  EXPECT_THAT(message_of<InvalidState>([&] { envs->step_async(); }), HasSubstr("still under way"));
  EXPECT_THROW(envs->wait(1ms), TimedOut);
  envs->close();  // does not wait for the hanging environment for long
}

TEST(ProcessVectorEnvFork, ACopyInAForkedChildLeavesTheWorkersAlone) {
  auto envs = start(Kind::kForkserver, {1, 1});
  envs->reset(std::uint64_t{0});
  const pid_t child = ::fork();
  if (child == 0) {
    envs->close();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_NO_THROW(act(*envs, {kAct, kAct}));
}

}  // namespace
}  // namespace shoal::vector::testing
