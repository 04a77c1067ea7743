// Many workers of one zygote: what they cost their parent, and that none is in another's way.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "shoal/os/error.h"
#include "shoal/os/socket/mailbox.h"
#include "shoal/os/testing/child.h"
#include "shoal/process/launcher.h"
#include "shoal/process/testing/entries.h"
#include "shoal/process/worker_died.h"

namespace shoal::process {
namespace {

using ::testing::HasSubstr;
using testing::options;
using testing::recv_text;
using testing::send_text;
using testing::spec;
using Workers = std::vector<std::unique_ptr<WorkerProcess>>;

constexpr std::chrono::seconds kLong{30};

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator list("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(list), end(list)));
}

void limit_descriptors(rlim_t count) {
  const rlimit limit{count, count};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

Workers start(Launcher& launcher, int count, const std::string& entry,
              const std::string& payload = {}) {
  std::vector<WorkerSpec> specs;
  for (int i = 0; i < count; ++i) {
    specs.push_back(spec(entry, payload));
    specs.back().index = i;
    specs.back().name = fmt::format("worker {}", i);
  }
  return launcher.start(std::move(specs));
}

std::set<int> children_of(int pid) {
  std::ifstream list(fmt::format("/proc/{0}/task/{0}/children", pid));
  std::set<int> pids;
  for (int child = 0; list >> child;) pids.insert(child);
  return pids;
}

TEST(ZygoteScale, WorkersCostTheirParentNoDescriptor) {
  auto launcher = Launcher::create(options(StartMethod::kForkserver));
  Workers one = start(*launcher, 1, "echo");
  const std::size_t before = open_descriptors();
  Workers many = start(*launcher, 30, "echo");
  EXPECT_EQ(open_descriptors(), before);
}

// 60 descriptors: a zygote has room for some twenty workers, so this takes several sub-zygotes.
TEST(ZygoteScale, ManyMoreWorkersThanDescriptors) {
  constexpr int kWorkers = 100;
  os::testing::Child child([] {
    limit_descriptors(60);
    auto launcher = Launcher::create(options(StartMethod::kForkserver));
    for (int round = 0; round < 2; ++round) {  // the second in the places of the first
      Workers workers = start(*launcher, kWorkers, "echo");
      if (children_of(launcher->zygote_pid()).size() >= kWorkers) return 2;  // no sub-zygotes?
      for (int i = 0; i < kWorkers; ++i) send_text(workers[i]->channel(), std::to_string(i));
      for (int i = 0; i < kWorkers; ++i) {
        if (recv_text(workers[i]->channel()) != std::to_string(i)) return 3;
      }
      workers[7]->kill(SIGKILL);
      if (workers[7]->join(kLong) != ExitStatus{.signal = SIGKILL}) return 4;
      for (auto& worker : workers) worker->channel().close();
      for (int i = 0; i < kWorkers; ++i) {
        if (i != 7 && workers[i]->join(kLong) != ExitStatus{}) return 5;
      }
    }
    return 0;
  });
  EXPECT_EQ(child.join(), os::ProcessEnd{});
}

TEST(ZygoteScale, TheEndOfASubZygoteIsTheEndOfAll) {
  os::testing::Child child([] {
    limit_descriptors(60);
    auto launcher = Launcher::create(options(StartMethod::kForkserver));
    Workers workers = start(*launcher, 50, "echo");
    std::set<int> own;
    for (const auto& worker : workers) own.insert(worker->pid());
    std::vector<os::PidFd> pidfds;
    for (const int pid : own) {
      if (pidfds.size() < 15) pidfds.push_back(os::PidFd::open(pid));
    }
    int sub_zygote = -1;
    for (const int pid : children_of(launcher->zygote_pid())) {
      if (!own.contains(pid)) sub_zygote = pid;
    }
    ::kill(sub_zygote, SIGKILL);
    for (auto& worker : workers) {
      const auto status = worker->join(kLong);
      if (!status || !status->zygote) return 2;
      if (status->zygote->sub_zygote != sub_zygote) return 6;
      if (status->zygote->status != ExitStatus{.signal = SIGKILL}) return 7;
      if (recv_text(worker->channel()) != "closed") return 3;
    }
    for (const auto& pidfd : pidfds) {
      if (!pidfd.wait(os::Clock::now())) return 4;  // told before it was so
    }
    return start(*launcher, 1, "exit", "5")[0]->join(kLong) == ExitStatus{.code = 5} ? 0 : 5;
  });
  EXPECT_EQ(child.join(), os::ProcessEnd{});
}

TEST(ZygoteScale, AWorkerThatTakesNothingIsInNobodysWay) {
  auto launcher = Launcher::create(options(StartMethod::kForkserver));
  Workers deaf = start(*launcher, 1, "sleep");
  Workers others = start(*launcher, 2, "echo");
  EXPECT_EQ(recv_text(deaf[0]->channel()), "ready");
  const std::string large(1'000'000, 'x');
  const auto bytes = std::as_bytes(std::span(large));
  for (int i = 0; i < os::MailboxSender::kMaxWaiting; ++i) {
    EXPECT_EQ(deaf[0]->channel().send(bytes), os::SendOutcome::kSent);
  }
  EXPECT_EQ(deaf[0]->channel().send(bytes, {}, os::deadline_after(std::chrono::milliseconds(20))),
            os::SendOutcome::kTimedOut);
  send_text(others[1]->channel(), large);
  EXPECT_EQ(recv_text(others[1]->channel()), large);
  std::jthread killer([&] { deaf[0]->kill(SIGKILL); });
  EXPECT_EQ(deaf[0]->channel().send(bytes), os::SendOutcome::kClosed);  // it waited for the dead
}

TEST(ZygoteScale, WhatAWorkerSendsAheadIsKeptInOrderAndBounded) {
  auto launcher = Launcher::create(options(StartMethod::kForkserver));
  Workers ahead = start(*launcher, 1, "send", "1000");
  Workers other = start(*launcher, 1, "echo");
  send_text(other[0]->channel(), "through");
  EXPECT_EQ(recv_text(other[0]->channel()), "through");
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(recv_text(ahead[0]->channel()), std::to_string(i));
}

TEST(ZygoteScale, NobodyHearsWhatWasMeantForAWorkerThatSatThereBefore) {
  auto launcher = Launcher::create(options(StartMethod::kForkserver));
  for (int i = 0; i < 20; ++i) {
    Workers workers = start(*launcher, 1, "sleep");
    EXPECT_EQ(recv_text(workers[0]->channel()), "ready");
    const std::string text = "never taken";
    EXPECT_EQ(workers[0]->channel().send(std::as_bytes(std::span(text))), os::SendOutcome::kSent);
    workers.clear();
    Workers next = start(*launcher, 1, "echo");
    send_text(next[0]->channel(), "fresh");
    EXPECT_EQ(recv_text(next[0]->channel()), "fresh");
  }
}

TEST(ZygoteScale, OutputOfManyKeepsItsTag) {
  auto launcher = Launcher::create(options(StartMethod::kForkserver));
  std::vector<WorkerSpec> specs;
  for (int i = 0; i < 20; ++i) specs.push_back(spec("print", fmt::format("out {0}\nerr {0}", i)));
  Workers workers = launcher->start(std::move(specs));
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(workers[i]->join(kLong), ExitStatus{});
    EXPECT_THAT(workers[i]->log_tail(), ::testing::UnorderedElementsAre(fmt::format("out {}", i),
                                                                        fmt::format("err {}", i)));
  }
}

TEST(ZygoteScale, ALimitTooLowForOneWorkerIsSaid) {
  os::testing::Child child([] {
    LaunchOptions narrow = options(StartMethod::kForkserver);
    narrow.interpreter = {"/bin/sh", "-c", "ulimit -n 18; exec \"$0\"", narrow.interpreter[0]};
    auto launcher = Launcher::create(std::move(narrow));
    try {
      start(*launcher, 1, "echo");
    } catch (const StartFailed& error) {
      return std::string_view(error.what()).find("ulimit -n") != std::string_view::npos ? 0 : 2;
    }
    return 1;
  });
  EXPECT_EQ(child.join(), os::ProcessEnd{});
}

class OwnChildren : public ::testing::TestWithParam<StartMethod> {};
INSTANTIATE_TEST_SUITE_P(ZygoteScale, OwnChildren,
                         ::testing::Values(StartMethod::kFork, StartMethod::kSpawn),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(OwnChildren, BeyondTheLimitAreRefusedBeforeAnyStarts) {
  os::testing::Child child([] {
    limit_descriptors(100);
    auto launcher = Launcher::create(options(GetParam()));
    try {
      start(*launcher, 40, "echo");
    } catch (const SystemError& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.error_number(), EMFILE);
      EXPECT_THAT(text, HasSubstr("forkserver"));
      EXPECT_THAT(text, HasSubstr("ulimit -n"));
      return children_of(::getpid()).empty() && !::testing::Test::HasFailure() ? 0 : 2;
    }
    return 1;
  });
  EXPECT_EQ(child.join(), os::ProcessEnd{});
}

}  // namespace
}  // namespace shoal::process
