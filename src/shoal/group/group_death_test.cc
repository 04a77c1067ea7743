// Ranks that are killed or stopped, as processes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "shoal/group/group.h"
#include "shoal/group/testing/layouts.h"
#include "shoal/os/error.h"
#include "shoal/os/fd.h"
#include "shoal/os/testing/child.h"

namespace shoal::group {
namespace {

using os::testing::Child;
using testing::Layout;

/// The ranks of a group as processes: all go through a barrier; then `last` sleeps, and the others
/// wait for it in the next operation. Their exit code says whether they learned that it is lost: 0.
class RanksAsProcesses {
 public:
  RanksAsProcesses(const Layout& layout, int last) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw SystemError("make a pipe");
    const os::Fd passed(ends[0]), passing(ends[1]);
    for (const Launch& launch : testing::launches(layout))
      ranks_.push_back(
          std::make_unique<Child>([&, launch] { return live(launch, last, passing.get()); }));
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      char byte = 0;
      EXPECT_EQ(::read(passed.get(), &byte, 1), 1);
    }
  }

  /// All are through the barrier.
  Child& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  void expect_that_others_learned(int last) {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      if (rank == last) continue;
      EXPECT_EQ((*this)[rank].join(), (os::ProcessEnd{.code = 0})) << "rank " << rank;
    }
  }

 private:
  static int live(const Launch& launch, int last, int passing) {
    const auto group = Group::join(launch, {.timeout = std::chrono::seconds(60)});
    group->barrier();
    if (::write(passing, "x", 1) != 1) return 3;
    if (launch.rank == last)
      for (;;) ::pause();
    const int pid = group->members()[static_cast<std::size_t>(last)].pid;
    try {
      std::array<float, 3> values{};
      group->sum(values);
      return 1;
    } catch (const PeerLost& lost) {
      if (lost.member().rank == last && lost.member().pid == pid) return 0;
      std::fprintf(stderr, "rank %d: %s\n", launch.rank, lost.what());
      return 2;
    }
  }

  std::vector<std::unique_ptr<Child>> ranks_;
};

class LostRank : public ::testing::TestWithParam<std::pair<Layout, int>> {};

INSTANTIATE_TEST_SUITE_P(Layouts, LostRank,
                         ::testing::Values(std::pair{Layout{3}, 1},        // among others of a host
                                           std::pair{Layout{3}, 0},        // the first of a host
                                           std::pair{Layout{1, 1, 1}, 2},  // on another host
                                           std::pair{Layout{1, 1, 1}, 0},  // rank 0
                                           std::pair{Layout{2, 2}, 3}, std::pair{Layout{2, 2}, 2}));

TEST_P(LostRank, KilledIsAnErrorThatNamesItOnAllOthers) {
  const auto& [layout, last] = GetParam();
  RanksAsProcesses ranks(layout, last);
  ranks[last].kill();
  ranks.expect_that_others_learned(last);
}

TEST(StoppedRank, IsAnErrorThatNamesItOnAllOthers) {
  RanksAsProcesses ranks({2, 2}, 3);
  ASSERT_TRUE(os::testing::stop(ranks[3].pid()));
  ranks.expect_that_others_learned(3);
}

}  // namespace
}  // namespace shoal::group
