#include "shoal/learn/network/thread_team.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "shoal/os/limits/affinity.h"
#include "shoal/process/self/own_thread.h"

namespace shoal::learn {
namespace {

TEST(ThreadTeam, DoesEveryTaskOnce) {
  ThreadTeam team(3);
  for (const int tasks : {0, 1, 2, 7, 1000}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<int> done(static_cast<std::size_t>(tasks));
      team.run(tasks, [&](int task, int thread) {
        ++done[static_cast<std::size_t>(task)];
        EXPECT_TRUE(thread >= 0 && thread < 3);
      });
      EXPECT_EQ(done, std::vector<int>(static_cast<std::size_t>(tasks), 1));
    }
  }
}

TEST(ThreadTeam, NoTwoTasksAtATimeHaveTheSameThread) {
  ThreadTeam team(4);
  std::atomic<int> inside[4] = {};
  for (int round = 0; round < 200; ++round) {
    team.run(16, [&](int, int thread) {
      EXPECT_EQ(inside[thread].fetch_add(1), 0);
      inside[thread].fetch_sub(1);
    });
  }
}

TEST(ThreadTeam, ASecondThreadHelps) {
  ThreadTeam team(2);
  std::atomic<int> arrived{0};
  team.run(2, [&](int, int) {  // neither ends before both have begun
    arrived.fetch_add(1);
    while (arrived.load() < 2) ::usleep(10);
  });
  EXPECT_EQ(arrived.load(), 2);
}

TEST(ThreadTeam, ItsThreadsForbidNoFork) {
  ThreadTeam team(3);
  std::atomic<int> arrived{0};
  team.run(3, [&](int, int) {
    arrived.fetch_add(1);
    while (arrived.load() < 3) ::usleep(10);
  });
  EXPECT_EQ(process::own_threads().size(), 2U);
  EXPECT_TRUE(process::foreign_threads().empty());
}

TEST(ThreadTeam, InAForkedChildTheCallerDoesAll) {
  ThreadTeam team(2);
  team.run(8, [](int, int) {});
  const pid_t child = ::fork();
  if (child == 0) {
    int done = 0;
    team.run(8, [&](int, int thread) { done += thread == 0 ? 1 : 100; });
    ::_exit(done == 8 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ComputeThreads, AreTheVariablesOrTheCpus) {
  const char* before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before == nullptr ? "" : before;
  const int cpus = std::min(os::allowed_cpus(), ThreadTeam::kMaxThreads);
  const std::pair<const char*, int> cases[] = {
      {"3", 3}, {"2,4", 2}, {"1000", ThreadTeam::kMaxThreads}, {"0", cpus}, {"many", cpus}};
  for (const auto& [text, threads] : cases) {
    ::setenv("OMP_NUM_THREADS", text, 1);
    EXPECT_EQ(compute_threads(), threads) << text;
  }
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(compute_threads(), cpus);
  if (before != nullptr) ::setenv("OMP_NUM_THREADS", kept.c_str(), 1);
}

}  // namespace
}  // namespace shoal::learn
