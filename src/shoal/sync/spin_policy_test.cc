#include "shoal/sync/spin_policy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "shoal/os/limits/affinity.h"
#include "shoal/os/testing/child.h"
#include "shoal/sync/spin_wait.h"

namespace shoal::sync {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

const SpinOptions kOptions{.cap = 400us, .group_size = 2};

/// A load that is never crowded: its file does not exist.
CpuLoad idle() { return CpuLoad(2, "/nonexistent"); }

SpinPolicy policy_with(SpinOptions options) { return SpinPolicy(options, idle(), 2); }

TEST(SpinPolicy, AWaiterMaySpinTwiceTheRecentGap) {
  SpinPolicy policy = policy_with(kOptions);
  for (int i = 0; i < 100; ++i) policy.record(50us, policy.budget(), true);
  EXPECT_GE(policy.budget(), 99us);
  EXPECT_LE(policy.budget(), 101us);
}

TEST(SpinPolicy, NeverSpinsLongerThanTheCap) {
  SpinPolicy policy = policy_with(kOptions);
  EXPECT_EQ(policy.budget(), 400us);
  for (int i = 0; i < 100; ++i) policy.record(350us, policy.budget(), true);
  EXPECT_EQ(policy.budget(), 400us);
}

TEST(SpinPolicy, NoCapNoSpin) {
  EXPECT_EQ(policy_with({.cap = 0ns, .group_size = 2}).budget(), 0ns);
}

TEST(SpinPolicy, AGroupLargerThanItsCpusDoesNotSpin) {
  EXPECT_EQ(policy_with({.cap = 400us, .group_size = 3}).budget(), 0ns);
  EXPECT_EQ(policy_with({.cap = 400us, .group_size = 2}).budget(), 400us);
}

/// Of `waits` waits of `gap`, how many spun.
int spins_in(SpinPolicy& policy, int waits, nanoseconds gap) {
  int spins = 0;
  for (int i = 0; i < waits; ++i) {
    const nanoseconds budget = policy.budget();
    if (budget > 0ns) ++spins;
    policy.record(gap, budget, budget > gap);
  }
  return spins;
}

TEST(SpinPolicy, SpinsThatDoNotPayBecomeRare) {
  SpinPolicy policy = policy_with(kOptions);
  spins_in(policy, 1000, 5ms);
  EXPECT_LE(spins_in(policy, 2560, 5ms), 12);
}

TEST(SpinPolicy, OneMissIsForgiven) {
  SpinPolicy policy = policy_with(kOptions);
  spins_in(policy, 100, 50us);
  policy.record(5ms, policy.budget(), false);
  EXPECT_GT(policy.budget(), 0ns);
}

TEST(SpinPolicy, SpinsAgainOnceTheyPay) {
  SpinPolicy policy = policy_with(kOptions);
  spins_in(policy, 1000, 5ms);
  spins_in(policy, 500, 20us);
  EXPECT_EQ(spins_in(policy, 100, 20us), 100);
}

TEST(SpinPolicy, SpinsBesideAThreadThatComputesBecomeRareWhereTheyAreAskedTo) {
  SpinOptions patient = kOptions;
  patient.patience = 30us;
  for (const SpinOptions& options : {patient, kOptions}) {
    SpinPolicy policy = policy_with(options);
    int spins = 0;
    for (int i = 0; i < 2000; ++i) {
      const nanoseconds budget = policy.budget();
      if (budget > 0ns) ++spins;
      policy.record(50us, budget, true, 31us);
    }
    if (options.patience == 30us)
      EXPECT_LE(spins, 20);
    else
      EXPECT_EQ(spins, 2000);
  }
  SpinPolicy policy = policy_with(patient);
  for (int i = 0; i < 100; ++i) policy.record(50us, policy.budget(), true, 29us);
  EXPECT_GT(policy.budget(), 0ns);
}

/// Two who answer each other, each in half a microsecond, but for one answer that takes `hiccup`;
/// waking either takes 60 µs. Returns how often either slept.
int sleeps_after(nanoseconds hiccup) {
  constexpr nanoseconds kAnswer = 500ns, kWake = 60us;
  SpinPolicy policies[] = {policy_with(kOptions), policy_with(kOptions)};
  nanoseconds since[] = {0ns, 0ns};  // when each began to wait
  nanoseconds sent = 0ns;            // the other's last answer
  int sleeps = 0;
  for (int i = 0; i < 20'000; ++i) {
    const int at = i % 2;
    const nanoseconds budget = policies[at].budget();
    const bool paid = sent - since[at] <= budget;
    if (!paid) ++sleeps;
    const nanoseconds now = paid ? sent : std::max(sent, since[at] + budget) + kWake;
    policies[at].record(now - since[at], budget, paid);
    sent = since[at] = now + (i == 10'000 ? hiccup : kAnswer);
  }
  return sleeps;
}

// A budget shorter than a wake-up would have each sleep through the other's wake-up, in turns.
TEST(SpinPolicy, TwoWhoAnswerEachOtherDoNotKeepPuttingEachOtherToSleep) {
  EXPECT_EQ(sleeps_after(500ns), 0);
  EXPECT_EQ(sleeps_after(5us), 0);
  EXPECT_EQ(sleeps_after(90us), 0);
  EXPECT_EQ(sleeps_after(1ms), 1);
}

/// A file that reads like /proc/loadavg.
class Load : public ::testing::Test {
 protected:
  Load() {
    std::string pattern = ::testing::TempDir() + "shoal-loadavg-XXXXXX";
    os::Fd fd(::mkstemp(pattern.data()));
    path_ = pattern;
  }
  ~Load() override { std::filesystem::remove(path_); }

  void set_runnable(const std::string& runnable) {
    std::ofstream(path_) << "0.10 0.20 0.30 " << runnable << "/345 6789\n";
  }

  /// Asks until a sample was taken often enough to settle, each asked at its own time.
  bool crowded_after_samples(CpuLoad& load) {
    bool crowded = false;
    for (std::uint64_t i = 1; i <= 40; ++i)
      crowded = load.crowded(++periods_ * CpuLoad::kSamplePeriodNs);
    return crowded;
  }

  std::filesystem::path path_;
  std::uint64_t periods_ = 0;
};

TEST_F(Load, IsCrowdedWhileMoreThreadsAreRunnableThanThereAreCpus) {
  CpuLoad load(2, path_);
  set_runnable("2");
  EXPECT_FALSE(crowded_after_samples(load));
  set_runnable("3");  // a caller that takes turns with two spinning workers
  EXPECT_FALSE(crowded_after_samples(load));
  set_runnable("4");
  EXPECT_TRUE(crowded_after_samples(load));
  set_runnable("1");
  EXPECT_FALSE(crowded_after_samples(load));
}

TEST_F(Load, OneBusySampleIsNoCrowd) {
  CpuLoad load(2, path_);
  set_runnable("2");
  ASSERT_FALSE(crowded_after_samples(load));
  set_runnable("6");
  EXPECT_FALSE(load.crowded(++periods_ * CpuLoad::kSamplePeriodNs));
}

TEST_F(Load, SamplesAtMostOnceAPeriod) {
  CpuLoad load(2, path_);
  set_runnable("100");
  EXPECT_TRUE(load.crowded(CpuLoad::kSamplePeriodNs));
  set_runnable("0");
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(load.crowded(CpuLoad::kSamplePeriodNs + 1));
}

TEST_F(Load, WhatCannotBeReadIsNoCrowd) {
  CpuLoad missing(2, "/nonexistent");
  EXPECT_FALSE(crowded_after_samples(missing));
  CpuLoad empty(2, path_);
  EXPECT_FALSE(crowded_after_samples(empty));
  set_runnable("many");
  EXPECT_FALSE(crowded_after_samples(empty));
}

TEST_F(Load, ACrowdStopsSpinning) {
  set_runnable("100");
  SpinPolicy policy(kOptions, CpuLoad(2, path_), 2);
  EXPECT_EQ(policy.budget(), 0ns);
}

TEST(CpuLoad, ThisMachineIsRead) {
  EXPECT_GE(CpuLoad::online_cpus(), 1);
  CpuLoad load(-1);  // more is runnable than that: this thread
  EXPECT_TRUE(load.crowded());
}

/// Records what it was told.
struct FakePolicy {
  nanoseconds allowed{};
  int asked = 0;
  nanoseconds gap{};
  bool paid = false;
  nanoseconds longest_turn{};

  nanoseconds budget() noexcept {
    ++asked;
    return allowed;
  }
  void record(nanoseconds g, nanoseconds, bool p, nanoseconds turn) noexcept {
    gap = g;
    paid = p;
    longest_turn = turn;
  }
};

TEST(SpinThenPark, WhatIsReadyCostsNoLookAtThePolicy) {
  FakePolicy policy;
  const auto outcome = spin_then_park(
      policy, os::kNoDeadline, [] { return true; }, [] { return WaitOutcome::kTimedOut; });
  EXPECT_EQ(outcome, WaitOutcome::kReady);
  EXPECT_EQ(policy.asked, 0);
}

TEST(SpinThenPark, WhatBecomesReadyWhileSpinningPaid) {
  FakePolicy policy{.allowed = 1h};
  int looks = 0;
  const auto outcome = spin_then_park(
      policy, os::kNoDeadline, [&] { return ++looks > 100; },
      [] { return WaitOutcome::kTimedOut; });
  EXPECT_EQ(outcome, WaitOutcome::kReady);
  EXPECT_TRUE(policy.paid);
  EXPECT_GT(policy.gap, 0ns);
}

TEST(SpinThenPark, TellsForHowLongAnotherThreadHadTheCpu) {
  const std::vector<int> cpus = os::cpu_set();
  const int one[] = {cpus.front()};
  os::testing::Child child([&] {
    os::set_cpu_set(one);
    std::atomic<bool> goes_on = true;
    std::thread computes([&] {
      while (goes_on.load(std::memory_order_relaxed)) {
      }
    });
    FakePolicy policy{.allowed = 1h};
    const auto begin = os::Clock::now();
    static_cast<void>(spin_then_park(
        policy, os::kNoDeadline, [&] { return os::Clock::now() - begin > 100ms; },
        [] { return WaitOutcome::kTimedOut; }));
    goes_on = false;
    computes.join();
    return policy.longest_turn > 100us ? 0 : 1;
  });
  const auto end = child.join();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 0);
}

TEST(SpinThenPark, ParksWhenTheBudgetIsSpent) {
  for (const nanoseconds allowed : {0ns, nanoseconds(100us)}) {
    FakePolicy policy{.allowed = allowed, .paid = true};
    const auto outcome = spin_then_park(
        policy, os::kNoDeadline, [] { return false; }, [] { return WaitOutcome::kInterrupted; });
    EXPECT_EQ(outcome, WaitOutcome::kInterrupted);
    EXPECT_FALSE(policy.paid);
    EXPECT_GE(policy.gap, allowed);
  }
}

TEST(SpinThenPark, NeverSpinsBeyondTheDeadline) {
  FakePolicy policy{.allowed = 1h};
  const auto outcome = spin_then_park(
      policy, os::deadline_after(1ms), [] { return false; }, [] { return WaitOutcome::kTimedOut; });
  EXPECT_EQ(outcome, WaitOutcome::kTimedOut);
}

}  // namespace
}  // namespace shoal::sync
