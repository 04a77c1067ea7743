#include "shoal/process/supervise/event_loop.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <future>
#include <stdexcept>
#include <vector>

#include "shoal/os/eventfd.h"
#include "shoal/process/self/own_thread.h"

namespace shoal::process {
namespace {

TEST(EventLoop, CallRunsInTheLoopsThreadAndReturnsAfterwards) {
  EventLoop loop;
  pthread_t thread{};
  loop.call([&] { thread = ::pthread_self(); });
  EXPECT_FALSE(::pthread_equal(thread, ::pthread_self()));
}

TEST(EventLoop, CallThrowsWhatTheTaskThrows) {
  EventLoop loop;
  EXPECT_THROW(loop.call([] { throw std::out_of_range("x"); }), std::out_of_range);
}

TEST(EventLoop, PostedHandlersRunInOrderAndAllBeforeTheEnd) {
  std::vector<int> order;
  {
    EventLoop loop;
    for (int i = 0; i < 100; ++i) loop.post([&order, i] { order.push_back(i); });
  }
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(EventLoop, RunsTheHandlerOfAReadyDescriptor) {
  EventLoop loop;
  os::EventFd event;
  std::promise<void> seen;
  loop.call([&] {
    loop.watch(event.fd(), POLLIN, [&] {
      event.clear();
      loop.unwatch(event.fd());
      seen.set_value();
    });
  });
  event.notify();
  seen.get_future().get();
}

TEST(EventLoop, AHandlerMayDropAnotherOneThatIsReadyToo) {
  EventLoop loop;
  os::EventFd first;
  os::EventFd second;
  int runs = 0;
  loop.call([&] {
    const auto drop_both = [&] {
      ++runs;
      loop.unwatch(first.fd());
      loop.unwatch(second.fd());
    };
    first.notify();
    second.notify();
    loop.watch(first.fd(), POLLIN, drop_both);
    loop.watch(second.fd(), POLLIN, drop_both);
  });
  std::promise<void> later;
  loop.call([&] { loop.after(std::chrono::milliseconds(1), [&] { later.set_value(); }); });
  later.get_future().get();
  loop.call([&] { EXPECT_EQ(runs, 1); });
}

TEST(EventLoop, TimersRunInTheOrderOfTheirTimes) {
  // Once more where this thread was kept from the CPU until the first was due.
  for (bool in_time = false; !in_time;) {
    EventLoop loop;
    std::vector<int> order;
    std::promise<void> done;
    loop.call([&] {
      const os::Deadline in_time_until = os::deadline_after(std::chrono::milliseconds(10));
      loop.after(std::chrono::milliseconds(20), [&] {
        order.push_back(2);
        done.set_value();
      });
      loop.after(std::chrono::milliseconds(1), [&] { order.push_back(1); });
      in_time = os::Clock::now() < in_time_until;
    });
    done.get_future().get();
    if (in_time) {
      EXPECT_EQ(order, (std::vector{1, 2}));
    }
  }
}

TEST(EventLoop, BlocksEverySignalThatCanBeBlocked) {
  EventLoop loop;
  sigset_t mask;
  loop.call([&] { ::pthread_sigmask(SIG_SETMASK, nullptr, &mask); });
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGPIPE, SIGUSR1}) {
    EXPECT_TRUE(::sigismember(&mask, signal)) << signal;
  }
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_FALSE(::sigismember(&mask, SIGINT));
}

TEST(EventLoop, ItsThreadDoesNotStandInTheWayOfFork) {
  const std::size_t before = foreign_threads().size();
  EventLoop loop;
  EXPECT_EQ(foreign_threads().size(), before);
}

}  // namespace
}  // namespace shoal::process
