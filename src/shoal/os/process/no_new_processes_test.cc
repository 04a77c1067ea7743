#include "shoal/os/process/no_new_processes.h"

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>

#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

using testing::Child;

/// The exit code of a child that has forbidden itself new processes and then run `body`.
int code_of(const std::function<int()>& body) {
  Child child([&] {
    forbid_new_processes();
    return body();
  });
  const auto end = child.join();
  return end ? end->code : -1;
}

TEST(NoNewProcesses, AreAllowedUnlessForbidden) { EXPECT_FALSE(new_processes_forbidden()); }

TEST(NoNewProcesses, AreForbiddenForGoodAndTwiceIsOnce) {
  EXPECT_EQ(code_of([] {
              forbid_new_processes();
              return new_processes_forbidden() ? 7 : 0;
            }),
            7);
}

TEST(NoNewProcesses, ForkIsRefused) {
  EXPECT_EQ(code_of([] {
              const pid_t pid = ::fork();
              if (pid == 0) ::_exit(0);
              return pid == -1 && errno == EPERM ? 7 : 0;
            }),
            7);
}

TEST(NoNewProcesses, PosixSpawnIsRefused) {
  EXPECT_EQ(code_of([] {
              char name[] = "true";
              char* arguments[] = {name, nullptr};
              pid_t pid = 0;
              return ::posix_spawnp(&pid, name, nullptr, nullptr, arguments, nullptr) == EPERM ? 7
                                                                                               : 0;
            }),
            7);
}

TEST(NoNewProcesses, ThreadsAreStartedAllTheSame) {
  EXPECT_EQ(code_of([] {
              int result = 0;
              std::thread([&] { result = 7; }).join();
              return result;
            }),
            7);
}

TEST(NoNewProcesses, ThreadsThatWereThereAreBoundToo) {
  Child child([] {
    int result = 0;
    std::atomic<bool> go{false};
    std::thread other([&] {
      while (!go.load()) std::this_thread::yield();
      const pid_t pid = ::fork();
      if (pid == 0) ::_exit(0);
      result = pid == -1 && errno == EPERM ? 7 : 0;
    });
    forbid_new_processes();
    go.store(true);
    other.join();
    return result;
  });
  const auto end = child.join();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->code, 7);
}

}  // namespace
}  // namespace shoal::os
