#include "shoal/os/memory/memory_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

// Pages that this process had to ask the kernel for, while a model's batch would come and go.
long faults_of_ten_batches() {
  const auto faults = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  const auto batch = [] {
    std::vector<std::vector<char>> maps;
    for (int i = 0; i < 5; ++i) maps.emplace_back(3 << 20, 'x');
    return maps.back().back();
  };
  EXPECT_EQ(batch(), 'x');
  const long before = faults();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(batch(), 'x');
  return faults() - before;
}

TEST(MemoryUse, WhatIsFreedIsKeptOnRequest) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
  GTEST_SKIP() << "a sanitizer or another C library brings an allocator of its own";
#endif
  testing::Child child([] {
    keep_freed_memory();
    EXPECT_LT(faults_of_ten_batches(), 100);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(child.join(), ProcessEnd{});
  EXPECT_GT(faults_of_ten_batches(), 1000);  // what it is for
}

class OomWatchTest : public ::testing::Test {
 protected:
  OomWatchTest() {
    fs::create_directories(root_);
    write(root_ / "proc/vmstat", "nr_free_pages 10\noom_kill 4\nother 3\n");
    write(root_ / "proc/self/cgroup", "0::/runs/ours\n");
    write(root_ / "proc/self/mountinfo", "1 0 0:9 / /groups rw - cgroup2 cgroup2 rw\n");
    write(root_ / "groups/runs/memory.events", "oom 0\noom_kill 20\n");
    write(root_ / "groups/runs/memory.events.local", "oom 0\noom_kill 20\n");
    write(ours_ / "memory.events", "oom 9\noom_kill 9\n");
    write(ours_ / "memory.events.local", "oom 7\noom_kill 7\noom_group_kill 0\n");
  }
  ~OomWatchTest() override { fs::remove_all(root_); }

  const fs::path root_ =
      fs::temp_directory_path() / ("shoal_oom_watch_" + std::to_string(::getpid()));
  const fs::path ours_ = root_ / "groups/runs/ours";
};

TEST(MemoryUse, CountsOwnMemoryAndNotThatOfAProcessThatIsGone) {
  const MemoryUse before = memory_use(::getpid());
  std::vector<char> memory(64 << 20, 'x');
  const MemoryUse after = memory_use(::getpid());
  EXPECT_GE(after.own_bytes, before.own_bytes + (60u << 20)) << memory[5];
  EXPECT_LE(after.own_bytes, after.resident_bytes);
  EXPECT_EQ(memory_use(1 << 30).resident_bytes, 0U);
}

TEST_F(OomWatchTest, GivesEachKillOfThisGroupAsEvidenceOnce) {
  OomWatch watch(root_);
  EXPECT_FALSE(watch.evidence());
  write(ours_ / "memory.events.local", "oom 9\noom_kill 9\noom_group_kill 0\n");
  EXPECT_THAT(watch.evidence().value_or(""),
              HasSubstr("ours/memory.events.local rose from 7 to 9"));
  EXPECT_TRUE(watch.evidence());
  EXPECT_FALSE(watch.evidence());
}

TEST_F(OomWatchTest, WhatTheMachineAndOtherGroupsLostIsNoEvidence) {
  OomWatch watch(root_);
  write(root_ / "proc/vmstat", "nr_free_pages 10\noom_kill 5\nother 3\n");
  write(root_ / "groups/runs/memory.events", "oom 0\noom_kill 21\n");
  write(root_ / "groups/runs/memory.events.local", "oom 0\noom_kill 21\n");
  write(ours_ / "memory.events", "oom 9\noom_kill 10\n");  // of a group below it
  EXPECT_FALSE(watch.evidence());
}

TEST_F(OomWatchTest, AKernelThatCountsNoGroupByItselfTellsOfThoseBelowToo) {
  fs::remove(ours_ / "memory.events.local");
  OomWatch watch(root_);
  write(ours_ / "memory.events", "oom 9\noom_kill 10\n");
  EXPECT_THAT(watch.evidence().value_or(""), HasSubstr("memory.events rose from 9 to 10"));
}

TEST_F(OomWatchTest, AGroupOfVersion1HasItsOwnCount) {
  write(root_ / "proc/self/cgroup", "4:memory:/runs/ours\n0::/\n");
  write(root_ / "proc/self/mountinfo", "1 0 0:9 / /groups rw - cgroup cgroup rw,memory\n");
  write(ours_ / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  fs::remove(ours_ / "memory.events.local");
  fs::remove(ours_ / "memory.events");
  OomWatch watch(root_);
  write(ours_ / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_THAT(watch.evidence().value_or(""), HasSubstr("memory.oom_control rose from 1 to 2"));
}

TEST_F(OomWatchTest, AGroupThatCannotBeSeenHasNoCount) {
  write(root_ / "proc/self/cgroup", "0::/elsewhere/ours\n");
  write(root_ / "groups/memory.events", "oom 0\noom_kill 0\n");
  OomWatch watch(root_);
  write(root_ / "groups/memory.events", "oom 0\noom_kill 1\n");
  EXPECT_FALSE(watch.evidence());
}

TEST_F(OomWatchTest, WithoutAnyFileThereIsNoEvidence) {
  OomWatch watch(root_ / "nothing");
  EXPECT_FALSE(watch.evidence());
}

}  // namespace
}  // namespace shoal::os
