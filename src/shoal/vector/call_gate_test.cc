#include "shoal/vector/call_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "shoal/os/error.h"

namespace shoal::vector {
namespace {

using testing::HasSubstr;
using testing::Throws;

class CallGateTest : public testing::Test {
 protected:
  bool close() {
    return gate_.close([this] { ++closed_; },
                       [this](os::Deadline until) {
                         ++turns_;
                         gate_.await_leaving(until);
                       });
  }

  CallGate gate_;
  std::atomic<int> closed_ = 0;
  std::atomic<int> turns_ = 0;
};

TEST_F(CallGateTest, WhereNobodyIsInsideItIsClosedAtOnce) {
  {
    const CallGate::Inside inside(gate_);
  }
  EXPECT_TRUE(close());
  EXPECT_EQ(closed_, 1);
  EXPECT_TRUE(close()) << "and again";
  EXPECT_EQ(closed_, 2);
}

TEST_F(CallGateTest, WithinACallOfItsOwnItIsClosedAsThatLeaves) {
  {
    const CallGate::Inside inside(gate_);
    EXPECT_NO_THROW(CallGate::check());
    EXPECT_FALSE(close());
    EXPECT_EQ(closed_, 0);
    EXPECT_THAT(CallGate::check, Throws<InvalidState>());
  }
  EXPECT_EQ(closed_, 1);
  EXPECT_NO_THROW(CallGate::check());
}

TEST_F(CallGateTest, AnotherThreadsCallIsToldToEndAndWaitedFor) {
  std::atomic<bool> entered = false, ended = false;
  std::jthread caller([&] {
    const CallGate::Inside inside(gate_);
    entered = true;
    try {
      for (;;) {
        CallGate::check();
        std::this_thread::yield();
      }
    } catch (const InvalidState&) {
      EXPECT_EQ(closed_, 0);
      ended = true;
    }
  });
  while (!entered) std::this_thread::yield();
  EXPECT_TRUE(close());
  EXPECT_TRUE(ended);
  EXPECT_EQ(closed_, 1);
}

TEST_F(CallGateTest, OneCallIsInsideAtATime) {
  const CallGate::Inside inside(gate_);
  EXPECT_THAT([&] { CallGate::Inside another(gate_); },
              testing::ThrowsMessage<InvalidState>(HasSubstr("from within it")));
  std::jthread([&] {
    EXPECT_THAT([&] { CallGate::Inside another(gate_); },
                testing::ThrowsMessage<InvalidState>(HasSubstr("another thread")));
  });
  CallGate other;
  {
    const CallGate::Inside in_other(other);
  }
}

TEST_F(CallGateTest, AnInterruptedWaitForAnotherThreadClosesNothing) {
  const CallGate::Inside inside(gate_);
  std::jthread([&] {
    EXPECT_THROW(gate_.close([this] { ++closed_; },
                             [](os::Deadline) { throw std::runtime_error("Ctrl-C"); }),
                 std::runtime_error);
  });
  EXPECT_EQ(closed_, 0);
  EXPECT_NO_THROW(CallGate::check()) << "and the call goes on";
}

TEST_F(CallGateTest, WithinSeveralCallsEachMayBeClosed) {
  CallGate inner;
  const CallGate::Inside outside(gate_);
  const CallGate::Inside inside(inner);
  EXPECT_NO_THROW(CallGate::check());
  EXPECT_FALSE(close());
  EXPECT_THAT(CallGate::check, Throws<InvalidState>());
}

TEST_F(CallGateTest, ACloseThatWaitsComesBeforeAnyOtherCall) {
  std::atomic<bool> entered = false;
  std::jthread caller([&] {
    try {
      while (closed_ == 0) {  // calls without a gap
        const CallGate::Inside inside(gate_);
        entered = true;
      }
    } catch (const InvalidState& refused) {
      EXPECT_THAT(refused.what(), HasSubstr("another thread closes"));
    }
  });
  while (!entered) std::this_thread::yield();
  EXPECT_TRUE(close());
  caller.join();
  EXPECT_EQ(closed_, 1);
  EXPECT_NO_THROW(CallGate::Inside{gate_}) << "that they are closed, the environments say";
}

TEST_F(CallGateTest, AForkedChildWaitsForNobody) {
  std::atomic<bool> entered = false, leave = false;
  std::jthread caller([&] {
    const CallGate::Inside inside(gate_);
    entered = true;
    while (!leave) std::this_thread::yield();
  });
  while (!entered) std::this_thread::yield();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(close() && closed_ == 1 && turns_ == 0 ? 0 : 1);
  leave = true;
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CallGateTest, WhatACloseThrowsEndsTheClosingAlone) {
  EXPECT_THROW(gate_.close([] { throw std::runtime_error("an environment's"); }, {}),
               std::runtime_error);
  EXPECT_NO_THROW(CallGate::Inside{gate_});
}

}  // namespace
}  // namespace shoal::vector
