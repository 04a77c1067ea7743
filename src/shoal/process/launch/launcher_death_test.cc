// Who dies with whom, and what the survivors are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "shoal/os/process/pidfd.h"
#include "shoal/os/testing/child.h"
#include "shoal/process/launcher.h"
#include "shoal/process/testing/entries.h"
#include "shoal/process/worker_died.h"

namespace shoal::process {
namespace {

using ::testing::HasSubstr;
using testing::options;
using testing::recv_text;
using testing::send_text;
using testing::spec;

constexpr std::chrono::seconds kLong{30};

std::unique_ptr<WorkerProcess> start(Launcher& launcher, WorkerSpec one) {
  std::vector<WorkerSpec> specs;
  specs.push_back(std::move(one));
  return std::move(launcher.start(std::move(specs)).front());
}

TEST(ZygoteDeath, TakesItsWorkersAlongAndTheNextStartMakesAnother) {
  auto launcher = Launcher::create(options(StartMethod::kForkserver));
  auto worker = start(*launcher, spec("sleep"));
  auto other = start(*launcher, spec("sleep"));
  EXPECT_EQ(recv_text(worker->channel()), "ready");
  const int zygote = launcher->zygote_pid();
  ASSERT_GT(zygote, 0);
  ::kill(zygote, SIGKILL);
  const auto status = worker->join(kLong);
  ASSERT_TRUE(status);
  EXPECT_FALSE(status->known);
  ASSERT_TRUE(status->zygote);
  EXPECT_EQ(status->zygote->pid, zygote);
  EXPECT_EQ(status->zygote->sub_zygote, -1);
  EXPECT_EQ(status->zygote->status, (ExitStatus{.signal = SIGKILL}));
  EXPECT_EQ(recv_text(worker->channel()), "closed");
  EXPECT_EQ(other->join(kLong)->zygote, status->zygote);  // the same object

  auto next = start(*launcher, spec("exit", "4"));
  EXPECT_EQ(next->join(kLong), (ExitStatus{.code = 4}));
  EXPECT_NE(launcher->zygote_pid(), zygote);
}

// A process closes its descriptors, of the multiplexer's socket too, a while before it has ended:
// here as long as it takes to free the memory.
TEST(ZygoteDeath, IsToldOfAWorkerThatHasEnded) {
  constexpr const char* kBytes = "300000000";
  auto launcher = Launcher::create(options(StartMethod::kForkserver));
  auto worker = start(*launcher, spec("hold", kBytes));
  ASSERT_EQ(recv_text(worker->channel()), "ready");
  const os::PidFd pidfd = os::PidFd::open(worker->pid());
  ::kill(launcher->zygote_pid(), SIGKILL);
  ASSERT_TRUE(worker->join(kLong));
  EXPECT_TRUE(pidfd.ended());
}

TEST(ZygoteDeath, BeforeItIsReadyIsStartFailedWithItsLastLines) {
  LaunchOptions wrong = options(StartMethod::kForkserver);
  wrong.interpreter = {"/bin/sh", "-c", "echo some words; exit 3"};
  auto launcher = Launcher::create(std::move(wrong));
  try {
    start(*launcher, spec("exit", "0"));
    FAIL() << "a program that only exits started a worker";
  } catch (const StartFailed& error) {
    EXPECT_THAT(error.what(), HasSubstr("exit code 3"));
    EXPECT_THAT(error.what(), HasSubstr("some words"));
  }
}

TEST(ZygotePreload, AMissingPluginIsNamedByStart) {
  LaunchOptions with = options(StartMethod::kForkserver);
  with.preload = {"/nonexistent/plugin.so"};
  auto launcher = Launcher::create(std::move(with));
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      start(*launcher, spec("exit", "0"));
      FAIL() << "a missing plug-in was no error";
    } catch (const StartFailed& error) {
      EXPECT_THAT(error.what(), HasSubstr("/nonexistent/plugin.so"));
    }
  }
}

TEST(ZygotePreload, AMissingPluginOfASpawnedWorkerIsItsReport) {
  LaunchOptions with = options(StartMethod::kSpawn);
  with.preload = {"/nonexistent/plugin.so"};
  auto launcher = Launcher::create(std::move(with));
  const auto end = DeathCertificate::of(*start(*launcher, spec("exit", "0")), kLong);
  ASSERT_TRUE(end.report);
  EXPECT_THAT(end.report->message, HasSubstr("/nonexistent/plugin.so"));
  EXPECT_EQ(end.status, (ExitStatus{.code = 1}));
}

TEST(ZygotePreload, AThreadInAZygoteIsRefused) {
  LaunchOptions with = options(StartMethod::kForkserver);
  with.preload = {std::string(SHOAL_STAND_INS) + "/starts_thread.so"};
  auto launcher = Launcher::create(std::move(with));
  try {
    start(*launcher, spec("exit", "0"));
    FAIL() << "a zygote with two threads forked";
  } catch (const StartFailed& error) {
    EXPECT_THAT(error.what(), HasSubstr("one thread"));
  }
}

TEST(ZygoteStart, TakingTooLongIsTimedOutAndLeavesNothing) {
  LaunchOptions slow = options(StartMethod::kForkserver);
  slow.interpreter = {"/bin/sleep", "1000"};
  slow.start_timeout = std::chrono::milliseconds(50);
  auto launcher = Launcher::create(std::move(slow));
  EXPECT_THROW(start(*launcher, spec("exit", "0")), TimedOut);
}

/// Starts two workers in a child process and kills it; then they must end.
void kill_parent(StartMethod method, bool from_another_thread) {
  auto [ours, theirs] = Channel::pair();
  os::testing::Child parent([&] {
    ours.close();
    std::unique_ptr<Launcher> launcher;
    std::vector<std::unique_ptr<WorkerProcess>> workers;
    const auto start_both = [&] {
      LaunchOptions given = options(method);
      given.allow_unsafe_fork = from_another_thread;
      launcher = Launcher::create(std::move(given));
      std::vector<WorkerSpec> specs;
      specs.push_back(spec("sleep"));
      specs.push_back(spec("sleep"));
      workers = launcher->start(std::move(specs));
    };
    if (from_another_thread) {
      std::thread(start_both).join();
    } else {
      start_both();
    }
    for (auto& worker : workers) {
      if (recv_text(worker->channel()) != "ready") return 1;
      send_text(theirs, std::to_string(worker->pid()));
    }
    for (;;) ::pause();
  });
  theirs.close();
  std::vector<os::PidFd> workers;
  for (int i = 0; i < 2; ++i) {
    workers.push_back(os::PidFd::open(std::stoi(recv_text(ours))));
    EXPECT_FALSE(workers.back().ended());
  }
  parent.kill();
  for (const auto& worker : workers) EXPECT_TRUE(worker.wait(os::testing::test_deadline()));
}

class ParentDeath : public ::testing::TestWithParam<StartMethod> {};
INSTANTIATE_TEST_SUITE_P(Launcher, ParentDeath,
                         ::testing::Values(StartMethod::kFork, StartMethod::kForkserver,
                                           StartMethod::kSpawn),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(ParentDeath, TakesTheWorkersAlong) { kill_parent(GetParam(), false); }

TEST_P(ParentDeath, IsNotTheEndOfTheThreadThatStartedThem) { kill_parent(GetParam(), true); }

TEST_P(ParentDeath, AForkedChildsCopiesDoNotTouchTheWorkers) {
  auto launcher = Launcher::create(options(GetParam()));
  auto worker = start(*launcher, spec("echo"));
  send_text(worker->channel(), "before");
  EXPECT_EQ(recv_text(worker->channel()), "before");
  os::testing::Child child([&] {
    try {
      start(*launcher, spec("exit", "0"));
      return 1;
    } catch (const InvalidState&) {
      // as it should be
    }
    worker->kill(SIGKILL);
    worker.reset();
    launcher.reset();
    return 0;
  });
  EXPECT_EQ(child.join(), os::ProcessEnd{});
  send_text(worker->channel(), "after");
  EXPECT_EQ(recv_text(worker->channel()), "after");
  EXPECT_EQ(start(*launcher, spec("exit", "2"))->join(kLong), (ExitStatus{.code = 2}));
}

TEST(ChildStatus, StolenByAWaitForAllChildrenIsUnknownButTheEndIsSeen) {
  auto launcher = Launcher::create(options(StartMethod::kSpawn));
  auto worker = start(*launcher, spec("sleep"));
  EXPECT_EQ(recv_text(worker->channel()), "ready");
  std::signal(SIGCHLD, SIG_IGN);  // the kernel then throws the status away
  worker->kill(SIGKILL);
  const auto status = worker->join(kLong);
  std::signal(SIGCHLD, SIG_DFL);
  ASSERT_TRUE(status);
  EXPECT_FALSE(status->known);
}

}  // namespace
}  // namespace shoal::process
