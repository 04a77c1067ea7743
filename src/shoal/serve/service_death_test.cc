// kill -9 of clients and servers at every named point, and at random moments: nobody hangs, and
// what the dead one had comes back. SHOAL_CRASH_ROUNDS=100 kills a hundred times as often at
// random.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "shoal/os/fault_point.h"
#include "shoal/serve/errors.h"
#include "shoal/serve/testing/echo_service.h"

namespace shoal::serve {
namespace {

using os::testing::Child;
using os::testing::test_deadline;
using testing::Asker;
using testing::echo_options;
using testing::serve_echoes;

int rounds() {
  const char* text = std::getenv("SHOAL_CRASH_ROUNDS");
  return text == nullptr ? 1 : std::atoi(text);
}

void wait_for_clients(const Frontend& frontend, std::uint32_t n) {
  const os::Deadline deadline = test_deadline();
  while (frontend.segment(0)->clients() != n) {
    ASSERT_LT(os::Clock::now(), deadline) << frontend.segment(0)->clients() << " clients are left";
    std::this_thread::yield();
  }
}

/// Asks until it is killed or the service ends; the exit code tells of a wrong reply.
int ask_for_ever(const std::string& address, int first) {
  Asker asker(address);
  for (std::int64_t value = first;; ++value) {
    std::vector<Request> requests;
    for (int i = 0; i < 3; ++i) requests.push_back(asker.submit(value + i));
    if (value % 5 == 0) asker.client().cancel(requests[1]);
    for (int i = 0; i < 3; ++i) {
      if (!requests[i].rows.empty() && asker.result(requests[i]) != value + i) return 3;
    }
  }
}

class ClientDeath : public ::testing::TestWithParam<const char*> {};

TEST_P(ClientDeath, LeavesTheOthersTheirReplies) {
  Frontend frontend;
  Child server([&] { return serve_echoes(echo_options(frontend.address(), 4)); });
  ASSERT_TRUE(frontend.wait_ready(0, 1, test_deadline()));
  Asker survivor(frontend.address());
  for (std::uint64_t nth : {1u, 2u, 7u}) {
    Child victim([&] {
      os::arm_fault_point(GetParam(), nth);
      return ask_for_ever(frontend.address(), 100);
    });
    for (int i = 0; i < 50; ++i) ASSERT_EQ(survivor.ask(i), i);
    const auto end = victim.join();
    ASSERT_TRUE(end);
    EXPECT_EQ(end->signal, SIGKILL);
    for (int i = 0; i < 50; ++i) ASSERT_EQ(survivor.ask(i), i);
    wait_for_clients(frontend, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(AtEveryPoint, ClientDeath,
                         ::testing::Values("serve.submit.queued", "serve.submit.announced",
                                           "serve.submit.claimed", "serve.submit.written",
                                           "serve.submit.ready"));

/// Not even when all rows of the open batch are those of the dead.
TEST_P(ClientDeath, DoesNotHoldUpAFullBatch) {
  Frontend frontend;
  Child server([&] { return serve_echoes(echo_options(frontend.address(), 1)); });
  ASSERT_TRUE(frontend.wait_ready(0, 1, test_deadline()));
  Asker survivor(frontend.address());
  ASSERT_EQ(survivor.ask(1), 1);
  for (int death = 0; death < 5; ++death) {  // more than there are buffers
    Child victim([&] {
      os::arm_fault_point(GetParam(), 2);
      return ask_for_ever(frontend.address(), 100);
    });
    const auto end = victim.join();
    ASSERT_TRUE(end);
    EXPECT_EQ(end->signal, SIGKILL);
    for (int i = 0; i < 10; ++i) ASSERT_EQ(survivor.ask(i), i);
  }
  wait_for_clients(frontend, 1);
}

/// Nor when who has announced them is stopped; it goes on where it was.
TEST(ServiceDeath, ClaimersThatStandStillDoNotHoldUpAFullBatch) {
  Frontend frontend;
  Child server([&] { return serve_echoes(echo_options(frontend.address(), 1)); });
  ASSERT_TRUE(frontend.wait_ready(0, 1, test_deadline()));
  Asker survivor(frontend.address());
  ASSERT_EQ(survivor.ask(1), 1);
  Child stopped([&] {
    os::arm_fault_point("serve.submit.announced", 2, SIGSTOP);
    Asker asker(frontend.address());
    for (int i = 0; i < 5; ++i) {
      if (asker.ask(i) != i) return 3;
    }
    return 0;
  });
  siginfo_t told{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(stopped.pid()), &told, WSTOPPED), 0);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(survivor.ask(i), i);
  ASSERT_EQ(::kill(stopped.pid(), SIGCONT), 0);
  const auto end = stopped.join();
  ASSERT_TRUE(end);
  EXPECT_EQ(*end, os::ProcessEnd{});
}

class ServerDeath : public ::testing::TestWithParam<const char*> {};

TEST_P(ServerDeath, EndsEveryWaitAndTheNextServerServes) {
  const shm::Arena arena = shm::Arena::create("test", sizeof(sync::Doorbell));
  sync::Doorbell& second = *arena.at<sync::Doorbell>(0);  // the server that follows is there
  Frontend frontend;
  auto server = std::make_unique<Child>([&] {
    os::arm_fault_point(GetParam(), 20);
    return serve_echoes(echo_options(frontend.address(), 4));
  });
  std::vector<std::unique_ptr<Child>> clients;
  for (int c = 0; c < 3; ++c) {
    clients.push_back(std::make_unique<Child>([&] {
      for (;;) {
        try {
          Asker asker(frontend.address());
          for (int i = 0; i < 20 || second.generation() == 0; ++i) {
            if (asker.ask(i) != i) return 3;
          }
          return 0;
        } catch (const ServiceDied&) {
        }
      }
    }));
  }
  const auto end = server->join();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->signal, SIGKILL);
  EXPECT_TRUE(frontend.wait_gone(0, test_deadline()));
  const auto [segments, running, restarts] = Frontend::observe(frontend.address(), test_deadline());
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(running, 0u);
  EXPECT_EQ(restarts, 0u);
  EXPECT_EQ(segments[0]->clients(), 0u);
  server =
      std::make_unique<Child>([&] { return serve_echoes(echo_options(frontend.address(), 4)); });
  ASSERT_TRUE(frontend.wait_ready(0, 2, test_deadline()));
  second.ring();
  for (const auto& client : clients) {
    const auto ended = client->join();
    ASSERT_TRUE(ended);
    EXPECT_EQ(*ended, os::ProcessEnd{});
  }
  wait_for_clients(frontend, 0);
}

INSTANTIATE_TEST_SUITE_P(AtEveryPoint, ServerDeath,
                         ::testing::Values("serve.take.closed", "serve.open.stored",
                                           "serve.reply.written", "serve.reply.finished"));

TEST(ServiceDeath, ClientsAreKilledAtRandom) {
  Frontend frontend;
  Child server([&] { return serve_echoes(echo_options(frontend.address(), 4)); });
  ASSERT_TRUE(frontend.wait_ready(0, 1, test_deadline()));
  Asker survivor(frontend.address());
  survivor.ask(0);
  std::mt19937 dice(1);
  std::vector<std::unique_ptr<Child>> clients(4);
  for (int kill = 0; kill < 20 * rounds(); ++kill) {
    auto& victim = clients[dice() % clients.size()];
    if (victim) victim->kill();
    victim = std::make_unique<Child>([&] { return ask_for_ever(frontend.address(), kill); });
    for (unsigned i = 0; i < dice() % 40; ++i) ASSERT_EQ(survivor.ask(i), i);
  }
  for (auto& client : clients) {
    if (client) client->kill();
  }
  wait_for_clients(frontend, 1);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(survivor.ask(i), i);
}

TEST(ServiceDeath, WithTheMakersEndItIsClosed) {
  std::string address;
  {
    Frontend frontend;
    address = frontend.address();
  }
  EXPECT_THROW(Asker{address}, ServiceDied);
}

}  // namespace
}  // namespace shoal::serve
