// What only ThreadVectorEnv does; the rest is in vector_env_conformance_test.cc.
#include "shoal/vector/local/thread_vector_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "shoal/os/limits/affinity.h"
#include "shoal/os/log.h"
#include "shoal/os/memory/mapping.h"
#include "shoal/os/testing/child.h"

namespace shoal::vector {
namespace {

using namespace std::chrono_literals;

// `count` environments that remember who stepped them, take a time, and can be held at a gate or
// made to fail.
class Probe final : public Stepper {
 public:
  Probe(int count, std::chrono::microseconds work, bool divisible)
      : steps(static_cast<std::size_t>(count)), work_(work), divisible_(divisible) {
    hello_.observation_space = env::Discrete{.n = 2};
    hello_.action_space = env::Discrete{.n = 2};
  }
  const Hello& hello() const override { return hello_; }
  int count() const override { return static_cast<int>(steps.size()); }
  void attach(const Rows&, int, EnvMarker) override {}
  bool divisible() const override { return divisible_; }
  void reset_range(int, int) override {}
  void step_range(int lo, int hi) override {
    if (std::this_thread::get_id() != caller) {
      helped.store(true);
      while (!gate.load()) std::this_thread::yield();
    } else if (caller_waits) {
      while (!helped.load()) std::this_thread::yield();
    }
    for (int i = lo; i < hi; ++i) {
      const auto end = os::Clock::now() + work_;
      while (os::Clock::now() < end) {
      }
      if (i >= fail_from) throw std::runtime_error("environment " + std::to_string(i) + " fails");
      ++steps[static_cast<std::size_t>(i)];
      ++total;
    }
  }
  std::vector<std::byte> request(std::span<const std::byte> message) override {
    return {message.begin(), message.end()};
  }

  std::vector<int> steps;  // of each environment
  std::atomic<int> total{0};
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> helped{false};  // another thread has begun something
  std::atomic<bool> gate{true};     // where other threads wait
  bool caller_waits = false;        // until another thread has begun something
  int fail_from = 1 << 30;

 private:
  Hello hello_;
  std::chrono::microseconds work_;
  bool divisible_;
};

struct Envs {
  Envs(int count, int threads, std::chrono::microseconds work) {
    auto owned = std::make_unique<Probe>(count, work, true);
    probe = owned.get();
    std::vector<std::unique_ptr<Stepper>> steppers;
    steppers.push_back(std::move(owned));
    envs =
        std::make_unique<ThreadVectorEnv>(std::move(steppers), AutoresetMode::kNextStep, threads);
    envs->reset(std::uint64_t{0});
  }
  Probe* probe;
  std::unique_ptr<ThreadVectorEnv> envs;
};

bool one_cpu() { return os::allowed_cpus() < 2; }

TEST(ThreadVectorEnv, EveryEnvironmentIsSteppedOnceAStepWhoeverDoesIt) {
  Envs e(100, 64, 3us);
  for (int t = 1; t <= 300; ++t) {
    e.envs->step();
    ASSERT_THAT(e.probe->steps, ::testing::Each(t));
  }
  EXPECT_EQ(e.envs->num_workers(), 64);
}

TEST(ThreadVectorEnv, LongStepsAreShared) {
  if (one_cpu()) GTEST_SKIP() << "there is one CPU";
  Envs e(8, 2, 500us);
  e.probe->caller_waits = true;
  for (int t = 0; t < 5; ++t) {
    e.probe->helped = false;
    e.envs->step();
    EXPECT_TRUE(e.probe->helped);
  }
}

TEST(ThreadVectorEnv, WhoRunsDryTakesFromTheOthers) {
  if (one_cpu()) GTEST_SKIP() << "there is one CPU";
  Envs e(8, 2, 100us);
  for (int t = 0; t < 3; ++t) e.envs->step();  // to learn what a step costs: now a chunk is one
  e.probe->caller_waits = true;
  e.probe->helped = false;
  e.probe->gate = false;
  e.envs->step_async();
  std::thread opener([&] {
    // The other thread is held with one chunk in hand; the caller must do all that is left.
    while (e.probe->total < 3 * 8 + 7) std::this_thread::yield();
    e.probe->gate = true;
  });
  e.envs->wait();
  opener.join();
  EXPECT_GE(e.envs->stats().workers[0].steals, 3U);
  EXPECT_THAT(e.probe->steps, ::testing::Each(4));
}

TEST(ThreadVectorEnv, ShortStepsAreLeftToTheCallerAlone) {
  Envs e(2, 2, 0us);
  e.probe->helped = true;
  // The first step is shared, to learn what a step costs; a preempted one may teach that it is
  // dear, for a while.
  for (int t = 0; t < 10'000 && e.probe->helped; ++t) {
    e.probe->helped = false;
    e.envs->step();
  }
  EXPECT_FALSE(e.probe->helped);
}

TEST(ThreadVectorEnv, SeveralSteppersAreEachSteppedByOneThread) {
  std::vector<std::unique_ptr<Stepper>> steppers;
  std::vector<Probe*> probes;
  for (const int count : {3, 2, 2}) {
    auto probe = std::make_unique<Probe>(count, 30us, false);
    probes.push_back(probe.get());
    steppers.push_back(std::move(probe));
  }
  ThreadVectorEnv envs(std::move(steppers), AutoresetMode::kNextStep);
  EXPECT_EQ(envs.num_workers(), 3);
  envs.reset(std::uint64_t{0});
  for (int t = 1; t <= 50; ++t) {
    envs.step();
    for (const Probe* probe : probes) EXPECT_THAT(probe->steps, ::testing::Each(t));
  }
}

TEST(ThreadVectorEnv, ATimeoutLeavesTheStepUnderWay) {
  if (one_cpu()) GTEST_SKIP() << "there is one CPU";
  Envs e(4, 2, 200us);
  e.probe->caller_waits = true;
  e.probe->gate = false;
  e.envs->step_async();
  EXPECT_THROW(e.envs->wait(5ms), TimedOut);
  EXPECT_THROW(e.envs->step_async(), InvalidState);
  e.probe->gate = true;
  EXPECT_NO_THROW(e.envs->wait());
  EXPECT_THAT(e.probe->steps, ::testing::Each(1));  // the caller's share is not done twice
  EXPECT_EQ(e.envs->stats().workers[0].steps, 1U);
}

TEST(ThreadVectorEnv, CloseWaitsForAStepThatWasGivenUp) {
  if (one_cpu()) GTEST_SKIP() << "there is one CPU";
  Envs e(4, 2, 200us);
  e.probe->caller_waits = true;
  e.probe->gate = false;
  e.envs->step_async();
  EXPECT_THROW(e.envs->wait(1ms), TimedOut);
  std::thread opener([&] { e.probe->gate = true; });
  e.envs->close();
  opener.join();
}

TEST(ThreadVectorEnv, CloseRightAfterStepAsync) {
  for (int t = 0; t < 20; ++t) {
    Envs e(16, 2, 50us);
    e.envs->step_async();
    e.envs->close();
  }
}

TEST(ThreadVectorEnv, TheFailureOfTheLowestEnvironmentIsThrownAsItIs) {
  Envs e(64, 3, 20us);
  e.envs->step();
  e.probe->fail_from = 10;
  e.envs->step_async();
  try {
    e.envs->wait();
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "environment 10 fails");
  }
  EXPECT_THROW(e.envs->step_async(), InvalidState);
}

TEST(ThreadVectorEnv, ARequestGoesToTheStepperOfTheWorkersFirstEnvironment) {
  Envs e(4, 2, 0us);
  const std::vector<std::byte> message{std::byte{7}};
  EXPECT_EQ(e.envs->request(1, message), message);
  EXPECT_THROW(e.envs->request(2, message), InvalidArgument);
  e.envs->step_async();
  EXPECT_THROW(e.envs->request(0, message), InvalidState);
  e.envs->wait();
}

TEST(ThreadVectorEnv, ACopyInAForkedChildEndsQuietly) {
  Envs p(2, 2, 0us);
  const pid_t child = ::fork();
  if (child == 0) {
    p.envs.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_NO_THROW(p.envs->step());
}

TEST(ThreadVectorEnv, ACopyInAForkedChildHasRowsOfItsOwn) {
  Envs p(2, 1, 0us);
  auto& action = p.envs->actions()[0].as<std::int64_t>()[0];
  action = 1;
  os::testing::Child child([&] {
    const bool is_copy = action == 1;
    action = 0;
    return is_copy ? 0 : 1;
  });
  EXPECT_EQ(child.join(), (os::ProcessEnd{.code = 0}));
  EXPECT_EQ(action, 1);
}

TEST(ThreadVectorEnv, WhereNoThreadCanBeStartedTheCallerStepsAll) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's memory has no limit";
#else
  os::testing::Child child([] {
    os::set_log_level(os::LogLevel::kOff);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    constexpr rlim_t kLessThanAStack = 1 << 20;
    const rlim_t room = pages * os::page_size() + kLessThanAStack;
    const rlimit limit{room, room};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) return 2;
    Envs e(64, 4, 20us);
    for (int t = 0; t < 20; ++t) e.envs->step();
    return std::ranges::all_of(e.probe->steps, [](int steps) { return steps == 20; }) ? 0 : 1;
  });
  EXPECT_EQ(child.join(), (os::ProcessEnd{.code = 0}));
#endif
}

}  // namespace
}  // namespace shoal::vector
