#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <latch>
#include <set>
#include <string>
#include <thread>

#include "shoal/os/socket/packet.h"
#include "shoal/os/testing/child.h"
#include "shoal/os/testing/message_of.h"
#include "shoal/serve/address.h"
#include "shoal/serve/errors.h"
#include "shoal/serve/failure_text.h"
#include "shoal/serve/testing/echo_service.h"

namespace shoal::serve {
namespace {

using os::testing::message_of;
using os::testing::test_deadline;
using testing::Asker;
using testing::echo_options;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::rows_of;
using testing::serve_echoes;

/// A frontend, and where asked for a server in a thread.
class Service : public ::testing::Test {
 protected:
  void start(ServerOptions options) {
    options.address = frontend.address();
    thread = std::thread([options] { serve_echoes(options); });
  }
  void TearDown() override {
    frontend.close("the test is over");
    if (thread.joinable()) thread.join();
  }

  Frontend frontend;
  std::thread thread;
};

TEST_F(Service, AReplyIsTheModelsAnswerToItsRow) {
  start(echo_options(""));
  Asker asker(frontend.address());
  EXPECT_THAT(asker.client().models(), ElementsAre("echo"));
  for (int i = 0; i < 100; ++i) ASSERT_EQ(asker.ask(i), i);
}

TEST_F(Service, AnotherUserGetsNoAnswerAndKeepsNobodyFromTheirs) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  start(echo_options(""));
  os::testing::Child stranger([address = frontend.address()] {
    if (::setuid(65534) != 0) return 2;
    // Without a Client, which refuses a service of another user itself.
    const os::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const os::PacketAddress to = os::abstract_address(address);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to.name), to.bytes) != 0)
      return 3;
    std::byte answer;
    return ::recv(socket.get(), &answer, 1, 0) <= 0 ? 0 : 1;
  });
  EXPECT_EQ(stranger.join(), os::ProcessEnd{});
  EXPECT_EQ(Asker(frontend.address()).ask(7), 7);
}

TEST_F(Service, AClientMayComeBeforeTheServer) {
  auto asked = std::async(std::launch::async, [&] { return Asker(frontend.address()).ask(7); });
  start(echo_options(""));
  EXPECT_EQ(asked.get(), 7);
}

TEST_F(Service, ManyClientsGetTheirOwnReplies) {
  start(echo_options("", 4));
  std::vector<std::thread> clients;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      Asker asker(frontend.address(), 4 + c % 2);  // two queues
      for (int i = 0; i < 500; ++i) {
        if (asker.ask(c * 1000 + i) != c * 1000 + i) ++wrong;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  const auto segment = frontend.segment(0);
  ASSERT_TRUE(segment);
  EXPECT_EQ(segment->models()[0].rows.load(), 4000u);
  EXPECT_EQ(segment->models()[0].latency_ns.summary().count, 4000u);
}

TEST_F(Service, ManyRowsOfOneRequestMayTakeSeveralBatches) {
  start(echo_options("", 4));
  Asker asker(frontend.address(), 1);
  ClientQueue& at = asker.queue(10);
  const std::vector<std::int64_t> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto* first = reinterpret_cast<const std::byte*>(values.data());
  Request request =
      asker.client().submit(at, {.leaves = {&first, 1}, .count = 10, .deadline = test_deadline()});
  ASSERT_TRUE(asker.client().wait(request));
  for (std::uint32_t row = 0; row < 10; ++row) {
    std::int64_t value = -1;
    std::memcpy(&value, asker.client().output(request, row, 0), sizeof value);
    EXPECT_EQ(value, row);
    EXPECT_EQ(asker.client().version(request, row), 1u);
  }
  asker.client().release(request);
  EXPECT_EQ(at.free.size(), at.slots->slots());
}

TEST_F(Service, SeveralRequestsMayBeInFlight) {
  start(echo_options(""));
  Asker asker(frontend.address());
  std::vector<Request> requests;
  for (int i = 0; i < 20; ++i) requests.push_back(asker.submit(i));
  for (int i = 19; i >= 0; --i) EXPECT_EQ(asker.result(requests[i]), i);
}

TEST_F(Service, AnUnknownModelIsNamedWithThoseThereAre) {
  start(echo_options(""));
  Asker asker(frontend.address());
  EXPECT_THAT(message_of([&] { static_cast<void>(asker.client().model("other")); }),
              HasSubstr("no model 'other'; it has echo"));
}

TEST_F(Service, TooManyKindsOfRowsAreRefused) {
  ServerOptions options = echo_options("");
  options.max_queues = 2;
  start(options);
  EXPECT_EQ(Asker(frontend.address(), 1).ask(1), 1);
  EXPECT_EQ(Asker(frontend.address(), 2).ask(1), 1);
  EXPECT_THAT(message_of([&] { Asker(frontend.address(), 3).ask(1); }),
              HasSubstr("rows of 2 different shapes and dtypes already"));
}

TEST_F(Service, TooManyPinnedVersionsAreNamed) {
  ServerOptions options = echo_options("");
  options.max_queues = 3;
  start(options);
  Asker asker(frontend.address(), 1);
  EXPECT_EQ(asker.ask(1), 1);
  const std::int64_t row = 0;
  const auto* leaf = reinterpret_cast<const std::byte*>(&row);
  const auto pin = [&](std::uint64_t version) {
    RequestKind kind = rows_of(1);
    kind.pinned = version;
    static_cast<void>(asker.client().open(kind, {&leaf, 1}, 1, test_deadline()));
  };
  pin(1);
  pin(2);
  pin(1);
  EXPECT_THAT(message_of([&] { pin(7); }),
              HasSubstr("3 kinds of rows already, 2 of them of pinned versions, and this one, "
                        "int64[1] of version 7, is new"));
  EXPECT_THAT(message_of([&] { Asker(frontend.address(), 2).ask(1); }),
              HasSubstr("int64[2] of the latest version, is new"));
}

TEST_F(Service, KindsWithoutArraysReachTheExecutorBesideTheMostQueues) {
  ServerOptions options = echo_options("");
  options.max_queues = 1;
  start(options);
  Asker asker(frontend.address());
  asker.queue();
  const RequestKind question{.model = 0, .pinned = 0, .inputs = {}, .structure = {std::byte{63}}};
  EXPECT_EQ(asker.client().open(question, {}, 1, test_deadline()).queue->kind(), question);
}

TEST_F(Service, RowsOfMoreArraysOrDimensionsThanThereMayBeNameTheLimit) {
  start(echo_options(""));
  Asker asker(frontend.address());
  const std::int64_t number = 1;
  const std::vector<const std::byte*> leaves(257, reinterpret_cast<const std::byte*>(&number));
  RequestKind kind = rows_of(1);
  kind.inputs.resize(257, kind.inputs[0]);
  EXPECT_THAT(message_of([&] { asker.client().open(kind, leaves); }),
              HasSubstr("a row of a call has 257 arrays, and a model service takes 256 at most"));
  kind.inputs = {{shm::DType::kI64, std::vector<std::int64_t>(33, 1)}};
  EXPECT_THAT(message_of([&] { asker.client().open(kind, leaves); }),
              HasSubstr("an array of 33 dimensions, and a model service takes 32 at most"));
  EXPECT_EQ(asker.ask(3), 3);
}

TEST_F(Service, WithoutDescriptorsForThemFurtherClientsAreToldSo) {
#ifdef __SANITIZE_ADDRESS__
  // UndefinedBehaviorSanitizer reads an object's type through a pipe, as in board_test.cc.
  GTEST_SKIP() << "a sanitizer needs descriptors itself, which this test takes away";
#endif
  os::testing::Child server([address = frontend.address()] {
    const rlimit few{64, 64};
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 2;
    return serve_echoes(echo_options(address));
  });
  std::vector<std::unique_ptr<Asker>> clients;
  const auto come = [&] {
    while (clients.size() < 64) {
      clients.push_back(std::make_unique<Asker>(frontend.address()));
      ASSERT_EQ(clients.back()->ask(1), 1);
    }
  };
  for (int i = 0; i < 3; ++i) EXPECT_THAT(message_of(come), HasSubstr("ulimit -n, is 64"));
  ASSERT_GT(clients.size(), 2u);
  for (const auto& client : clients) EXPECT_EQ(client->ask(2), 2);
  clients.erase(clients.begin(), clients.begin() + 2);
  const os::Deadline deadline = test_deadline();
  while (frontend.segment(0)->clients() != clients.size()) {
    ASSERT_LT(os::Clock::now(), deadline);
    std::this_thread::yield();
  }
  EXPECT_EQ(Asker(frontend.address()).ask(3), 3);
  frontend.close("the test is over");
  EXPECT_EQ(server.join(), os::ProcessEnd{});
}

TEST(ClientSlots, ALongTextIsCutBetweenTwoCharacters) {
  const auto slots = ClientSlots::create(1, {}, 1);
  const std::string e = "é";
  for (const std::string rest : {"", "x"}) {
    std::string text;
    while (text.size() < 2 * ClientSlots::kMaxTextBytes) text += e;
    slots->set_text(0, text + rest);
    EXPECT_TRUE(slots->text(0).starts_with(e));
    EXPECT_TRUE(slots->text(0).ends_with(e + rest));
  }
}

TEST_F(Service, TheQuorumLetsABatchGoBeforeItsDelay) {
  start(echo_options("", 8, std::chrono::hours(1)));
  Asker one(frontend.address()), two(frontend.address());
  one.queue();
  two.queue();
  Request first = one.submit(1);
  auto second = std::async(std::launch::async, [&] { return two.ask(2); });
  EXPECT_EQ(one.result(first), 1);
  EXPECT_EQ(second.get(), 2);
  EXPECT_EQ(frontend.segment(0)->models()[0].batches.load(), 1u);
}

TEST_F(Service, WhoWaitsForAnotherKindOfRowCountsForTheQuorum) {
  start(echo_options("", 8, std::chrono::hours(1)));
  std::latch opened(2);
  const auto ask_thrice = [&](std::int64_t numbers, std::int64_t others) {
    Asker asker(frontend.address(), numbers);
    asker.queue();
    const std::vector<std::int64_t> row(4);
    const std::byte* leaf = reinterpret_cast<const std::byte*>(row.data());
    asker.client().open(rows_of(others), {&leaf, 1}, 1, test_deadline());
    opened.arrive_and_wait();
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(asker.ask(i), i);
  };
  auto one = std::async(std::launch::async, ask_thrice, 4, 2);
  ask_thrice(2, 4);
  one.get();
}

TEST_F(Service, ADeadClientDoesNotCountForTheQuorum) {
  start(echo_options("", 8, std::chrono::hours(1)));
  Asker one(frontend.address());
  one.queue();
  {
    Asker two(frontend.address());
    two.queue();
  }
  EXPECT_EQ(one.ask(1), 1);
}

TEST_F(Service, AnybodyMayObserveIt) {
  start(echo_options(""));
  Asker asker(frontend.address());
  asker.ask(1);
  const auto [segments, running, restarts] = Frontend::observe(frontend.address(), test_deadline());
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(running, 1u);
  EXPECT_EQ(restarts, 0u);
  EXPECT_EQ(segments[0]->pid(), ::getpid());
  EXPECT_EQ(segments[0]->models()[0].rows.load(), 1u);
  EXPECT_THROW(Frontend::observe("shoal-serve-none", test_deadline()), ServiceDied);
}

TEST_F(Service, CloseTellsClientsThatWait) {
  start(echo_options("", 8, std::chrono::hours(1)));
  Asker one(frontend.address()), two(frontend.address());
  two.queue();  // which never waits: one's row stays
  Request request = one.submit(1);
  frontend.close("closed by the test");
  EXPECT_THAT(message_of([&] { static_cast<void>(one.client().wait(request)); }),
              HasSubstr("closed by the test"));
  EXPECT_THROW(Asker(frontend.address()).ask(1), ServiceDied);
}

/// A server whose executor is the test: it goes on when it is told to.
class ByHand : public ::testing::Test {
 protected:
  /// A client that has opened its queue.
  std::unique_ptr<Asker> asker(std::int64_t numbers = 1, std::uint32_t slots = 1) {
    auto opening = std::async(std::launch::async, [&] {
      auto made = std::make_unique<Asker>(frontend.address(), numbers);
      made->queue(slots);
      return made;
    });
    while (opening.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      Work work = server.next(os::deadline_after(std::chrono::milliseconds(1)));
      if (const auto* probe = std::get_if<Probe>(&work)) {
        server.open_queue(*probe, probe->request.kind.inputs, {});
      }
    }
    return opening.get();
  }

  Batch next_batch() {
    for (;;) {
      Work work = server.next(test_deadline());
      if (auto* batch = std::get_if<Batch>(&work)) return std::move(*batch);
      if (std::holds_alternative<NoWork>(work)) throw Error("no batch came");
    }
  }

  void echo(Batch& batch) { testing::echo(server, batch); }
  /// Rows 0 to 15, as many as one has slots for at first, which nobody has read the replies to.
  std::vector<Request> answered(Asker& one) {
    std::vector<Request> requests;
    for (int i = 0; i < 16; ++i) {
      requests.push_back(one.submit(i));
      Batch batch = next_batch();
      echo(batch);
    }
    return requests;
  }

  Frontend frontend;
  Server server{echo_options(frontend.address(), 4)};
};

TEST_F(ByHand, RowsThatCameMeanwhileGoTogether) {
  auto one = asker(), two = asker();
  Request first = one->submit(1);
  Request second = two->submit(2);
  Batch batch = next_batch();
  EXPECT_EQ(batch.rows.size(), 2u);
  echo(batch);
  EXPECT_EQ(one->result(first), 1);
  EXPECT_EQ(two->result(second), 2);
}

TEST_F(ByHand, OfTheCommandsOfATopicThatWaitTheNewestAreKept) {
  ASSERT_TRUE(frontend.wait_ready(0, 1, test_deadline()));
  const auto tell = [&](int what, std::uint32_t topic) {
    const std::byte bytes[] = {static_cast<std::byte>(what)};
    EXPECT_FALSE(frontend.command(0, bytes, os::Clock::now(), {}, topic));
  };
  for (int what = 1; what <= 6; ++what) tell(what, 1);
  tell(7, 2);
  tell(8, 1);
  for (int what = 9; what <= 13; ++what) tell(what, 0);
  Asker last(frontend.address());  // who is handed over after them has been let in
  std::vector<int> heard;
  for (;;) {
    Work work = server.next(os::Clock::now());
    const auto* command = std::get_if<ServerCommand>(&work);
    if (command == nullptr) break;
    heard.push_back(static_cast<int>(command->bytes[0]));
    server.answer(*command, {});
  }
  EXPECT_THAT(heard, ElementsAre(5, 6, 7, 8, 9, 10, 11, 12, 13));
}

TEST_F(ByHand, ClientsThatAreHeldComeWhenTheyAreLetIn) {
  frontend.hold_clients(0);
  ASSERT_TRUE(frontend.wait_ready(0, 1, test_deadline()));
  EXPECT_EQ(frontend.generation(0), 1u);
  EXPECT_THROW(
      Client::connect(frontend.address(), os::deadline_after(std::chrono::milliseconds(50))),
      DeadlineExceeded);
  EXPECT_FALSE(frontend.command(0, {}, os::Clock::now())) << "commands come meanwhile";
  Work work = server.next(test_deadline());
  EXPECT_TRUE(std::holds_alternative<ServerCommand>(work));
  auto waiting = std::async(std::launch::async, [&] { Asker asker(frontend.address()); });
  frontend.let_clients_in(0);
  waiting.get();
}

/// Nor does anybody else who looks at the instances.
TEST(Frontend, WhoReadsTheCountersDoesNotWaitForAServerThatTakesNoCommands) {
  Frontend frontend;
  const std::string name = "echo";
  const ServerSegment segment = ServerSegment::create({&name, 1});
  const int fd = segment.fd();
  os::SeqPacket server = connect_to(frontend.address() + ".link");
  ASSERT_EQ(server.send(Ready{}.encode(), {&fd, 1}), os::SendOutcome::kSent);
  ASSERT_TRUE(frontend.wait_ready(0, 1, test_deadline()));

  constexpr int kCommands = 2000;  // more than the socket holds
  std::atomic<int> sent{0};
  auto sending = std::async(std::launch::async, [&] {
    const std::vector<std::byte> bytes(1024);
    for (; sent < kCommands; ++sent) {
      static_cast<void>(frontend.command(0, bytes, os::Clock::now()));
    }
  });
  int before = -1;
  for (int looks = 0; looks < 1000; ++looks) {  // until it stands still
    ASSERT_TRUE(frontend.segment(0));
    if (const int now = sent; now != before) {
      before = now;
      looks = 0;
    }
    std::this_thread::yield();
  }
  os::Message message;
  while (sent < kCommands && sending.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    static_cast<void>(server.recv(message, os::deadline_after(std::chrono::milliseconds(1))));
  EXPECT_NO_THROW(sending.get());
}

TEST(Server, OfAForkedParentIsLeftToIt) {
  Frontend frontend;
  auto server = std::make_unique<Server>(echo_options(frontend.address(), 4));
  os::testing::Child child([&] {
    server.reset();
    return 0;
  });
  ASSERT_EQ(child.join(), os::ProcessEnd{});
  EXPECT_TRUE(frontend.wait_ready(0, 1, test_deadline()));
  EXPECT_FALSE(frontend.wait_gone(0, os::Clock::now()));
}

TEST_F(ByHand, AFullBatchIsOverCapacityForWhoDoesNotWait) {
  auto one = asker(1, 8);
  std::vector<Request> requests;
  requests.push_back(one->submit(0));
  Batch running = next_batch();
  for (int i = 1; i <= 4; ++i) requests.push_back(one->submit(i));
  const auto impatient = [](Rows& rows) { rows.wait_for_room = false; };
  EXPECT_THROW(one->submit(5, impatient), OverCapacity);
  const auto short_of_time = [](Rows& rows) {
    rows.deadline = os::deadline_after(std::chrono::milliseconds(5));
  };
  EXPECT_THROW(one->submit(5, short_of_time), DeadlineExceeded);
  echo(running);
  Batch full = next_batch();
  EXPECT_EQ(full.rows.size(), 4u);
  requests.push_back(one->submit(5, impatient));
  echo(full);
  Batch last = next_batch();
  echo(last);
  for (int i = 0; i <= 5; ++i) EXPECT_EQ(one->result(requests[i]), i);
}

TEST_F(ByHand, AnOpenThatHadNoTimeLeavesTheConnectionAndWhatIsInFlight) {
  auto one = asker();
  std::vector<Request> requests = answered(*one);
  Client& client = one->client();
  const std::vector<std::int64_t> row(2);
  const std::byte* leaf = reinterpret_cast<const std::byte*>(row.data());
  const RequestKind other = rows_of(2);
  const auto no_time = [] { return os::deadline_after(std::chrono::milliseconds(1)); };
  for (int i = 0; i < 3; ++i) {  // the server is asked once
    EXPECT_THROW(client.open(one->kind(), {&leaf, 1}, 1, no_time()), DeadlineExceeded);
    EXPECT_THROW(client.open(other, {&leaf, 1}, 1, no_time()), DeadlineExceeded);
  }
  for (int i = 0; i < 16; ++i) EXPECT_EQ(one->result(requests[i]), i);
  Work work = server.next(test_deadline());
  ASSERT_TRUE(std::holds_alternative<Probe>(work));
  server.refuse(std::get<Probe>(work), {RefusalKind::kModelError, "this row is bad", ""});
  EXPECT_TRUE(client.alive()) << "with two answers that nobody has read";
  // The refusal was about the row of a call that has ended.
  auto opened = std::async(std::launch::async,
                           [&] { return &client.open(other, {&leaf, 1}, 1, test_deadline()); });
  work = server.next(test_deadline());
  ASSERT_TRUE(std::holds_alternative<Probe>(work));
  server.open_queue(std::get<Probe>(work), other.inputs, {});
  EXPECT_EQ(opened.get()->queue->kind(), other);
  EXPECT_EQ(one->queue().slots->slots(), 32u) << "the answer that came late";
  Request last = one->submit(7);
  Batch batch = next_batch();
  echo(batch);
  EXPECT_EQ(one->result(last), 7);
}

TEST_F(ByHand, WhoDoesNotWaitGetsMoreSlotsLater) {
  auto one = asker();
  std::vector<Request> requests = answered(*one);
  Client& client = one->client();
  const std::int64_t row = 0;
  const std::byte* leaf = reinterpret_cast<const std::byte*>(&row);
  EXPECT_TRUE(client.knows(one->kind()));
  EXPECT_FALSE(client.knows(rows_of(2)));
  EXPECT_THROW(client.open_now(one->kind(), {&leaf, 1}), OverCapacity);
  EXPECT_THROW(client.open_now(one->kind(), {&leaf, 1}), OverCapacity);
  const os::Deadline deadline = test_deadline();
  ClientQueue* more = nullptr;
  while (more == nullptr) {
    ASSERT_LT(os::Clock::now(), deadline);
    static_cast<void>(server.next(os::deadline_after(std::chrono::milliseconds(1))));
    try {
      more = &client.open_now(one->kind(), {&leaf, 1});
    } catch (const OverCapacity&) {
    }
  }
  EXPECT_EQ(more->slots->slots(), 32u);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(one->result(requests[i]), i);
}

TEST_F(ByHand, OneRowMayFail) {
  auto one = asker(), two = asker();
  Request first = one->submit(1);
  Request second = two->submit(2);
  Batch batch = next_batch();
  server.fail(batch, 0, FailureText{"ValueError: row", "Traceback: …"}.encode(), 5);
  std::memcpy(server.output(batch, 1, 0), server.input(batch, 0, 1), sizeof(std::int64_t));
  server.reply(batch, 1, 5);
  server.finish(batch);
  EXPECT_EQ(two->result(second), 2);
  EXPECT_EQ(message_of([&] { one->result(first); }), "ValueError: row");
  EXPECT_EQ(server.statistics(0).failed_rows.load(), 1u);
}

TEST_F(ByHand, ARowWithoutAReplyFails) {
  auto one = asker();
  Request request = one->submit(1);
  Batch batch = next_batch();
  server.finish(batch);
  EXPECT_THAT(message_of([&] { one->result(request); }), HasSubstr("gave no reply"));
}

TEST_F(ByHand, ACancelledRowIsNotComputed) {
  auto one = asker(), two = asker();
  Request dropped = one->submit(1);
  one->client().cancel(dropped);
  Request kept = two->submit(2);
  Batch batch = next_batch();
  ASSERT_EQ(batch.rows.size(), 1u);
  EXPECT_EQ(*reinterpret_cast<std::int64_t*>(server.input(batch, 0, 0)), 2);
  echo(batch);
  EXPECT_EQ(two->result(kept), 2);
  EXPECT_EQ(server.statistics(0).dropped_rows.load(), 1u);
}

TEST_F(ByHand, ACancelledSlotIsUsedAgainOnlyWhenItsBatchIsFinished) {
  auto one = asker();
  Request request = one->submit(1);
  Batch batch = next_batch();
  ClientQueue& at = *request.at;
  one->client().cancel(request);
  EXPECT_EQ(at.free.size(), at.slots->slots() - 1);
  echo(batch);
  one->client().find(one->kind());
  EXPECT_EQ(at.free.size(), at.slots->slots());
}

TEST_F(ByHand, AnExpiredRowIsNotComputed) {
  auto one = asker();
  Request request = one->submit(1, [](Rows& rows) { rows.deadline = os::Clock::now(); });
  EXPECT_TRUE(std::holds_alternative<NoWork>(
      server.next(os::deadline_after(std::chrono::milliseconds(1)))));
  EXPECT_EQ(server.statistics(0).expired_rows.load(), 1u);
  EXPECT_THROW(one->result(request), DeadlineExceeded);
}

TEST_F(ByHand, TheResetOfARowThatIsDroppedIsTheNextOnesOfItsEnvironment) {
  auto one = asker(1, 8);
  const auto submit = [&](int env, bool reset, os::Deadline deadline) {
    return one->submit(1, [&](Rows& rows) {
      rows.env = env;
      rows.reset = reset;
      rows.deadline = deadline;
    });
  };
  Request late = submit(1, true, os::Clock::now());
  Request other = submit(2, false, test_deadline());
  Request next = submit(1, false, test_deadline());
  Request after = submit(1, false, test_deadline());
  Batch batch = next_batch();
  ASSERT_EQ(batch.rows.size(), 3u);
  EXPECT_FALSE(batch.rows[0].reset) << "another environment";
  EXPECT_TRUE(batch.rows[1].reset);
  EXPECT_FALSE(batch.rows[2].reset);
  echo(batch);
  EXPECT_THROW(one->result(late), DeadlineExceeded);
  for (Request* request : {&other, &next, &after}) EXPECT_EQ(one->result(*request), 1);
  Request cancelled = submit(2, true, test_deadline());
  one->client().cancel(cancelled);
  next = submit(2, false, test_deadline());
  batch = next_batch();
  ASSERT_EQ(batch.rows.size(), 1u);
  EXPECT_TRUE(batch.rows[0].reset);
  echo(batch);
  EXPECT_EQ(one->result(next), 1);
}

TEST_F(ByHand, AWaitEndsAtTheRequestsDeadline) {
  auto one = asker();
  Request request = one->submit(
      1, [](Rows& rows) { rows.deadline = os::deadline_after(std::chrono::milliseconds(10)); });
  EXPECT_THROW(one->result(request), DeadlineExceeded);
  EXPECT_TRUE(request.rows.empty());
}

TEST_F(ByHand, ABatchLeavesWithoutARowThatIsNotWritten) {
  auto slow = asker(), quick = asker();
  ClientQueue& at = slow->queue();
  const std::uint32_t buffer = at.queue->open() - 1;
  at.slots->announce_claim(buffer);
  ASSERT_EQ(at.queue->claims(buffer).claim(1, 4).count, 1u);
  Request request = quick->submit(2);
  Batch batch = next_batch();
  ASSERT_EQ(batch.rows.size(), 1u);
  EXPECT_EQ(*reinterpret_cast<std::int64_t*>(server.input(batch, 0, 0)), 2);
  echo(batch);
  EXPECT_EQ(quick->result(request), 2);
  // Nobody else gets the buffer while the slow one may write to it.
  for (int i = 0; i < 8; ++i) {
    request = quick->submit(i);
    batch = next_batch();
    EXPECT_NE(batch.buffer, buffer);
    echo(batch);
    EXPECT_EQ(quick->result(request), i);
  }
  EXPECT_FALSE(at.queue->cell(buffer, 0).word.ready());
  at.slots->end_claim();
  std::set<std::uint32_t> used;
  for (int i = 0; i < 4; ++i) {
    request = quick->submit(i);
    batch = next_batch();
    used.insert(batch.buffer);
    echo(batch);
    EXPECT_EQ(quick->result(request), i);
  }
  EXPECT_TRUE(used.contains(buffer));
}

}  // namespace
}  // namespace shoal::serve
