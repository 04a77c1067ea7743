// What every group promises, wherever its ranks are.
#include "shoal/group/group.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "shoal/group/pairwise_sum.h"
#include "shoal/group/testing/layouts.h"
#include "shoal/os/error.h"
#include "shoal/process/self/fork_hazards.h"

namespace shoal::group {
namespace {

using testing::Layout;
using testing::with_ranks;

class Groups : public ::testing::TestWithParam<Layout> {
 protected:
  int size() const { return std::accumulate(GetParam().begin(), GetParam().end(), 0); }
};

std::string layout_name(const ::testing::TestParamInfo<Layout>& info) {
  std::string name = "Hosts";
  for (const int ranks : info.param) name += fmt::format("_{}", ranks);
  return name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, Groups,
                         ::testing::Values(Layout{1}, Layout{2}, Layout{3}, Layout{4}, Layout{1, 1},
                                           Layout{1, 1, 1}, Layout{2, 2}, Layout{2, 1},
                                           Layout{1, 1, 1, 1, 1}),
                         layout_name);

/// A float whose sums depend on their order.
float element(int rank, std::size_t i) {
  return static_cast<float>((rank + 1) * 1'000 + static_cast<int>(i % 97)) / 3.0F;
}

TEST_P(Groups, SumsAreTheSameBitsEverywhereInTheOrderOfRanks) {
  // Of one slot, a shared sum, and some pieces.
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{9'155}, std::size_t{40'000}, std::size_t{200'000}}) {
    std::vector<std::vector<float>> parts;
    std::vector<const float*> pointers;
    for (int rank = 0; rank < size(); ++rank) {
      auto& part = parts.emplace_back();
      for (std::size_t i = 0; i < count; ++i) part.push_back(element(rank, i));
    }
    for (const auto& part : parts) pointers.push_back(part.data());
    std::vector<float> wanted(count);
    add_parts<float>(pointers, 0, count, wanted.data());
    std::mutex mutex;
    std::vector<std::vector<float>> sums;
    with_ranks(GetParam(), [&](Group& group) {
      auto mine = parts[static_cast<std::size_t>(group.rank())];
      std::vector<double> doubles{1.0, static_cast<double>(group.rank())};
      group.sum(mine, doubles);
      EXPECT_EQ(doubles,
                (std::vector<double>{static_cast<double>(size()), size() * (size() - 1) / 2.0}));
      if (group.adds_in_line()) {
        EXPECT_EQ(mine, wanted);
      }
      const std::lock_guard lock(mutex);
      sums.push_back(std::move(mine));
    });
    for (const auto& sum : sums) EXPECT_EQ(sum, sums.front());
  }
}

TEST_P(Groups, ManySumsInARowDoNotMix) {
  with_ranks(GetParam(), [&](Group& group) {
    std::vector<float> values(300);
    for (int round = 0; round < 200; ++round) {
      std::fill(values.begin(), values.end(), static_cast<float>(round + group.rank()));
      group.sum(values);
      const auto wanted = static_cast<float>(round * size() + size() * (size() - 1) / 2);
      for (const float value : values) ASSERT_EQ(value, wanted);
    }
  });
}

TEST_P(Groups, ABroadcastIsWhatRankZeroHas) {
  with_ranks(GetParam(), [&](Group& group) {
    std::vector<std::byte> bytes(700'000, static_cast<std::byte>(group.rank() + 1));
    group.broadcast(bytes);
    EXPECT_EQ(bytes, std::vector<std::byte>(bytes.size(), std::byte{1}));
    const std::string told = group.rank() == 0 ? "what rank 0 says" : "";
    const auto heard = group.broadcast_any(std::as_bytes(std::span(told)));
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(heard.data()), heard.size()),
              "what rank 0 says");
  });
}

TEST_P(Groups, RankZeroGathersWhatEachHasOfAnyLength) {
  with_ranks(GetParam(), [&](Group& group) {
    for (const std::size_t length : {std::size_t{0}, std::size_t{3}, std::size_t{600'000}}) {
      const std::vector<std::byte> mine(length * static_cast<std::size_t>(group.rank()),
                                        static_cast<std::byte>(group.rank()));
      const auto all = group.gather(mine);
      if (group.rank() != 0) {
        EXPECT_TRUE(all.empty());
        continue;
      }
      ASSERT_EQ(all.size(), static_cast<std::size_t>(size()));
      for (std::size_t rank = 0; rank < all.size(); ++rank)
        EXPECT_EQ(all[rank], std::vector<std::byte>(length * rank, static_cast<std::byte>(rank)));
    }
  });
}

TEST_P(Groups, AllGetWhatEachHasByRank) {
  with_ranks(GetParam(), [&](Group& group) {
    for (const std::size_t length : {std::size_t{0}, std::size_t{3}, std::size_t{300'000}}) {
      const auto all = group.gather_for_all(
          std::vector<std::byte>(length, static_cast<std::byte>(group.rank())));
      ASSERT_EQ(all.size(), length * static_cast<std::size_t>(size()));
      for (std::size_t i = 0; i < all.size(); ++i)
        ASSERT_EQ(all[i], static_cast<std::byte>(i / length));
    }
  });
}

TEST_P(Groups, NobodyPassesABarrierBeforeAllHaveCome) {
  std::atomic<int> came = 0;
  with_ranks(GetParam(), [&](Group& group) {
    for (int round = 1; round <= 20; ++round) {
      ++came;
      group.barrier();
      EXPECT_GE(came, round * size());
      group.barrier();
    }
  });
}

TEST_P(Groups, ARoundIsKnownEverywhereOnceEnoughAreThrough) {
  with_ranks(GetParam(), [&](Group& group) {
    if (group.size() == 1) return;
    for (const std::uint64_t round : {std::uint64_t{7}, std::uint64_t{8}}) {
      EXPECT_FALSE(group.enough(round));
      group.barrier();
      const int needed = round == 7 ? 1 : group.size();
      if (group.rank() == group.size() - 1 || needed > 1) group.arrive(round, needed);
      const auto deadline = os::deadline_after(std::chrono::seconds(30));
      while (!group.enough(round) && os::Clock::now() < deadline) std::this_thread::yield();
      EXPECT_TRUE(group.enough(round));
      group.barrier();
    }
  });
}

TEST_P(Groups, MembersAreKnownByRank) {
  with_ranks(GetParam(), [&](Group& group) {
    ASSERT_EQ(group.members().size(), static_cast<std::size_t>(size()));
    for (int rank = 0; rank < size(); ++rank) {
      const Member& member = group.members()[static_cast<std::size_t>(rank)];
      EXPECT_EQ(member.rank, rank);
      EXPECT_EQ(member.pid, ::getpid());
      EXPECT_FALSE(member.host.empty());
    }
  });
}

TEST_P(Groups, ForkIsRefusedWhileAGroupLives) {
  with_ranks(GetParam(), [&](Group& group) {
    const auto hazards = process::fork_hazards(false);
    const bool told = std::ranges::any_of(hazards, [](const std::string& hazard) {
      return hazard.find("of a group of") != std::string::npos;
    });
    EXPECT_EQ(told, group.size() > 1);
  });
  EXPECT_TRUE(process::fork_hazards(false).empty());
}

TEST(Group, HostsThatCannotReachEachOtherAddThroughRankZeroToTheSameBits) {
  constexpr std::size_t kCount = 50'000;
  const Layout layout{1, 1, 1};
  std::vector<std::vector<float>> sums(2);
  for (const bool star : {false, true})
    with_ranks(
        layout,
        [&](Group& group) {
          std::vector<float> mine;
          for (std::size_t i = 0; i < kCount; ++i) mine.push_back(element(group.rank(), i));
          group.sum(mine);
          const auto all = group.gather_for_all(
              std::vector<std::byte>(100, static_cast<std::byte>(group.rank())));
          EXPECT_EQ(all[250], std::byte{2});
          if (group.rank() == 1) sums[star ? 1 : 0] = std::move(mine);
        },
        star);
  EXPECT_EQ(sums[0], sums[1]);
}

void expect_left(Group& group, int rank) {
  try {
    group.barrier();
    FAIL() << "passed a barrier alone";
  } catch (const PeerLost& lost) {
    EXPECT_EQ(lost.member().rank, rank);
    EXPECT_NE(std::string(lost.what()).find("has left the group"), std::string::npos)
        << lost.what();
  }
}

TEST(Group, AnOperationOnWhatHasLeftIsAnErrorOfAllThatWait) {
  for (const Layout& layout : {Layout{2}, Layout{3}, Layout{1, 1}, Layout{2, 1}, Layout{1, 1, 1}}) {
    for (const bool stays : {false, true}) {  // as an object
      const auto launches = testing::launches(layout);
      const int last = static_cast<int>(launches.size()) - 1;
      std::shared_ptr<Group> left;
      std::vector<std::jthread> threads;
      for (const Launch& launch : launches)
        threads.emplace_back([&, launch] {
          auto group = Group::join(launch);
          group->barrier();
          if (launch.rank != last) return expect_left(*group, last);
          group->leave();
          if (stays) left = std::move(group);
        });
    }
  }
}

TEST(Group, WhoIsDoneMayLeaveWhileOthersGoOn) {
  for (const Layout& layout : {Layout{2, 1}, Layout{2, 2}, Layout{3, 1, 2}}) {
    const auto launches = testing::launches(layout);
    const std::vector<std::byte> mine(100);
    std::vector<std::jthread> threads;
    for (const Launch& launch : launches)
      threads.emplace_back([&, launch] {
        const auto group = Group::join(launch);
        group->barrier();
        if (launch.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
        const auto all =
            group->gather(mine);  // rank 0 waits for rank 1, the other hosts for nobody
        if (launch.rank == 0) {
          EXPECT_EQ(all.size(), launches.size());
        }
      });
  }
}

TEST(Group, WhoHasLeftCannotGoOn) {
  const auto group = Group::join(Launch::local(0, 1, "alone"));
  group->barrier();
  group->leave();
  group->leave();
  EXPECT_THROW(group->barrier(), InvalidState);
}

TEST(Group, OneThatFailsTellsTheOthersWhy) {
  for (const Layout& layout : {Layout{3}, Layout{1, 1, 1}, Layout{2, 1}}) {
    const auto launches = testing::launches(layout);
    std::vector<std::jthread> threads;
    for (const Launch& launch : launches)
      threads.emplace_back([launch] {
        const auto group = Group::join(launch);
        group->barrier();
        if (launch.rank == 2) return group->fail("the environment is broken");
        try {
          group->barrier();
          ADD_FAILURE() << "passed a barrier that rank 2 did not reach";
        } catch (const PeerLost& lost) {
          EXPECT_EQ(lost.member().rank, 2);
          EXPECT_NE(std::string(lost.what()).find("the environment is broken"), std::string::npos)
              << lost.what();
        }
      });
  }
}

TEST(Group, LinesOfHostsWithTheSamePowerOfTwoAddInLine) {
  const auto in_line = [](const Layout& layout) {
    std::atomic<bool> result = false;
    with_ranks(layout, [&](Group& group) { result = group.adds_in_line(); });
    return result.load();
  };
  EXPECT_TRUE(in_line({3}));
  EXPECT_TRUE(in_line({1, 1, 1}));
  EXPECT_TRUE(in_line({2, 2}));
  EXPECT_FALSE(in_line({2, 1}));
}

}  // namespace
}  // namespace shoal::group
