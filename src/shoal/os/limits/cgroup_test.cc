// CPU quotas and memory limits, read from copies of the files that the kernel shows.
#include "shoal/os/limits/cgroup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <fstream>
#include <set>
#include <thread>

#include "shoal/os/error.h"
#include "shoal/os/limits/affinity.h"
#include "shoal/os/limits/limits.h"
#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A folder that stands for "/".
class CGroup : public ::testing::Test {
 protected:
  CGroup() {
    std::string pattern = (fs::temp_directory_path() / "shoal-cgroup-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~CGroup() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& content) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << content;
  }

  void mount_version2(const std::string& group, const std::string& shown = "/") {
    write("proc/self/mountinfo",
          "25 30 0:22 " + shown + " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
    write("proc/self/cgroup", "0::" + group + "\n");
  }

  void mount_version1(const std::string& group) {
    write("proc/self/mountinfo",
          "40 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
          "41 30 0:31 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
          "42 30 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    write("proc/self/cgroup", "4:memory:" + group + "\n3:cpu,cpuacct:" + group + "\n0::/\n");
  }

  fs::path root_;
};

TEST_F(CGroup, NoHierarchyNoLimits) {
  EXPECT_THAT(cgroup_directories("cpu", root_), IsEmpty());
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  EXPECT_EQ(available_memory(root_).bytes, UINT64_MAX);
}

TEST_F(CGroup, Version2TheTightestOfAllGroupsAboveCounts) {
  mount_version2("/box/job");
  write("sys/fs/cgroup/box/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/box/job/cpu.max", "max 100000\n");
  EXPECT_THAT(cgroup_directories("cpu", root_),
              ElementsAre(root_ / "sys/fs/cgroup/box/job", root_ / "sys/fs/cgroup/box",
                          root_ / "sys/fs/cgroup"));
  EXPECT_EQ(cpu_quota(root_), 1.5);
}

TEST_F(CGroup, Version2AContainerSeesItsGroupAtTheMountPoint) {
  // Not namespaced: the group's path is the host's, the mount shows this group only.
  mount_version2("/docker/abc", "/docker/abc");
  write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 0.5);
}

TEST_F(CGroup, Version1QuotaAndMinusOneForNone) {
  mount_version1("/job");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root_), 4.0);
}

TEST_F(CGroup, FreeMemoryCountsSwap) {
  write("proc/meminfo", "MemTotal: 100 kB\nMemAvailable:   50 kB\nSwapFree: 7 kB\n");
  const MemoryLimit limit = available_memory(root_);
  EXPECT_EQ(limit.bytes, 57u * 1024);
  EXPECT_THAT(limit.source, HasSubstr("/proc/meminfo"));
}

TEST_F(CGroup, Version2MemoryLeftCountsTheCacheAsFree) {
  write("proc/meminfo", "MemAvailable:   1000000 kB\n");
  mount_version2("/job");
  write("sys/fs/cgroup/job/memory.max", "1000000\n");
  write("sys/fs/cgroup/job/memory.current", "800000\n");
  write("sys/fs/cgroup/job/memory.stat", "anon 500000\ninactive_file 300000\n");
  const MemoryLimit limit = available_memory(root_);
  EXPECT_EQ(limit.bytes, 500'000u);
  EXPECT_THAT(limit.source, HasSubstr("memory.max of the control group"));
}

TEST_F(CGroup, Version2NoMemoryLimit) {
  write("proc/meminfo", "MemAvailable:   1 kB\n");
  mount_version2("/job");
  write("sys/fs/cgroup/job/memory.max", "max\n");
  write("sys/fs/cgroup/job/memory.current", "800000\n");
  EXPECT_EQ(available_memory(root_).bytes, 1024u);
}

TEST_F(CGroup, Version1MemoryUsedUpLeavesNothing) {
  mount_version1("/job");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "2000\n");
  write("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n");
  EXPECT_EQ(available_memory(root_).bytes, 0u);
}

TEST(Affinity, TheCpuSetIsTheKernels) {
  cpu_set_t set;
  ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  const std::vector<int> cpus = cpu_set();
  EXPECT_EQ(static_cast<int>(cpus.size()), CPU_COUNT(&set));
  for (const int cpu : cpus) EXPECT_TRUE(CPU_ISSET(cpu, &set));
}

TEST(Affinity, AConfinedProcessIsAllowedOneCpu) {
  testing::Child child([] {
    const std::vector<int> one = {cpu_set().back()};
    set_cpu_set(one);
    return cpu_set() == one && allowed_cpus() == 1 ? 0 : 1;
  });
  EXPECT_EQ(child.join(), ProcessEnd{});
}

TEST(Affinity, AnotherProcessIsConfinedByItsId) {
  testing::Child child([] {
    while (cpu_set().size() != 1) std::this_thread::yield();
    return 0;
  });
  const std::vector<int> one = {cpu_set().front()};
  set_cpu_set(one, child.pid());
  EXPECT_EQ(child.join(), ProcessEnd{});
  EXPECT_THROW(set_cpu_set(one, child.pid()), SystemError);  // it is gone
}

TEST(Affinity, NoUsableCpuThrows) {
  EXPECT_THROW(set_cpu_set({}), SystemError);
  EXPECT_THROW(set_cpu_set(std::vector<int>{-1}), SystemError);
  EXPECT_THROW(set_cpu_set(std::vector<int>{65'000}), SystemError);
}

TEST(Limits, TheFileSizeLimitIsTheKernels) {
  testing::Child child([] {
    const rlimit limit{12345, 12345};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    return max_file_bytes() == 12345 ? 0 : 1;
  });
  EXPECT_EQ(child.join(), ProcessEnd{});
}

TEST(Limits, ThisMachineHasSomeMemoryLeft) {
  const MemoryLimit limit = available_memory();
  EXPECT_GT(limit.bytes, 0u);
  EXPECT_LT(limit.bytes, UINT64_MAX);
  EXPECT_FALSE(limit.source.empty());
}

}  // namespace
}  // namespace shoal::os
