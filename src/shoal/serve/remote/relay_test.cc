// A service and, over the loopback, the host that asks it: in threads of one process, and as two.
#include "shoal/serve/remote/relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "shoal/group/connection/message_client.h"
#include "shoal/os/testing/message_of.h"
#include "shoal/serve/errors.h"
#include "shoal/serve/failure_text.h"
#include "shoal/serve/remote/listener.h"
#include "shoal/serve/testing/echo_service.h"
#include "shoal/shm/board.h"

namespace shoal::serve {
namespace {

using namespace std::chrono_literals;
using os::testing::Child;
using os::testing::message_of;
using os::testing::test_deadline;
using testing::Asker;
using testing::echo_options;
using ::testing::HasSubstr;
using testing::rows_of;

constexpr std::int64_t kBad = 13;  // the model fails on it

std::int64_t number_of(const Server& server, const Batch& batch, std::uint32_t row) {
  std::int64_t number = 0;
  std::memcpy(&number, server.input(batch, 0, row), sizeof number);
  return number;
}

/// As testing::echo(), with version 7, and an error for kBad.
void answer(Server& server, Batch& batch) {
  const std::size_t bytes = server.outputs(batch)[0].bytes();
  for (std::uint32_t row = 0; row < batch.rows.size(); ++row) {
    if (number_of(server, batch, row) == kBad) {
      server.fail(batch, row, FailureText{"ValueError: it is 13", "Traceback"}.encode(), 7);
      continue;
    }
    std::memcpy(server.output(batch, row, 0), server.input(batch, 0, row), bytes);
    server.reply(batch, row, 7);
  }
  server.finish(batch);
}

using OnBatch = std::function<void(Server&, Batch&)>;

void serve_until_closed(const ServerOptions& options, const OnBatch& on_batch) {
  Server server(options);
  for (;;) {
    Work work = server.next();
    if (auto* batch = std::get_if<Batch>(&work)) {
      on_batch(server, *batch);
    } else if (const auto* probe = std::get_if<Probe>(&work)) {
      if (probe->request.kind.inputs[0].shape[0] == kBad)
        server.refuse(*probe, {RefusalKind::kModelError, "ValueError: 13 columns", "Traceback …"});
      else
        server.open_queue(*probe, probe->request.kind.inputs, {});
    } else if (std::holds_alternative<ServerEnd>(work)) {
      return;
    }
  }
}

/// What a child is told that was forked before it was known. A child of a process with threads may
/// find the memory of AddressSanitizer locked for good by one of them, so these children are forked
/// before there are any.
class Word {
 public:
  Word() {
    if (::pipe(ends_) != 0) throw SystemError("make a pipe");
  }
  ~Word() {
    for (const int end : ends_) ::close(end);
  }
  Word(const Word&) = delete;
  Word& operator=(const Word&) = delete;

  void tell(const std::string& word) const {
    if (::write(ends_[1], word.data(), word.size()) != static_cast<ssize_t>(word.size()))
      throw SystemError("write to a pipe");
  }
  std::string heard() const {
    char word[256];
    const ssize_t size = ::read(ends_[0], word, sizeof word);
    if (size <= 0) throw SystemError("read from a pipe");
    return {word, static_cast<std::size_t>(size)};
  }

 private:
  int ends_[2];
};

/// The service that listens.
struct Distant {
  explicit Distant(OnBatch on_batch = answer, std::uint32_t max_batch = 8)
      : listener({.address = frontend.address(),
                  .host = "127.0.0.1",
                  .port = 0,
                  .secret = "word",
                  .version = "1",
                  .terms = {.models = {"echo"}, .max_batch = max_batch}}) {
    server = std::thread([this, on_batch = std::move(on_batch), max_batch] {
      serve_until_closed(echo_options(frontend.address(), max_batch), on_batch);
    });
    listener.start();
  }
  ~Distant() { close("the test is over"); }
  void close(const std::string& why) {
    listener.close(why);
    frontend.close(why);
    if (server.joinable()) server.join();
  }
  const ModelStatistics& counts() const { return frontend.segment(0)->models()[0]; }
  /// Waits until so many relays are its clients.
  void wait_for_clients(std::uint32_t n) const {
    const os::Deadline deadline = test_deadline();
    while (frontend.segment(0)->clients() != n) {
      ASSERT_LT(os::Clock::now(), deadline) << frontend.segment(0)->clients() << " are there";
      std::this_thread::yield();
    }
  }

  Frontend frontend;
  Listener listener;
  std::thread server;
};

Relay::Options options_for(int port, const std::string& local) {
  return {.address = local, .host = "127.0.0.1", .port = port, .secret = "word", .version = "1"};
}

/// While it lives no thread can be had: none has room for so large a stack.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t none;
    if (::pthread_getattr_default_np(&before_) != 0 || ::pthread_getattr_default_np(&none) != 0 ||
        ::pthread_attr_setstacksize(&none, std::size_t{1} << 48) != 0 ||
        ::pthread_setattr_default_np(&none) != 0)
      throw Error("set the stack of new threads");
  }
  ~NoThreads() { ::pthread_setattr_default_np(&before_); }

 private:
  pthread_attr_t before_;
};

/// The host that asks it.
struct Here {
  explicit Here(int port) : relay(std::make_unique<Relay>(options_for(port, frontend.address()))) {}
  ~Here() { frontend.close("the test is over"); }
  /// Why the relay has ended, once it has.
  std::string end_reason() {
    EXPECT_TRUE(frontend.wait_ready(0, 1, test_deadline()));
    EXPECT_TRUE(frontend.wait_gone(0, test_deadline()));
    return relay->end_reason();
  }

  Frontend frontend;
  std::unique_ptr<Relay> relay;
};

TEST(Relay, AReplyIsTheDistantModelsAnswer) {
  Distant distant;
  Here here(distant.listener.port());
  EXPECT_EQ(here.relay->terms().models, std::vector<std::string>{"echo"});
  Asker asker(here.frontend.address());
  for (int i = 20; i < 120; ++i) ASSERT_EQ(asker.ask(i), i);
  Request request = asker.submit(1);
  ASSERT_TRUE(asker.client().wait(request));
  EXPECT_EQ(asker.client().version(request, 0), 7U);
  EXPECT_EQ(here.frontend.segment(0)->models()[0].version.load(), 7U);
}

TEST(Relay, ManyClientsOfAHostGetTheirOwnRepliesThroughOneClientThere) {
  Distant distant(answer, 4);
  Here here(distant.listener.port());
  std::vector<std::thread> clients;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      Asker asker(here.frontend.address(), 4 + c % 2);  // two queues
      for (int i = 20; i < 320; ++i) {
        if (asker.ask(c * 1000 + i) != c * 1000 + i) ++wrong;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(distant.counts().rows.load(), 2400U);
  EXPECT_EQ(here.frontend.segment(0)->models()[0].rows.load(), 2400U);
  EXPECT_EQ(distant.frontend.segment(0)->clients(), 1U);
}

TEST(Relay, ARequestMayHaveMoreRowsThanABatch) {
  Distant distant(answer, 4);
  Here here(distant.listener.port());
  Asker asker(here.frontend.address(), 1);
  std::vector<std::int64_t> values(50);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 100 + static_cast<std::int64_t>(i);
  ClientQueue& at = asker.queue(50);
  const auto* first = reinterpret_cast<const std::byte*>(values.data());
  Request request =
      asker.client().submit(at, {.leaves = {&first, 1}, .count = 50, .deadline = test_deadline()});
  ASSERT_TRUE(asker.client().wait(request));
  asker.client().check(request);
  for (std::uint32_t row = 0; row < 50; ++row) {
    std::int64_t value = -1;
    std::memcpy(&value, asker.client().output(request, row, 0), sizeof value);
    EXPECT_EQ(value, 100 + row);
  }
}

TEST(Relay, ARowThatFailsHasTheDistantTracebackAndFailsAlone) {
  Distant distant;
  Here here(distant.listener.port());
  Asker asker(here.frontend.address());
  Request good = asker.submit(1), bad = asker.submit(kBad), other = asker.submit(2);
  EXPECT_EQ(asker.result(good), 1);
  EXPECT_EQ(asker.result(other), 2);
  ASSERT_TRUE(asker.client().wait(bad));
  try {
    asker.client().check(bad);
    FAIL() << "it did not fail";
  } catch (const ModelError& error) {
    EXPECT_EQ(std::string(error.what()), "ValueError: it is 13");
    EXPECT_THAT(error.traceback(), HasSubstr("Traceback"));
  }
}

TEST(Relay, RowsThatTheModelRefusesAreRefusedHere) {
  Distant distant;
  Here here(distant.listener.port());
  Asker asker(here.frontend.address(), kBad);
  try {
    asker.queue();
    FAIL() << "it was opened";
  } catch (const ModelError& error) {
    EXPECT_EQ(std::string(error.what()), "ValueError: 13 columns");
    EXPECT_EQ(error.traceback(), "Traceback …");
  }
  EXPECT_EQ(Asker(here.frontend.address()).ask(1), 1) << "the others are answered";
}

TEST(Relay, AStructureThatIsPickledDoesNotCross) {
  Distant distant;
  Here here(distant.listener.port());
  Asker asker(here.frontend.address());
  RequestKind kind = rows_of(4);
  kind.structure = {std::byte{0x80}, std::byte{4}};
  const std::int64_t row[4] = {};
  const auto* leaf = reinterpret_cast<const std::byte*>(row);
  EXPECT_THAT(message_of([&] { asker.client().open(kind, {&leaf, 1}, 1, test_deadline()); }),
              HasSubstr("cannot cross to another host"));
}

TEST(Relay, OnlyTwoBatchesOfAQueueAreUnderWay) {
  std::mutex gate;
  gate.lock();
  Distant distant(
      [&](Server& server, Batch& batch) {
        const std::lock_guard lock(gate);
        answer(server, batch);
      },
      4);
  Here here(distant.listener.port());
  Asker asker(here.frontend.address());
  std::vector<Request> requests;
  const auto& counts = here.frontend.segment(0)->models()[0];
  asker.queue(6);
  for (int i = 0; i < 6; ++i) {
    requests.push_back(asker.submit(100 + i));
    if (i >= 2) continue;
    while (counts.batches.load() != static_cast<std::uint64_t>(i) + 1) std::this_thread::yield();
  }
  EXPECT_EQ(counts.batches.load(), 2U);
  gate.unlock();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(asker.result(requests[i]), 100 + i);
  EXPECT_EQ(counts.batches.load(), 3U) << "the four that had to wait left together";
}

/// How many rows the listener of this process has taken, as its board tells whoever looks for it.
std::int64_t rows_taken() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(entry, gone).string();
    if (what.find(shm::kBoardName) == std::string::npos) continue;
    const shm::BoardReading board =
        shm::Board::read(os::Fd(::dup(std::stoi(entry.path().filename()))));
    if (board.kind != "listening service" || board.ended) continue;
    for (const auto& [name, value] : board.counters)
      if (name == "rows") return value;
  }
  return -1;
}

TEST(Relay, ADeadlineHoldsHereAndThere) {
  std::mutex gate;
  gate.lock();
  Distant distant([&](Server& server, Batch& batch) {
    const std::lock_guard lock(gate);
    answer(server, batch);
  });
  Here here(distant.listener.port());
  Asker asker(here.frontend.address());
  Request first = asker.submit(1);  // the model is busy with it
  while (distant.frontend.segment(0) == nullptr || distant.counts().batches.load() != 1)
    std::this_thread::yield();
  Request late = asker.submit(2, [](Rows& rows) { rows.deadline = os::deadline_after(100ms); });
  const os::Deadline deadline = test_deadline();
  while (rows_taken() != 2 && os::Clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(rows_taken(), 2) << "it has not come there";
  const os::Deadline expires_there = os::deadline_after(100ms);  // at the latest
  EXPECT_THROW(static_cast<void>(asker.client().wait(late)), DeadlineExceeded);
  std::this_thread::sleep_until(expires_there);
  gate.unlock();
  EXPECT_EQ(asker.result(first), 1);
  EXPECT_EQ(asker.ask(3), 3);
  EXPECT_EQ(distant.counts().expired_rows.load(), 1U) << "it was not computed there";
  EXPECT_EQ(distant.counts().rows.load(), 2U);
}

TEST(Relay, EnvironmentsOfDifferentClientsAreDifferentOnesThere) {
  struct Seen {
    std::uint32_t client;
    std::int32_t env;
    bool reset;
  };
  std::mutex mutex;
  std::vector<Seen> seen;
  Distant distant([&](Server& server, Batch& batch) {
    {
      const std::lock_guard lock(mutex);
      for (const BatchRow& row : batch.rows) seen.push_back({row.client, row.env, row.reset});
    }
    answer(server, batch);
  });
  const auto last = [&] {
    const std::lock_guard lock(mutex);
    return seen.back();
  };
  Here here(distant.listener.port());
  Here another(distant.listener.port());
  std::set<std::pair<std::uint32_t, std::int32_t>> keys;
  for (const std::string& address : {here.frontend.address(), another.frontend.address()}) {
    Asker one(address), two(address);
    for (Asker* asker : {&one, &two}) {
      for (const int env : {0, 1}) {
        Request request = asker->submit(1, [&](Rows& rows) { rows.env = env; });
        ASSERT_EQ(asker->result(request), 1);
        EXPECT_TRUE(last().reset) << "whoever comes first begins anew";
        keys.insert({last().client, last().env});
        request = asker->submit(1, [&](Rows& rows) { rows.env = env; });
        ASSERT_EQ(asker->result(request), 1);
        EXPECT_FALSE(last().reset);
        EXPECT_FALSE(keys.insert({last().client, last().env}).second);
      }
    }
    Request request = one.submit(1, [&](Rows& rows) { rows.reset = true; });
    ASSERT_EQ(one.result(request), 1);
    EXPECT_TRUE(last().reset);
  }
  EXPECT_EQ(keys.size(), 8U);
}

TEST(Relay, WhoIsNewBeginsAnewAlsoWhereItsFirstRowHasNoTimeLeft) {
  std::mutex gate;
  std::vector<bool> resets;
  Distant distant([&](Server& server, Batch& batch) {
    const std::lock_guard lock(gate);
    for (const BatchRow& row : batch.rows) resets.push_back(row.reset);
    answer(server, batch);
  });
  Here here(distant.listener.port());
  Asker busy(here.frontend.address());
  ASSERT_EQ(busy.ask(1), 1);
  bool reset = false;
  // The row has a little more time there than here, and may be computed yet.
  for (int tries = 0; distant.counts().expired_rows.load() == 0; ++tries) {
    ASSERT_LT(tries, 100);
    Asker fresh(here.frontend.address());
    fresh.queue();
    gate.lock();
    const auto batches = distant.counts().batches.load();
    Request first = busy.submit(1);
    while (distant.counts().batches.load() == batches) std::this_thread::yield();
    Request late = fresh.submit(2, [](Rows& rows) { rows.deadline = os::deadline_after(50ms); });
    EXPECT_THROW(static_cast<void>(fresh.client().wait(late)), DeadlineExceeded);
    gate.unlock();
    EXPECT_EQ(busy.result(first), 1);
    ASSERT_EQ(fresh.ask(3), 3);
    const std::lock_guard lock(gate);
    reset = resets.back();
  }
  EXPECT_TRUE(reset);
}

TEST(Relay, SeveralThreadsMayCloseIt) {
  Distant distant;
  for (int round = 0; round < 10; ++round) {
    Here here(distant.listener.port());
    std::latch together(3);
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        together.arrive_and_wait();
        here.relay->close();
      });
    }
  }
}

TEST(Relay, AClientThatDiesLeavesTheOthersTheirReplies) {
  const Word address;
  Child victim([&] {
    Asker asker(address.heard());
    for (std::int64_t i = 100;; ++i) {
      Request left = asker.submit(i);
      if (asker.ask(i) != i) return 3;
      asker.client().cancel(left);
    }
  });
  Distant distant;
  Here here(distant.listener.port());
  Asker survivor(here.frontend.address());
  ASSERT_EQ(survivor.ask(1), 1);
  address.tell(here.frontend.address());
  for (int i = 20; i < 70; ++i) ASSERT_EQ(survivor.ask(i), i);
  victim.kill();
  for (int i = 20; i < 70; ++i) ASSERT_EQ(survivor.ask(i), i);
}

TEST(Relay, AFarewellEndsItWithItsReason) {
  Distant distant;
  Here here(distant.listener.port());
  Asker asker(here.frontend.address());
  ASSERT_EQ(asker.ask(1), 1);
  distant.close("the model service was closed");
  EXPECT_THAT(here.end_reason(), HasSubstr("the model service was closed"));
  EXPECT_THROW(asker.ask(2), ServiceDied);
}

TEST(Relay, AFarewellRightAfterTheWelcomeEndsIt) {
  auto listener = os::StreamListener::bind(true, 0);
  ASSERT_TRUE(listener);
  std::jthread distant([&] {
    group::MessageStream peer(std::move(*listener->accept(test_deadline())));
    const group::Challenge challenge = group::make_challenge();
    peer.queue(group::pack_hello_challenge(challenge));
    std::vector<std::byte> message;
    while (peer.flush() && peer.recv(message) == group::MessageStream::Got::kNothing)
      std::this_thread::yield();
    const group::Hello hello = group::unpack_hello(message, challenge, "word");
    const std::vector<std::byte> terms = pack_terms({.models = {"echo"}});
    peer.queue(pack(group::Admission{"there", 7, terms}, hello.challenge, "word"));
    peer.queue(pack(group::Farewell{"it was short", true}));
    while (peer.flush() && peer.drop_received()) std::this_thread::yield();
  });
  Here here(listener->port());
  EXPECT_THAT(here.end_reason(), HasSubstr("it was short"));
}

TEST(Relay, TheEndOfTheDistantServerEndsIt) {
  const Word address;
  Child server([&] {
    serve_until_closed(echo_options(address.heard()), answer);
    return 0;
  });
  Frontend frontend;
  address.tell(frontend.address());
  Listener listener({.address = frontend.address(),
                     .host = "127.0.0.1",
                     .port = 0,
                     .secret = "word",
                     .version = "1",
                     .terms = {.models = {"echo"}, .max_batch = 8}});
  listener.start();
  Here here(listener.port());
  Asker asker(here.frontend.address());
  ASSERT_EQ(asker.ask(1), 1);
  server.kill();
  EXPECT_THAT(here.end_reason(), HasSubstr("the server of the model service has ended"));
  EXPECT_THROW(asker.ask(2), ServiceDied);
  listener.close("the test is over");
}

TEST(Relay, AForkedChildMayDropItAndTheListener) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a sanitizer's memory may be locked for good in a child of many threads";
#endif
  Frontend frontend;
  auto listener =
      std::make_unique<Listener>(Listener::Options{.address = frontend.address(),
                                                   .host = "127.0.0.1",
                                                   .port = 0,
                                                   .secret = "word",
                                                   .version = "1",
                                                   .terms = {.models = {"echo"}, .max_batch = 8}});
  listener->start();
  Here here(listener->port());
  Child child([&] {
    here.relay->close();
    here.relay.reset();
    listener.reset();
    return 0;
  });
  EXPECT_EQ(child.join(), (os::ProcessEnd{.code = 0}));
  EXPECT_EQ(here.relay->end_reason(), "");
  listener->close("the test is over");
  EXPECT_THAT(here.end_reason(), HasSubstr("the test is over"));
}

/// A service with its listener in a process of its own.
struct DistantProcess {
  DistantProcess() {
    const Word word;
    child = std::make_unique<Child>([&]() -> int {
      Distant distant;
      word.tell(std::to_string(distant.listener.port()));
      for (;;) ::pause();
    });
    port = std::stoi(word.heard());
  }
  std::unique_ptr<Child> child;
  int port = 0;
};

TEST(Relay, ADistantServiceThatIsKilledEndsIt) {
  DistantProcess distant;
  Here here(distant.port);
  Asker asker(here.frontend.address());
  ASSERT_EQ(asker.ask(1), 1);
  Request under_way = asker.submit(2);
  distant.child->kill();
  EXPECT_THAT(here.end_reason(), HasSubstr("its connection has ended"));
  while (!under_way.rows.empty()) {
    try {
      if (asker.client().wait(under_way)) asker.client().release(under_way);  // it was answered yet
    } catch (const ServiceDied&) {
      break;
    }
  }
  EXPECT_THROW(asker.ask(3), ServiceDied);
}

TEST(Relay, ADistantServiceThatIsSilentEndsIt) {
  DistantProcess distant;
  Here here(distant.port);
  Asker asker(here.frontend.address());
  ASSERT_EQ(asker.ask(1), 1);
  ASSERT_TRUE(os::testing::stop(distant.child->pid()));
  Request under_way = asker.submit(2);
  EXPECT_THROW(static_cast<void>(asker.client().wait(under_way)), ServiceDied);
  EXPECT_THAT(here.end_reason(), HasSubstr("it was stopped, or its host or the network"));
}

TEST(Listener, ARelayThatDiesIsNoClientAnyMore) {
  const Word port;
  Child host([&] {
    Here here(std::stoi(port.heard()));
    Asker asker(here.frontend.address());
    for (std::int64_t i = 100;; ++i)
      if (asker.ask(i) != i) return 3;
  });
  Distant distant;
  port.tell(std::to_string(distant.listener.port()));
  Here here(distant.listener.port());
  Asker asker(here.frontend.address());
  ASSERT_EQ(asker.ask(1), 1);
  distant.wait_for_clients(2);
  host.kill();
  distant.wait_for_clients(1);
  EXPECT_EQ(asker.ask(2), 2);
}

TEST(Listener, SeveralThreadsMayCloseIt) {
  for (int round = 0; round < 10; ++round) {
    Distant distant;
    std::latch together(3);
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        together.arrive_and_wait();
        distant.listener.close("the test is over");
      });
    }
  }
}

TEST(Listener, WithoutAThreadARelayIsRefusedAndTheOthersAreAnswered) {
  Distant distant;
  Here here(distant.listener.port());
  Asker asker(here.frontend.address());
  ASSERT_EQ(asker.ask(1), 1);
  Frontend local;
  {
    const NoThreads none;
    EXPECT_THAT(message_of([&] {
                  const Relay relay(options_for(distant.listener.port(), local.address()));
                }),
                HasSubstr("start a thread that asks the models"));
  }
  EXPECT_EQ(asker.ask(2), 2);
  Here another(distant.listener.port());
  EXPECT_EQ(Asker(another.frontend.address()).ask(3), 3);
}

TEST(Listener, WithoutAThreadAQueueIsRefusedAndMayBeOpenedLater) {
  Distant distant;
  Here here(distant.listener.port());
  Asker asker(here.frontend.address()), other(here.frontend.address(), 5);
  ASSERT_EQ(asker.ask(1), 1);
  {
    const NoThreads none;
    EXPECT_THAT(message_of([&] { other.queue(); }),
                HasSubstr("start a thread that asks the models"));
  }
  EXPECT_EQ(asker.ask(2), 2);
  EXPECT_EQ(other.ask(3), 3);
}

TEST(Listener, WhoIsNotToAskIsToldWhy) {
  Distant distant;
  Frontend local;
  const auto told = [&](const std::function<void(Relay::Options&)>& change) {
    Relay::Options options = options_for(distant.listener.port(), local.address());
    change(options);
    return message_of([&] { const Relay relay(options); });
  };
  EXPECT_THAT(told([](auto& options) { options.secret = "another"; }),
              HasSubstr("SHOAL_GROUP_SECRET is another"));
  EXPECT_THAT(told([](auto& options) { options.secret = ""; }),
              HasSubstr("SHOAL_GROUP_SECRET is another"));
  EXPECT_THAT(told([](auto& options) { options.version = "0"; }),
              HasSubstr("it has Shoal 0, the model service 1: install the same on both"));
  EXPECT_THAT(told([](auto& options) {
                options.port = 1;
                options.timeout = 100ms;
              }),
              HasSubstr("nobody has answered there"));
  EXPECT_THAT(told([](auto& options) { options.host = "192.0.2.1", options.secret = ""; }),
              HasSubstr("without a secret"));
  group::MessageClient::Options collector;
  collector.host = "127.0.0.1";
  collector.port = distant.listener.port();
  collector.secret = "word";
  collector.longest = 1000;
  collector.hello.purpose = "collect";
  EXPECT_THAT(message_of([&] { const group::MessageClient client(collector); }),
              HasSubstr("it comes to collect; here is a model service"));
}

TEST(Listener, ARelayThatSendsWhatItMayNotIsSentAway) {
  Distant distant;
  const RowSpec spec = rows_of(4).inputs;
  const std::int64_t row[4] = {};
  const auto rows = [&](std::uint32_t queue) {
    const RowTag tag;
    return pack_rows(
        {.queue = queue, .rows = 1, .number = 1}, {&tag, 1}, spec,
        [&](std::size_t, std::uint32_t) { return reinterpret_cast<const std::byte*>(row); });
  };
  const auto told = [&](const std::vector<std::vector<std::byte>>& messages) {
    group::MessageClient::Options options;
    options.host = "127.0.0.1";
    options.port = distant.listener.port();
    options.secret = "word";
    options.hello.version = "1";
    options.hello.purpose = kAskModels;
    options.longest = kLongestRemote;
    group::MessageClient client(options);
    for (const auto& message : messages) client.send(message);
    std::vector<std::byte> got;
    return message_of([&] {
      while (client.recv(got, test_deadline()) == group::MessageClient::Got::kMessage) {
        if (remote_kind_of(got) == RemoteKind::kEnded) throw Error(read_ended(got));
      }
    });
  };
  EXPECT_THAT(told({rows(0)}), HasSubstr("a queue that it has not opened"));
  EXPECT_THAT(told({pack_ended("no")}), HasSubstr("it sent what only a service sends"));
  Open open{.kind = rows_of(4), .slots = 1, .example = std::vector<std::byte>(31)};
  EXPECT_THAT(told({pack_remote(RemoteKind::kOpen, 0, open.encode())}),
              HasSubstr("described its rows wrongly"));
  open.kind.structure = {std::byte{0x80}};
  EXPECT_THAT(told({pack_remote(RemoteKind::kOpen, 0, open.encode())}),
              HasSubstr("rows that cannot cross"));
  Here here(distant.listener.port());
  EXPECT_EQ(Asker(here.frontend.address()).ask(1), 1) << "the others are answered";
}

std::vector<std::byte> open_message(std::uint32_t queue, std::int64_t numbers) {
  const std::size_t bytes = static_cast<std::size_t>(numbers) * sizeof(std::int64_t);
  const Open open{.kind = rows_of(numbers), .slots = 1, .example = std::vector<std::byte>(bytes)};
  return pack_remote(RemoteKind::kOpen, queue, open.encode());
}

/// What a relay that opens a queue, and then asks for these, is told at its end.
std::string told_after_opening(int port, const std::vector<std::vector<std::byte>>& messages) {
  group::MessageClient::Options options;
  options.host = "127.0.0.1";
  options.port = port;
  options.secret = "word";
  options.hello.version = "1";
  options.hello.purpose = kAskModels;
  options.longest = kLongestRemote;
  group::MessageClient client(options);
  std::vector<std::byte> got;
  client.send(open_message(0, 4));
  if (client.recv(got, test_deadline()) != group::MessageClient::Got::kMessage ||
      remote_kind_of(got) != RemoteKind::kOpened)
    return "it was not opened";
  for (const auto& message : messages) client.send(message);
  return message_of([&] {
    while (client.recv(got, test_deadline()) == group::MessageClient::Got::kMessage) {
      if (remote_kind_of(got) == RemoteKind::kEnded) throw Error(read_ended(got));
    }
  });
}

TEST(Listener, AKindOfRowsHasOneQueueAndOneIsOpenedAtATime) {
  Distant distant;
  const int port = distant.listener.port();
  EXPECT_THAT(told_after_opening(port, {open_message(1, 4)}), HasSubstr("that it has opened"));
  EXPECT_THAT(told_after_opening(port, {open_message(0, 5)}), HasSubstr("that it has opened"));
  EXPECT_THAT(told_after_opening(port, {open_message(1, 5), open_message(2, 6)}),
              HasSubstr("before it had the answer about another"));
}

/// A relay that has been let in.
group::MessageStream come_by_hand(int port) {
  group::MessageStream peer(std::move(*os::Stream::connect("127.0.0.1", port, test_deadline())));
  std::vector<std::byte> message;
  while (peer.recv(message) != group::MessageStream::Got::kMessage) std::this_thread::yield();
  const group::Hello hello{
      .version = "1", .purpose = std::string(kAskModels), .run = "", .host = "elsewhere", .pid = 7};
  peer.queue(pack(hello, group::unpack_hello_challenge(message), "word"));
  return peer;
}

TEST(Listener, ARelayThatLeavesItsRepliesUnreadIsSentAway) {
  constexpr std::int64_t kNumbers = 65'536;  // half a megabyte a row
  constexpr std::uint32_t kRows = 8;
  Distant distant(answer, kRows);
  group::MessageStream peer = come_by_hand(distant.listener.port());
  peer.queue(open_message(0, kNumbers));
  std::vector<std::byte> message;
  do {
    ASSERT_TRUE(peer.flush());
    while (peer.recv(message) != group::MessageStream::Got::kMessage) std::this_thread::yield();
  } while (group::kind_byte_of(message) != static_cast<std::uint8_t>(RemoteKind::kOpened));
  const auto clients = [&] { return distant.frontend.segment(0)->clients(); };
  const std::vector<std::int64_t> rows(kNumbers * kRows);
  const std::vector<RowTag> tags(kRows);
  for (std::uint32_t batch = 1; batch <= 64 && clients() == 1; ++batch) {
    peer.queue(pack_rows({.queue = 0, .rows = kRows, .number = batch}, tags,
                         rows_of(kNumbers).inputs, [&](std::size_t, std::uint32_t) {
                           return reinterpret_cast<const std::byte*>(rows.data());
                         }));
    while (peer.waiting() > 0 && peer.flush()) std::this_thread::yield();
    while (clients() == 1 && distant.counts().rows.load() < batch * kRows)
      std::this_thread::yield();
  }
  EXPECT_EQ(clients(), 0U);
}

}  // namespace
}  // namespace shoal::serve
