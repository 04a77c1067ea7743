// What only ThreadVectorEnv does; the rest is in vector_env_conformance_test.cc.
#include "shoal/vector/thread_vector_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>

namespace shoal::vector {
namespace {

using namespace std::chrono_literals;

// Remembers which thread stepped it, and can be made to wait for a gate or to work for a time.
class Probe final : public Stepper {
 public:
  explicit Probe(std::chrono::microseconds work) : work_(work) {
    hello_.observation_space = env::Discrete{.n = 2};
    hello_.action_space = env::Discrete{.n = 2};
  }
  const Hello& hello() const override { return hello_; }
  int count() const override { return 1; }
  void attach(const Rows&, int, EnvMarker) override {}
  void reset() override {}
  void step() override {
    threads.insert(std::this_thread::get_id());
    const auto end = os::Clock::now() + work_;
    while (os::Clock::now() < end || !gate.load()) {
    }
    if (fail) throw std::runtime_error("this lane fails");
  }
  std::vector<std::byte> request(std::span<const std::byte>) override { return {}; }

  std::set<std::thread::id> threads;
  std::atomic<bool> gate{true};
  bool fail = false;

 private:
  Hello hello_;
  std::chrono::microseconds work_;
};

struct Probes {
  explicit Probes(int count, std::chrono::microseconds work) {
    std::vector<std::unique_ptr<Stepper>> steppers;
    for (int i = 0; i < count; ++i) {
      auto probe = std::make_unique<Probe>(work);
      probes.push_back(probe.get());
      steppers.push_back(std::move(probe));
    }
    envs = std::make_unique<ThreadVectorEnv>(std::move(steppers), AutoresetMode::kNextStep);
    envs->reset(std::uint64_t{0});
  }
  std::vector<Probe*> probes;
  std::unique_ptr<ThreadVectorEnv> envs;
};

TEST(ThreadVectorEnv, TheCallerIsWorkerZeroAndEachLaneKeepsItsThread) {
  Probes p(3, 200us);
  for (int t = 0; t < 20; ++t) p.envs->step();
  EXPECT_THAT(p.probes[0]->threads, ::testing::ElementsAre(std::this_thread::get_id()));
  std::set<std::thread::id> all;
  for (const Probe* probe : p.probes) {
    EXPECT_EQ(probe->threads.size(), 1U);
    all.insert(probe->threads.begin(), probe->threads.end());
  }
  EXPECT_EQ(all.size(), 3U);
}

TEST(ThreadVectorEnv, ShortStepsAreLeftToTheCallerAlone) {
  Probes p(2, 0us);
  // The first step is shared, to learn what a step costs; a preempted one may teach that it is
  // dear, for a while.
  for (int t = 0; t < 10'000 && p.probes[1]->threads.count(std::this_thread::get_id()) == 0; ++t)
    p.envs->step();
  EXPECT_EQ(p.probes[1]->threads.count(std::this_thread::get_id()), 1U);
}

TEST(ThreadVectorEnv, ATimeoutLeavesTheStepUnderWay) {
  Probes p(2, 0us);
  p.probes[1]->gate = false;
  p.envs->step_async();
  EXPECT_THROW(p.envs->wait(5ms), TimedOut);
  EXPECT_THROW(p.envs->step_async(), InvalidState);
  p.probes[1]->gate = true;
  EXPECT_NO_THROW(p.envs->wait());
  EXPECT_EQ(p.envs->stats().workers[0].steps, 1U);  // the caller's share is not done twice
}

TEST(ThreadVectorEnv, CloseWaitsForAStepThatWasGivenUp) {
  Probes p(2, 0us);
  p.probes[1]->gate = false;
  p.envs->step_async();
  EXPECT_THROW(p.envs->wait(1ms), TimedOut);
  std::thread opener([&] { p.probes[1]->gate = true; });
  p.envs->close();
  opener.join();
}

TEST(ThreadVectorEnv, AFailureInAThreadIsThrownAsItIs) {
  Probes p(3, 50us);
  p.probes[2]->fail = true;
  p.envs->step_async();
  EXPECT_THROW(p.envs->wait(), std::runtime_error);
  EXPECT_THROW(p.envs->step_async(), InvalidState);
}

TEST(ThreadVectorEnv, ACopyInAForkedChildEndsQuietly) {
  Probes p(2, 0us);
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

}  // namespace
}  // namespace shoal::vector
