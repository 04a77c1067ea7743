#include "shoal/vector/workers/spread_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

namespace shoal::vector {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

/// Plays rounds for so long; `cost_ns` is what one takes over so many CPUs.
class Rounds {
 public:
  explicit Rounds(SpreadPolicy& policy) : policy_(policy) {}

  void play(std::uint64_t ns, const std::function<std::uint64_t(int)>& cost_ns) {
    const std::uint64_t end = now_ns_ + ns;
    spent_ns_.clear();
    while (now_ns_ < end) {
      const int cpus = policy_.cpus();
      const std::uint64_t round = cost_ns(cpus);
      now_ns_ += round;
      spent_ns_[cpus] += round;
      const bool moved = policy_.record(now_ns_, round);
      ASSERT_EQ(moved, policy_.cpus() != cpus);
    }
  }
  /// The share of the time last played that was spent over so many.
  double share(int cpus) const {
    std::uint64_t all = 0;
    for (const auto& [count, ns] : spent_ns_) all += ns;
    const auto found = spent_ns_.find(cpus);
    return found == spent_ns_.end() ? 0
                                    : static_cast<double>(found->second) / static_cast<double>(all);
  }

 private:
  SpreadPolicy& policy_;
  std::uint64_t now_ns_ = kSecond;
  std::map<int, std::uint64_t> spent_ns_;
};

TEST(SpreadPolicy, BeginsWithACpuForEach) {
  EXPECT_EQ(SpreadPolicy(2).cpus(), 2);
  EXPECT_NE(SpreadPolicy(2).account().find("nothing else was tried"), std::string::npos);
}

TEST(SpreadPolicy, WithoutAChoiceItNeverMoves) {
  for (const int cpus : {0, 1}) {
    SpreadPolicy policy(cpus);
    Rounds(policy).play(10 * kSecond, [](int) { return 100'000; });
    EXPECT_EQ(policy.cpus(), cpus);
  }
}

TEST(SpreadPolicy, HandsOverWhereOneCpuIsFaster) {
  SpreadPolicy policy(2);
  Rounds rounds(policy);
  const auto halves = [](int cpus) { return cpus == 1 ? 170'000 : 230'000; };
  rounds.play(2 * kSecond, halves);
  rounds.play(100 * kSecond, halves);
  EXPECT_GT(rounds.share(1), 0.95);
  EXPECT_EQ(policy.account().find("1 CPU: a step took 170 us there, and with "), 0)
      << policy.account();
}

TEST(SpreadPolicy, GoesToTheCallerWhereWakingOthersTakesLong) {
  for (const int cpus : {2, 8}) {
    SpreadPolicy policy(cpus);
    Rounds rounds(policy);
    const auto crowd = [](int cpus) { return cpus == 0 ? 300'000 : 3'500'000; };
    rounds.play(4 * kSecond, crowd);
    rounds.play(100 * kSecond, crowd);
    EXPECT_GT(rounds.share(SpreadPolicy::kCallers), 0.9) << cpus;
    EXPECT_EQ(policy.account().find("the caller's CPU: a step took 300 us there"), 0);
  }
}

TEST(SpreadPolicy, KeepsACpuForEachWhereThatIsFasterOrTheSame) {
  for (const int one : {100'000, 130'000, 250'000}) {
    SpreadPolicy policy(2);
    Rounds rounds(policy);
    const auto cores = [&](int cpus) { return cpus == 2 ? 100'000 : one; };
    rounds.play(kSecond, cores);
    rounds.play(100 * kSecond, cores);
    EXPECT_GT(rounds.share(2), 0.97) << one;
  }
}

TEST(SpreadPolicy, ReturnsSoonWhenWhatItWasFasterForIsOver) {
  SpreadPolicy policy(2);
  Rounds rounds(policy);
  rounds.play(100 * kSecond, [](int cpus) { return cpus == 0 ? 300'000 : 3'000'000; });
  EXPECT_GT(rounds.share(SpreadPolicy::kCallers), 0.9);
  const auto quiet = [](int cpus) { return cpus == 2 ? 100'000 : 170'000; };
  rounds.play(3 * kSecond, quiet);
  rounds.play(2 * kSecond, quiet);
  EXPECT_GT(rounds.share(2), 0.8);
}

TEST(SpreadPolicy, LongRoundsAreNotPlayedWith) {
  SpreadPolicy policy(2);
  Rounds rounds(policy);
  rounds.play(60 * kSecond, [](int cpus) { return cpus == 2 ? 40'000'000 : 80'000'000; });
  EXPECT_EQ(rounds.share(2), 1.0);
}

TEST(SpreadPolicy, WhatIsFarSlowerIsLeftAtOnce) {
  SpreadPolicy policy(2);
  Rounds rounds(policy);
  rounds.play(10 * kSecond, [](int cpus) { return cpus == 2 ? 1'000'000 : 9'000'000; });
  EXPECT_GT(rounds.share(2), 0.93);
}

TEST(SpreadPolicy, FindsTheBestOfMany) {
  for (const int best : {1, 4, 16}) {
    SpreadPolicy policy(16);
    Rounds rounds(policy);
    const auto cost = [&](int cpus) {
      if (cpus == SpreadPolicy::kCallers) return 500'000;
      const int apart = std::max(best, cpus) / std::min(best, cpus);
      return 100'000 + 30'000 * (apart - 1);
    };
    rounds.play(100 * kSecond, cost);
    rounds.play(60 * kSecond, cost);
    EXPECT_GT(rounds.share(best), 0.9) << best;
  }
}

// As on a host whose other guests take a CPU for some hundredths of a second.
TEST(SpreadPolicy, ADisturbanceDoesNotDecide) {
  for (const std::uint64_t burst_ms : {20, 60, 150}) {
    SpreadPolicy policy(2);
    std::uint64_t at_ns = 0;
    const auto disturbed = [&](int cpus) -> std::uint64_t {
      const std::uint64_t phase = at_ns % 700'000'000;
      const bool taken = phase < burst_ms * 1'000'000;
      const std::uint64_t round = taken       ? (cpus == 2 ? 1'000'000 : 800'000)
                                  : cpus == 2 ? 400'000
                                              : 750'000;
      at_ns += round;
      return round;
    };
    Rounds rounds(policy);
    rounds.play(kSecond, disturbed);
    rounds.play(200 * kSecond, disturbed);
    EXPECT_GT(rounds.share(2), 0.95) << burst_ms;
  }
}

TEST(SpreadPolicy, ARareLongRoundDoesNotDecide) {
  SpreadPolicy policy(2);
  Rounds rounds(policy);
  int round = 0;
  const auto preempted = [&](int cpus) {
    return (cpus == 2 ? 100'000 : 150'000) + (++round % 97 == 0 ? 500'000 : 0);
  };
  rounds.play(kSecond, preempted);
  rounds.play(60 * kSecond, preempted);
  EXPECT_GT(rounds.share(2), 0.93);
}

}  // namespace
}  // namespace shoal::vector
