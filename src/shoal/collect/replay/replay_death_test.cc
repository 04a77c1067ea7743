// kill -9 of processes that write to a replay and sample from it, at every named point and at random
// moments: no sample is torn, and after repair() the priorities are those of the rows.
// SHOAL_CRASH_ROUNDS=1000 kills 1000 of 4 writers and 2 readers at random instead of 100.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "shoal/collect/replay/replay.h"
#include "shoal/os/error.h"
#include "shoal/os/fault_point.h"
#include "shoal/os/memory/memory_use.h"
#include "shoal/os/testing/child.h"

namespace shoal::collect {
namespace {

using os::testing::Child;
using os::testing::test_deadline;
using shm::DType;
using testing::IsEmpty;
using Word = sync::SystemAtomics::Word64;

constexpr int kWriters = 4;
constexpr int kReaders = 2;
constexpr int kTorn = 3;  // exit status

int kills_wanted() {
  const char* text = std::getenv("SHOAL_CRASH_ROUNDS");
  return std::max(100, text == nullptr ? 0 : std::atoi(text));
}

ReplaySpec the_spec(std::int64_t rows = 32) {
  return {.obs = {{DType::kF64, {9}}},
          .action = {DType::kF64, {2}},
          .columns = kWriters,
          .rows = rows,
          .prioritized = true};
}

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

/// Row `number` of a stream: every element of its observation, its action and its reward say so.
struct Numbered {
  std::array<double, 9> obs{};
  std::array<double, 2> action{};

  explicit Numbered(double number) {
    obs.fill(number);
    action.fill(number);
  }
  std::vector<shm::TensorView> views() {
    return {{reinterpret_cast<std::byte*>(obs.data()), 1, {DType::kF64, {9}}}};
  }
};

class ReplayCrash : public testing::Test {
 protected:
  Replay join() const { return Replay::attach(os::Fd(::dup(replay_.fd())), replay_.spec()); }
  Word& progress(int member) const { return progress_.at<Word>(0, 8)[member]; }

  /// Appends until it is killed, or `rows`; numbers go on from `first`.
  int write(int column, double first, int rows) const {
    Replay replay = join();
    Numbered start(first);
    replay.begin(column, start.views(), 0);
    for (int t = 0; t < rows; ++t) {
      Numbered row(first + t);
      Numbered next(first + t + 1);
      replay.step(column,
                  {.action = reinterpret_cast<const std::byte*>(row.action.data()),
                   .reward = static_cast<float>(first + t),
                   .terminated = t % 50 == 49},
                  next.views(), 0);
      progress(column).fetch_add(1, std::memory_order_relaxed);
    }
    return 0;
  }

  static bool is_torn(const ReplaySamples& samples, std::size_t k, int n_step) {
    std::array<double, 9> obs{}, next{};
    std::array<double, 2> action{};
    const auto row = static_cast<std::int64_t>(k);
    std::memcpy(obs.data(), samples.obs[0].row_data(row), sizeof obs);
    std::memcpy(next.data(), samples.next_obs[0].row_data(row), sizeof next);
    std::memcpy(action.data(), samples.action.row_data(row), sizeof action);
    for (const double x : obs)
      if (x != obs[0]) return true;
    for (const double x : next)
      if (x != obs[0] + samples.steps[k]) return true;
    for (int s = 0; s < samples.steps[k]; ++s)
      if (samples.rewards[k * static_cast<std::size_t>(n_step) + static_cast<std::size_t>(s)] !=
          static_cast<float>(obs[0] + s))
        return true;
    return action[0] != obs[0] || action[1] != obs[0];
  }

  /// Samples, and sets what it sampled, until it is killed, or `turns`.
  int read(int member, std::uint64_t seed, int turns) const {
    Replay replay = join();
    ReplaySamples samples;
    for (int turn = 0; turn < turns; ++turn) {
      const auto random = [&](std::uint32_t sample, std::uint32_t attempt) {
        return mixed(seed ^ (static_cast<std::uint64_t>(turn) << 40 | std::uint64_t{sample} << 20 |
                             attempt));
      };
      progress(member).fetch_add(1, std::memory_order_relaxed);
      if (!replay.sample({.samples = 16,
                          .n_step = 3,
                          .prioritized = turn % 2 == 0,
                          .beta = 0.5,
                          .random = random},
                         samples))
        continue;
      std::vector<double> priorities;
      for (std::size_t k = 0; k < samples.picks.size(); ++k) {
        if (is_torn(samples, k, 3)) return kTorn;
        priorities.push_back(static_cast<double>(1 + mixed(seed + k) % 1000) / 100.0);
      }
      replay.set_priorities(samples.picks, priorities);
    }
    return 0;
  }

  void expect_whole() {
    replay_.repair();
    ASSERT_THAT(replay_.check(), IsEmpty());
    ASSERT_EQ(read(kWriters + kReaders, 1, 20), 0);
  }

  Replay replay_ = Replay::create(the_spec());
  shm::Arena progress_ = shm::Arena::create("progress of members", 64);
};

TEST_F(ReplayCrash, AtEveryNamedPointAWriterIsKilledAndTheNextGoesOn) {
  ASSERT_EQ(write(0, 0, 40), 0);
  for (const char* point : {"replay.join.named", "replay.step.entered", "replay.step.removed",
                            "replay.step.written", "replay.step.weighted"}) {
    for (const std::uint64_t nth : {1, 2, 37}) {
      if (nth > 1 && std::string(point) == "replay.join.named") continue;
      Child writer([&] {
        os::arm_fault_point(point, nth);
        return write(0, 1000, 100);
      });
      const auto end = writer.join();
      ASSERT_TRUE(end && end->signal == SIGKILL) << point;
      expect_whole();
      ASSERT_EQ(write(0, 5000, 3), 0) << "as the next writer of the column";
      expect_whole();
    }
  }
}

TEST_F(ReplayCrash, AtEveryNamedPointOneThatChangesPrioritiesIsKilled) {
  for (int column = 0; column < kWriters; ++column) ASSERT_EQ(write(column, 0, 20), 0);
  for (const char* point : {"replay.priorities.found", "replay.priorities.set"}) {
    for (const std::uint64_t nth : {1, 40}) {
      Child reader([&] {
        os::arm_fault_point(point, nth);
        return read(5, 7, 100);
      });
      const auto end = reader.join();
      ASSERT_TRUE(end && end->signal == SIGKILL) << point;
      expect_whole();
    }
  }
}

TEST_F(ReplayCrash, AtEveryNamedPointOneThatRepairsIsKilledAndOthersDoNotWaitForEver) {
  ASSERT_EQ(write(0, 0, 20), 0);
  for (const char* point :
       {"replay.repair.closed", "replay.repair.buried", "replay.repair.rebuilt"}) {
    Child dead([&] {
      os::arm_fault_point("replay.step.removed");
      return write(0, 100, 10);
    });
    ASSERT_TRUE(dead.join());
    Child repairer([&] {
      Replay replay = join();
      os::arm_fault_point(point);
      replay.repair();
      return 0;
    });
    const auto end = repairer.join();
    ASSERT_TRUE(end && end->signal == SIGKILL) << point;
    Child writer([&] { return write(0, 1000, 10); });  // finds the gate closed
    const auto other = writer.join();
    ASSERT_TRUE(other && other->signal == 0 && other->code == 0) << point;
    ASSERT_THAT(replay_.check(), IsEmpty()) << "the writer has repaired it";
  }
}

TEST_F(ReplayCrash, OneThatIsStoppedInsideIsToldOfByName) {
  ASSERT_EQ(write(0, 0, 20), 0);
  Child stopped([&] {
    os::arm_fault_point("replay.step.removed", 1, SIGSTOP);
    return write(0, 100, 10);
  });
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(stopped.pid()), &info, WSTOPPED | WNOWAIT), 0);
  try {
    replay_.repair(std::chrono::milliseconds(1));
    FAIL() << "repaired beside a change";
  } catch (const InvalidState& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(stopped.pid())));
  }
  ::kill(stopped.pid(), SIGCONT);
  const auto end = stopped.join();
  ASSERT_TRUE(end && end->signal == 0);
  ASSERT_THAT(replay_.check(), IsEmpty()) << "nothing was lost";
}

TEST_F(ReplayCrash, AForkedChildsEndLeavesItsParentAMember) {
  Child forked([&] {
    Replay its(std::move(replay_));
    return 0;
  });
  const auto end = forked.join();
  ASSERT_TRUE(end && end->signal == 0 && end->code == 0);
  std::vector<Replay> others;
  const auto attach = [&] { others.push_back(join()); };
  for (std::size_t k = 1; k < Replay::kMostMembers; ++k) attach();
  EXPECT_THROW(attach(), InvalidState);
}

/// 4 writers and 2 readers, one after another of them killed in the middle of what it does.
TEST_F(ReplayCrash, AtRandomMomentsAmongWritersAndReaders) {
  std::mt19937 dice(1);
  constexpr int kForEver = 1'000'000'000;
  std::vector<std::unique_ptr<Child>> members(kWriters + kReaders);
  double next_number = 0;
  const auto start = [&](int member) {
    next_number += 1e6;
    const double first = next_number;
    const std::uint64_t seed = dice();
    members[static_cast<std::size_t>(member)] = std::make_unique<Child>([=, this] {
      return member < kWriters ? write(member, first, kForEver) : read(member, seed, kForEver);
    });
  };
  struct stat before{};
  ASSERT_EQ(::fstat(replay_.fd(), &before), 0);
  for (int member = 0; member < kWriters + kReaders; ++member) start(member);
  std::uint64_t own = 0;  // bytes of this process after the first kills
  for (int kill = 0; kill < kills_wanted(); ++kill) {
    const auto victim = static_cast<int>(dice() % (kWriters + kReaders));
    const std::uint64_t until = progress(victim).load(std::memory_order_relaxed) + 1 + dice() % 200;
    const auto deadline = test_deadline();
    while (progress(victim).load(std::memory_order_relaxed) < until) {
      ASSERT_LT(os::Clock::now(), deadline);
      std::this_thread::yield();
    }
    members[static_cast<std::size_t>(victim)]->kill();
    replay_.repair();  // while the others go on
    start(victim);
    if (kill == 20) own = os::memory_use(::getpid()).own_bytes;
  }
  for (auto& member : members) {
    EXPECT_FALSE(member->pidfd().ended()) << "it found a torn sample";
    member->kill();
  }
  expect_whole();
  struct stat after{};
  ASSERT_EQ(::fstat(replay_.fd(), &after), 0);
  EXPECT_EQ(after.st_blocks, before.st_blocks) << "the memory of the replay";
#ifndef __SANITIZE_ADDRESS__  // which keeps what is freed
  EXPECT_LT(os::memory_use(::getpid()).own_bytes, own + (1 << 20)) << "of who repairs it";
#endif
}

}  // namespace
}  // namespace shoal::collect
