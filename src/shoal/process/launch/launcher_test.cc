// What holds for every start method.
#include "shoal/process/launcher.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <future>
#include <mutex>
#include <set>

#include "shoal/os/testing/child.h"
#include "shoal/process/error_report.h"
#include "shoal/process/testing/entries.h"
#include "shoal/process/worker_died.h"

namespace shoal::process {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::options;
using testing::recv_text;
using testing::send_text;
using testing::spec;

constexpr std::chrono::seconds kLong{30};

class EveryMethod : public ::testing::TestWithParam<StartMethod> {
 protected:
  std::unique_ptr<WorkerProcess> start(WorkerSpec one) {
    std::vector<WorkerSpec> specs;
    specs.push_back(std::move(one));
    return std::move(launcher_->start(std::move(specs)).front());
  }

  std::unique_ptr<Launcher> launcher_ = Launcher::create(options(GetParam()));
};

INSTANTIATE_TEST_SUITE_P(Launcher, EveryMethod,
                         ::testing::Values(StartMethod::kFork, StartMethod::kForkserver,
                                           StartMethod::kSpawn),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(EveryMethod, SaysWhichItIs) { EXPECT_EQ(launcher_->method(), GetParam()); }

TEST_P(EveryMethod, AWorkerTalksOverItsChannelAndEndsWhenItIsClosed) {
  auto worker = start(spec("echo"));
  send_text(worker->channel(), "hello");
  EXPECT_EQ(recv_text(worker->channel()), "hello");
  EXPECT_FALSE(worker->exit_status());
  worker->channel().close();
  EXPECT_EQ(worker->join(kLong), ExitStatus{});
  EXPECT_EQ(worker->exit_status(), ExitStatus{});
}

TEST_P(EveryMethod, AWorkerKnowsWhoItIs) {
  auto worker = start(spec("describe"));
  EXPECT_EQ(recv_text(worker->channel()), "worker 3\n3\n12\n4");
  EXPECT_EQ(worker->name(), "worker 3");
  EXPECT_EQ(worker->spec().first_env, 12);
  EXPECT_GT(worker->pid(), 0);
  EXPECT_NE(worker->pid(), ::getpid());
}

TEST_P(EveryMethod, LargePayloadsArrive) {
  const std::string large(3'000'000, 'p');
  auto worker = start(spec("throw", large));
  const auto end = DeathCertificate::of(*worker, kLong);
  ASSERT_TRUE(end.report);
  EXPECT_THAT(end.report->message, ::testing::StartsWith("ppp"));
}

TEST_P(EveryMethod, ExitCodesAndSignalsAreTold) {
  EXPECT_EQ(start(spec("exit", "0"))->join(kLong), (ExitStatus{.code = 0}));
  EXPECT_EQ(start(spec("exit", "37"))->join(kLong), (ExitStatus{.code = 37}));
  EXPECT_EQ(start(spec("signal", std::to_string(SIGSEGV)))->join(kLong),
            (ExitStatus{.signal = SIGSEGV}));
}

TEST_P(EveryMethod, TheEndOfAWorkerIsToldBeforeItsExitStatusIsThere) {
  std::atomic<int> ended = -1;
  LaunchOptions with = options(GetParam());
  with.on_worker_end = [&](int pid) { ended = pid; };
  launcher_ = Launcher::create(std::move(with));
  auto worker = start(spec("exit", "0"));
  ASSERT_TRUE(worker->join(kLong));
  EXPECT_EQ(ended, worker->pid());
}

TEST_P(EveryMethod, KillEndsAWorker) {
  auto worker = start(spec("sleep"));
  EXPECT_EQ(recv_text(worker->channel()), "ready");
  EXPECT_FALSE(worker->join(std::chrono::milliseconds(0)));
  worker->kill(SIGTERM);
  EXPECT_EQ(worker->join(kLong), (ExitStatus{.signal = SIGTERM}));
  worker->kill(SIGKILL);  // no error, and nobody else is hit
}

TEST_P(EveryMethod, CtrlCIsTheParentsAffair) {
  auto worker = start(spec("echo"));
  send_text(worker->channel(), "up");
  EXPECT_EQ(recv_text(worker->channel()), "up");
  worker->kill(SIGINT);
  send_text(worker->channel(), "still here");
  EXPECT_EQ(recv_text(worker->channel()), "still here");
}

TEST_P(EveryMethod, DestroyingAWorkerKillsIt) {
  auto worker = start(spec("sleep"));
  EXPECT_EQ(recv_text(worker->channel()), "ready");
  const auto process = os::PidFd::open(worker->pid());
  worker.reset();
  EXPECT_TRUE(process.wait(os::Clock::now()));
}

TEST_P(EveryMethod, AWorkerOutlivesItsLauncher) {
  auto worker = start(spec("echo"));
  launcher_.reset();
  send_text(worker->channel(), "alone");
  EXPECT_EQ(recv_text(worker->channel()), "alone");
  worker->channel().close();
  EXPECT_EQ(worker->join(kLong), ExitStatus{});
}

TEST_P(EveryMethod, AnExceptionComesAsAReportThenExitCodeOne) {
  auto worker = start(spec("throw", "no such room"));
  os::Message message;
  ASSERT_EQ(worker->channel().recv(message, os::testing::test_deadline()),
            os::RecvOutcome::kMessage);
  const auto report = ErrorReport::decode(message.bytes);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->type, "shoal::InvalidArgument");
  EXPECT_EQ(report->message, "no such room");
  EXPECT_EQ(worker->join(kLong), (ExitStatus{.code = 1}));
}

TEST_P(EveryMethod, AnUnknownEntryIsReportedWithThoseThereAre) {
  const auto end = DeathCertificate::of(*start(spec("dance")), kLong);
  ASSERT_TRUE(end.report);
  EXPECT_THAT(end.report->message, HasSubstr("'dance'"));
  EXPECT_THAT(end.report->message, HasSubstr("echo"));
}

TEST_P(EveryMethod, TheDeathCertificateHoldsReportStatusAndLastLines) {
  auto worker = start(spec("print", "out 1\nerr 2"));
  const auto printed = DeathCertificate::of(*worker, kLong);
  EXPECT_THAT(printed.log_tail, ::testing::UnorderedElementsAre("out 1", "err 2"));
  EXPECT_EQ(printed.status, ExitStatus{});
  EXPECT_EQ(printed.worker, "worker 3");
  EXPECT_EQ(printed.index, 3);
  EXPECT_EQ(printed.first_env, 12);
  EXPECT_EQ(printed.num_envs, 4);
  EXPECT_EQ(printed.pid, worker->pid());

  const auto threw = DeathCertificate::of(*start(spec("throw", "boom")), kLong);
  ASSERT_TRUE(threw.report);
  EXPECT_EQ(threw.report->message, "boom");
}

TEST_P(EveryMethod, KeepsTheLastHundredLines) {
  std::string lines;
  for (int i = 0; i < 250; ++i) lines += fmt::format("o{}\n", i);
  auto worker = start(spec("print", lines));
  ASSERT_TRUE(worker->join(kLong));
  const auto tail = worker->log_tail();
  ASSERT_EQ(tail.size(), 100u);
  EXPECT_EQ(tail.front(), "o150");
  EXPECT_EQ(tail.back(), "o249");
}

TEST_P(EveryMethod, NoAmountOfOutputStopsAWorker) {
  // Many times what a pipe holds, while nobody asks for it.
  auto worker = start(spec("write", "5000000"));
  EXPECT_EQ(worker->join(kLong), ExitStatus{});
  EXPECT_EQ(worker->log_tail().size(), 100u);
}

TEST_P(EveryMethod, OnExitNamesEachWorkerOnce) {
  std::vector<WorkerSpec> specs;
  for (int i = 0; i < 5; ++i) specs.push_back(spec("exit", "0"));
  std::mutex mutex;
  std::multiset<int> ended;
  std::promise<void> all;
  auto workers = launcher_->start(std::move(specs), [&](int index) {
    const std::lock_guard lock(mutex);
    ended.insert(index);
    if (ended.size() == 5) all.set_value();
  });
  ASSERT_EQ(all.get_future().wait_for(kLong), std::future_status::ready);
  EXPECT_THAT(ended, ElementsAre(0, 1, 2, 3, 4));
}

TEST_P(EveryMethod, OnExitIsNotCalledForADestroyedWorker) {
  std::atomic<int> calls{0};
  std::vector<WorkerSpec> specs;
  specs.push_back(spec("sleep"));
  auto workers = launcher_->start(std::move(specs), [&](int) { ++calls; });
  EXPECT_EQ(recv_text(workers[0]->channel()), "ready");
  workers.clear();
  launcher_.reset();
  EXPECT_EQ(calls, 0);
}

TEST_P(EveryMethod, ManyWorkersStartTogetherAndEachHasItsOwnChannel) {
  constexpr int kWorkers = 24;
  std::vector<WorkerSpec> specs;
  for (int i = 0; i < kWorkers; ++i) {
    specs.push_back(spec("describe"));
    specs.back().index = i;
    specs.back().name = fmt::format("worker {}", i);
  }
  auto workers = launcher_->start(std::move(specs));
  std::set<int> pids;
  for (int i = 0; i < kWorkers; ++i) {
    EXPECT_THAT(recv_text(workers[i]->channel()),
                ::testing::StartsWith(fmt::format("worker {}\n", i)));
    pids.insert(workers[i]->pid());
  }
  EXPECT_EQ(pids.size(), static_cast<std::size_t>(kWorkers));
  for (auto& worker : workers) worker->channel().close();
  for (auto& worker : workers) EXPECT_EQ(worker->join(kLong), ExitStatus{});
}

TEST_P(EveryMethod, StartsAgainAndAgain) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(start(spec("exit", std::to_string(i)))->join(kLong), (ExitStatus{.code = i}));
  }
}

TEST_P(EveryMethod, WorkersSeeACleanEnvironment) {
  const auto variable = [&](const std::string& name) {
    auto worker = start(spec("getenv", name));
    return recv_text(worker->channel());
  };
  EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES"), "");
  EXPECT_EQ(variable("OMP_NUM_THREADS"), "1");
}

TEST_P(EveryMethod, LaunchersVariablesDoNotReachWorkers) {
  ::setenv("OMPI_COMM_WORLD_RANK", "3", 1);
  ::setenv("SHOAL_TEST_KEPT", "yes", 1);
  launcher_ = Launcher::create(options(GetParam()));
  const auto rank = start(spec("getenv", "OMPI_COMM_WORLD_RANK"));
  EXPECT_EQ(recv_text(rank->channel()), "unset");
  const auto kept = start(spec("getenv", "SHOAL_TEST_KEPT"));
  EXPECT_EQ(recv_text(kept->channel()), "yes");
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  ::unsetenv("SHOAL_TEST_KEPT");
}

TEST_P(EveryMethod, OptionsSetVariables) {
  LaunchOptions with = options(GetParam());
  with.environment = {{"SHOAL_TEST_SET", "by options"}};
  with.threads = 4;
  with.hide_gpu = false;
  launcher_ = Launcher::create(std::move(with));
  const auto set = start(spec("getenv", "SHOAL_TEST_SET"));
  EXPECT_EQ(recv_text(set->channel()), "by options");
  const auto threads = start(spec("getenv", "MKL_NUM_THREADS"));
  EXPECT_EQ(recv_text(threads->channel()), "4");
}

TEST_P(EveryMethod, AWorkersInputIsEmptyAndItsOutputOurs) {
  const auto worker = start(spec("descriptors"));
  const std::string list = recv_text(worker->channel());
  EXPECT_THAT(list, HasSubstr("0 /dev/null\n"));
  EXPECT_THAT(list, HasSubstr("1 pipe:"));
  EXPECT_THAT(list, HasSubstr("2 pipe:"));
}

class EveryFreshMethod : public EveryMethod {};
INSTANTIATE_TEST_SUITE_P(Launcher, EveryFreshMethod,
                         ::testing::Values(StartMethod::kForkserver, StartMethod::kSpawn),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(EveryFreshMethod, NoDescriptorOfTheParentReachesAWorker) {
  const int inheritable = ::dup(STDERR_FILENO);  // as careless libraries leave them
  launcher_ = Launcher::create(options(GetParam()));
  const auto worker = start(spec("descriptors"));
  const std::string list = recv_text(worker->channel());
  // stdin, stdout, stderr and the channel: of a zygote's worker two descriptors, one shared by all.
  int own = GetParam() == StartMethod::kForkserver ? 5 : 4;
#ifdef __SANITIZE_THREAD__
  if (GetParam() == StartMethod::kSpawn) ++own;  // of the thread that watches its parent
#endif
  EXPECT_EQ(std::count(list.begin(), list.end(), '\n'), own) << list;
  ::close(inheritable);
}

TEST(Launcher, AZygoteStartedAheadOfTimeWaitsForItsBeginning) {
  LaunchOptions early = options(StartMethod::kForkserver);
  early.ahead = true;
  const auto launcher = Launcher::create(early);
  EXPECT_GT(launcher->zygote_pid(), 0);
  EXPECT_THROW(launcher->start({}), InvalidState);
  launcher->begin({}, {});
  EXPECT_THROW(launcher->begin({}, {}), InvalidState);
  std::vector<WorkerSpec> specs;
  specs.push_back(spec("echo"));
  const auto workers = launcher->start(std::move(specs));
  send_text(workers[0]->channel(), "hello");
  EXPECT_EQ(recv_text(workers[0]->channel()), "hello");
}

TEST(Launcher, AZygoteThatDiedBeforeItsBeginningIsReplaced) {
  LaunchOptions early = options(StartMethod::kForkserver);
  early.ahead = true;
  const auto launcher = Launcher::create(early);
  const int first = launcher->zygote_pid();
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  while (launcher->zygote_pid() == first) ::usleep(1000);
  launcher->begin({}, {});
  std::vector<WorkerSpec> specs;
  specs.push_back(spec("echo"));
  const auto workers = launcher->start(std::move(specs));
  EXPECT_NE(launcher->zygote_pid(), first);
}

TEST(Launcher, OnlyWhatWasStartedAheadOfTimeBegins) {
  const auto launcher = Launcher::create(options(StartMethod::kForkserver));
  EXPECT_THROW(launcher->begin({}, {}), InvalidState);
}

TEST(Launcher, AutoIsForkserver) {
  EXPECT_EQ(Launcher::create(options(StartMethod::kAuto))->method(), StartMethod::kForkserver);
}

TEST(Launcher, FreshMethodsNeedAProgram) {
  LaunchOptions without = options(StartMethod::kSpawn);
  without.interpreter.clear();
  EXPECT_THROW(Launcher::create(std::move(without)), InvalidArgument);
}

TEST(Launcher, AProgramThatDoesNotExistIsASystemError) {
  LaunchOptions wrong = options(StartMethod::kForkserver);
  wrong.interpreter = {"/nonexistent/program"};
  try {
    Launcher::create(std::move(wrong));
    FAIL() << "a program that does not exist was started";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENOENT);
    EXPECT_THAT(error.what(), HasSubstr("/nonexistent/program"));
  }
}

TEST(Launcher, OutputIsRelayedWithTheWorkersName) {
  os::testing::Child child([] {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0 || ::dup2(ends[1], STDOUT_FILENO) < 0) return 1;
    LaunchOptions relayed = options(StartMethod::kForkserver);
    relayed.relay_output = true;
    auto launcher = Launcher::create(std::move(relayed));
    std::vector<WorkerSpec> specs;
    specs.push_back(spec("print", "out and about"));
    auto workers = launcher->start(std::move(specs));
    workers[0]->join(kLong);
    std::array<char, 200> text{};
    const ssize_t count = ::read(ends[0], text.data(), text.size());
    return std::string(text.data(), static_cast<std::size_t>(count)) == "[worker 3] out and about\n"
               ? 0
               : 2;
  });
  EXPECT_EQ(child.join(), os::ProcessEnd{});
}

}  // namespace
}  // namespace shoal::process
