#include "shoal/process/zygote/zygotes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <memory>
#include <thread>

#include "shoal/os/process/pidfd.h"
#include "shoal/process/launcher.h"
#include "shoal/process/testing/entries.h"

namespace shoal::process {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::options;
using testing::recv_text;
using testing::spec;

constexpr std::chrono::seconds kLong{30};
constexpr std::chrono::hours kNever{1000};

Zygotes::Use idle_since(std::chrono::seconds then, bool has_had_workers = true) {
  return {.workers = 0,
          .has_had_workers = has_had_workers,
          .idle_since = os::Deadline(std::chrono::hours(1) + then)};
}

/// Zygotes that only note what they are asked for.
class ZygotesTest : public ::testing::Test {
 protected:
  std::uint64_t add(int pid) {
    return zygotes_.add({.pid = pid, .preload = {}, .started = {}},
                        [this, pid](bool end) { (end ? ended_ : reviewed_).push_back(pid); });
  }
  Zygotes zygotes_{{.idle = 2, .idle_time = kNever}};
  std::vector<int> ended_;
  std::vector<int> reviewed_;
};

TEST_F(ZygotesTest, OfMoreThanTheLimitTheLongestIdleIsAskedToEndOnce) {
  const auto a = add(1), b = add(2), c = add(3), d = add(4);
  zygotes_.update(a, idle_since(20s));
  zygotes_.update(b, idle_since(10s));
  EXPECT_THAT(ended_, IsEmpty());
  zygotes_.update(c, idle_since(30s));
  EXPECT_THAT(ended_, ElementsAre(2));
  zygotes_.update(c, idle_since(30s));
  EXPECT_THAT(ended_, ElementsAre(2));
  zygotes_.remove(b);
  zygotes_.update(d, idle_since(40s));
  EXPECT_THAT(ended_, ElementsAre(2, 1));
}

TEST_F(ZygotesTest, OneThatWorksOrHasNotWorkedYetIsNotCounted) {
  const auto a = add(1), b = add(2), c = add(3), d = add(4);
  zygotes_.update(a, {.workers = 3, .has_had_workers = true});
  zygotes_.update(b, idle_since(0s, false));
  zygotes_.update(c, idle_since(10s));
  zygotes_.update(d, idle_since(20s));
  EXPECT_THAT(ended_, IsEmpty());
  zygotes_.update(a, idle_since(30s));
  EXPECT_THAT(ended_, ElementsAre(3));
}

TEST_F(ZygotesTest, OneThatTookAWorkerInsteadOfEndingIsAskedAgainWhenItIsIdle) {
  const auto a = add(1);
  zygotes_.set_limits({.idle = 0, .idle_time = kNever});
  zygotes_.update(a, idle_since(1s));
  zygotes_.update(a, {.workers = 1, .has_had_workers = true});
  zygotes_.update(a, idle_since(2s));
  EXPECT_THAT(ended_, ElementsAre(1, 1));
}

TEST_F(ZygotesTest, LimitsHoldForThoseThatAreIdleAlready) {
  const auto a = add(1), b = add(2);
  zygotes_.update(a, idle_since(2s));
  zygotes_.update(b, idle_since(1s));
  zygotes_.set_limits({.idle = 1, .idle_time = 1ms});
  EXPECT_THAT(reviewed_, ElementsAre(1, 2));  // each looks at its time by itself
  EXPECT_THAT(ended_, ElementsAre(2));
}

LaunchOptions with(const std::shared_ptr<Zygotes>& zygotes) {
  LaunchOptions shared = options(StartMethod::kForkserver);
  shared.zygotes = zygotes;
  return shared;
}

std::unique_ptr<WorkerProcess> start(Launcher& launcher, WorkerSpec one) {
  std::vector<WorkerSpec> specs;
  specs.push_back(std::move(one));
  return std::move(launcher.start(std::move(specs)).front());
}

/// Waits for the end of the process that is now the launcher's zygote.
class AwaitZygote {
 public:
  explicit AwaitZygote(const Launcher& launcher)
      : pid_(launcher.zygote_pid()), pidfd_(os::PidFd::open(pid_)) {}
  int pid() const { return pid_; }
  bool ended() const { return pidfd_.wait(os::deadline_after(kLong)); }

 private:
  int pid_;
  os::PidFd pidfd_;
};

/// What it lists when that is so: a zygote is looked at a moment after a worker was started or has
/// ended.
template <class Condition>
Zygotes::Entry entry_when(const Zygotes& zygotes, int pid, Condition condition) {
  for (;; std::this_thread::yield()) {
    for (const Zygotes::Entry& entry : zygotes.list()) {
      if (entry.pid == pid && condition(entry.use)) return entry;
    }
  }
}

TEST(IdleZygote, EndsByTheLimitOfTimeAndIsFollowedByAnotherWhenItIsNeeded) {
  const auto zygotes = std::make_shared<Zygotes>(Zygotes::Limits{.idle = 9, .idle_time = 0ms});
  auto launcher = Launcher::create(with(zygotes));
  for (int round = 0; round < 3; ++round) {
    auto worker = start(*launcher, spec("sleep"));
    const AwaitZygote zygote(*launcher);
    EXPECT_EQ(recv_text(worker->channel()), "ready");
    ASSERT_EQ(zygotes->list().size(), 1U);
    EXPECT_EQ(zygotes->list()[0].pid, zygote.pid());
    worker.reset();
    EXPECT_TRUE(zygote.ended());
  }
  EXPECT_THAT(zygotes->list(), IsEmpty());
}

TEST(IdleZygote, EndsByTheLimitOfNumber) {
  const auto zygotes = std::make_shared<Zygotes>(Zygotes::Limits{.idle = 1, .idle_time = kNever});
  auto first = Launcher::create(with(zygotes));
  auto second = Launcher::create(with(zygotes));
  auto one = start(*first, spec("sleep"));
  auto two = start(*second, spec("sleep"));
  const AwaitZygote of_first(*first);
  one.reset();
  entry_when(*zygotes, of_first.pid(), [](const auto& use) { return use.idle_since.has_value(); });
  two.reset();
  EXPECT_TRUE(of_first.ended());
  EXPECT_GT(second->zygote_pid(), 0);
  EXPECT_EQ(start(*first, spec("exit", "3"))->join(kLong), (ExitStatus{.code = 3}));
}

TEST(IdleZygote, StaysWhileItHasAWorkerAndUntilItHasHadOne) {
  const auto zygotes = std::make_shared<Zygotes>(Zygotes::Limits{.idle = 0, .idle_time = 0ms});
  auto launcher = Launcher::create(with(zygotes));
  const int zygote = launcher->zygote_pid();
  auto worker = start(*launcher, spec("sleep"));
  EXPECT_EQ(recv_text(worker->channel()), "ready");
  EXPECT_EQ(start(*launcher, spec("exit", "3"))->join(kLong), (ExitStatus{.code = 3}));
  EXPECT_EQ(launcher->zygote_pid(), zygote);
  zygotes->set_limits({.idle = 0, .idle_time = 0ms});
  EXPECT_EQ(start(*launcher, spec("exit", "4"))->join(kLong), (ExitStatus{.code = 4}));
  EXPECT_EQ(launcher->zygote_pid(), zygote);
  EXPECT_FALSE(worker->exit_status());
  const auto entry = entry_when(*zygotes, zygote, [](const auto& use) { return use.workers == 1; });
  EXPECT_FALSE(entry.use.idle_since);
}

// A start and the end of the zygote that it wants may meet at any point.
TEST(IdleZygote, ThatEndsFailsNoStart) {
  const auto zygotes = std::make_shared<Zygotes>(Zygotes::Limits{.idle = 0, .idle_time = 0ms});
  auto launcher = Launcher::create(with(zygotes));
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(start(*launcher, spec("exit", "5"))->join(kLong), (ExitStatus{.code = 5}));
  }
  launcher.reset();
  siginfo_t info{};  // of zygotes that are on their way out
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) std::this_thread::yield();
}

TEST(IdleZygote, OfALauncherWithoutLimitsStays) {
  auto launcher = Launcher::create(options(StartMethod::kForkserver));
  const int zygote = launcher->zygote_pid();
  for (int round = 0; round < 3; ++round) start(*launcher, spec("exit", "0"))->join(kLong);
  EXPECT_EQ(launcher->zygote_pid(), zygote);
}

TEST(IdleZygote, ThatWasKilledIsNotListed) {
  const auto zygotes = std::make_shared<Zygotes>(Zygotes::Limits{.idle = 1, .idle_time = kNever});
  auto launcher = Launcher::create(with(zygotes));
  auto worker = start(*launcher, spec("sleep"));
  EXPECT_EQ(recv_text(worker->channel()), "ready");
  ::kill(launcher->zygote_pid(), SIGKILL);
  ASSERT_TRUE(worker->join(kLong));
  EXPECT_THAT(zygotes->list(), IsEmpty());
}

}  // namespace
}  // namespace shoal::process
