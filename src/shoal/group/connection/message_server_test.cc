#include "shoal/group/connection/message_server.h"

#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <semaphore>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "shoal/group/connection/connection_lost.h"
#include "shoal/group/connection/message_client.h"
#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"

namespace shoal::group {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;
constexpr std::byte kOwn{kFirstOfOwn};

/// Admits all but those of the purpose "nonsense", and answers each message with itself.
class Echo final : public MessageServer::Owner {
 public:
  Bytes admit(MessageServer::Id, const Hello& hello) override {
    if (hello.purpose == "nonsense") throw Error("there is no such purpose");
    return {std::byte{42}};
  }
  void receive(MessageServer::Id id, Bytes& message) override {
    if (message.size() == 2) throw Error("two bytes are too few");
    server->send(id, std::make_shared<const Bytes>(message));
  }
  void lose(MessageServer::Id, const std::string& cause, bool left) override {
    const std::lock_guard lock(mutex);
    losses.emplace_back(cause, left);
    changed.notify_all();
  }
  void look() override {}

  std::pair<std::string, bool> await_loss() {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, 20s, [&] { return !losses.empty(); });
    return losses.empty() ? std::pair(std::string("none"), false) : losses.front();
  }

  MessageServer* server = nullptr;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<std::string, bool>> losses;
};

struct Served {
  explicit Served(std::string secret = "")
      : server({.host = "127.0.0.1",
                .port = 0,
                .secret = std::move(secret),
                .longest = std::size_t{32} << 20}) {
    owner.server = &server;
    server.start(owner);
  }
  MessageClient::Options options(std::string secret = "") const {
    MessageClient::Options options;
    options.host = "127.0.0.1";
    options.port = server.port();
    options.secret = std::move(secret);
    options.hello.purpose = "test";
    options.longest = std::size_t{32} << 20;
    return options;
  }

  Echo owner;
  MessageServer server;
};

TEST(MessageServer, MessagesOfAnySizeComeBackAsTheyWereSent) {
  const Served served("word");
  MessageClient client(served.options("word"));
  EXPECT_EQ(client.content(), Bytes{std::byte{42}});
  for (const std::size_t size : {3U, 1'000U, 70'000U, 20'000'000U}) {
    Bytes sent(size, kOwn);
    for (std::size_t i = 1; i < size; ++i) sent[i] = static_cast<std::byte>(i * 7);
    client.send(sent);
    Bytes got;
    ASSERT_EQ(client.recv(got, os::deadline_after(60s)), MessageClient::Got::kMessage);
    EXPECT_TRUE(got == sent) << size;
  }
  EXPECT_GT(served.server.received_bytes(), 20'000'000U);
}

TEST(MessageServer, WhoDoesNotKnowTheSecretIsRefusedAndToldSo) {
  const Served served("word");
  for (const std::string secret : {"", "another"}) {
    try {
      const MessageClient client(served.options(secret));
      FAIL() << "it was let in";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("SHOAL_GROUP_SECRET is another"), std::string::npos)
          << error.what();
    }
  }
}

TEST(MessageServer, AServerThatDoesNotKnowTheSecretIsNotBelieved) {
  const Served served;  // takes anybody with no secret, so it is told a wrong one
  EXPECT_THROW(MessageClient(served.options("word")), Error);
}

TEST(MessageServer, BeyondTheLoopbackThereHasToBeASecret) {
  EXPECT_THROW(MessageServer({.host = "0.0.0.0", .port = 0, .secret = "", .longest = 1}),
               InvalidArgument);
  MessageClient::Options options;
  options.host = "192.0.2.1";
  EXPECT_THROW(MessageClient{options}, InvalidArgument);
}

TEST(MessageServer, APortThatIsTakenIsAnError) {
  const Served served;
  EXPECT_THROW(MessageServer(
                   {.host = "127.0.0.1", .port = served.server.port(), .secret = "", .longest = 1}),
               Error);
}

std::string why_refused(const std::string& purpose) {
  const Served served;
  auto options = served.options();
  options.hello.purpose = purpose;
  try {
    const MessageClient client(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "it was let in";
}

TEST(MessageServer, WhomTheOwnerRefusesIsToldWhy) {
  EXPECT_NE(why_refused("nonsense").find("no such purpose"), std::string::npos);
}

TEST(MessageServer, AGreetingThatIsNoTextIsRefused) {
  EXPECT_NE(why_refused("\xff\xfe").find("no text"), std::string::npos);
}

TEST(MessageServer, WhoSendsWhatIsNoMessageIsSentAwayAndToldWhy) {
  Served served;
  MessageClient client(served.options());
  client.send(Bytes(2, kOwn));
  Bytes got;
  try {
    static_cast<void>(client.recv(got, os::deadline_after(20s)));
    FAIL() << "it stayed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("two bytes are too few"), std::string::npos);
  }
  EXPECT_NE(served.owner.await_loss().first.find("sent away"), std::string::npos);
}

TEST(MessageServer, WhoTakesLeaveIsNotLost) {
  Served served;
  MessageClient client(served.options());
  client.leave({"it has had enough", true});
  EXPECT_EQ(served.owner.await_loss(), std::pair(std::string("it has had enough"), true));
}

TEST(MessageServer, AFarewellEndsTheClientsWait) {
  Served served;
  MessageClient client(served.options());
  served.server.close({"the run has ended", true});
  Bytes got;
  ASSERT_EQ(client.recv(got, os::deadline_after(20s)), MessageClient::Got::kFarewell);
  EXPECT_EQ(client.farewell().why, "the run has ended");
  EXPECT_TRUE(client.farewell().final);
}

TEST(MessageServer, OneThatWasClosedLeavesItsPortToOthers) {
  Served served;
  served.server.close({"the run has ended", true});
  EXPECT_TRUE(os::StreamListener::bind(true, served.server.port()));
  MessageServer never_started({.host = "127.0.0.1", .port = 0, .secret = "", .longest = 1});
  never_started.close({"it was not needed", true});
  EXPECT_TRUE(os::StreamListener::bind(true, never_started.port()));
}

TEST(MessageServer, ManyWhoSayNothingKeepNobodyOut) {
  const Served served;
  std::vector<os::Stream> silent;
  for (int i = 0; i < 300; ++i) {
    auto stream = os::Stream::connect("127.0.0.1", served.server.port(), os::deadline_after(20s));
    ASSERT_TRUE(stream);
    silent.push_back(std::move(*stream));
  }
  auto options = served.options();
  options.timeout = 5s;  // less than they have to say who they are
  MessageClient client(options);
  client.send(Bytes(3, kOwn));
  Bytes got;
  EXPECT_EQ(client.recv(got, os::deadline_after(20s)), MessageClient::Got::kMessage);
}

/// Answers the first message with a megabyte, and then hears nothing until it may go on.
class Busy final : public MessageServer::Owner {
 public:
  Bytes admit(MessageServer::Id, const Hello&) override { return {}; }
  void receive(MessageServer::Id id, Bytes&) override {
    if (std::exchange(busy, true)) return;
    server->send(id, std::make_shared<const Bytes>(1'000'000, kOwn));
    began.release();
    go_on.acquire();
  }
  void lose(MessageServer::Id, const std::string&, bool) override {}
  void look() override {}

  MessageServer* server = nullptr;
  bool busy = false;
  std::binary_semaphore began{0}, go_on{0};
};

/// As a client does before its messages.
MessageStream come_by_hand(int port) {
  MessageStream peer(std::move(*os::Stream::connect("127.0.0.1", port, os::deadline_after(10s))));
  peer.set_longest(std::size_t{32} << 20);
  Bytes message;
  while (peer.recv(message) != MessageStream::Got::kMessage) std::this_thread::yield();
  peer.queue(pack(Hello{.version = "", .purpose = "", .run = "", .host = "elsewhere", .pid = 7},
                  unpack_hello_challenge(message), ""));
  return peer;
}

TEST(MessageServer, AFarewellArrivesThoughTheServerHasNotReadEverything) {
  Busy owner;
  MessageServer server(
      {.host = "127.0.0.1", .port = 0, .secret = "", .longest = std::size_t{32} << 20});
  owner.server = &server;
  server.start(owner);
  MessageStream peer = come_by_hand(server.port());
  peer.queue(Bytes(3, kOwn));
  ASSERT_TRUE(peer.flush());
  owner.began.acquire();
  for (int i = 0; i < 1000; ++i) peer.queue(Bytes(3, kOwn));  // of which it reads one at a time
  ASSERT_TRUE(peer.flush());
  std::jthread closing([&] { server.close({"the run has ended", true}); });
  owner.go_on.release();
  Bytes message;
  MessageStream::Got got{};
  do {
    got = peer.recv(message);
  } while (got == MessageStream::Got::kNothing ||
           (got == MessageStream::Got::kMessage &&
            kind_byte_of(message) != static_cast<std::uint8_t>(HelloKind::kFarewell)));
  ASSERT_EQ(got, MessageStream::Got::kMessage);
  EXPECT_EQ(unpack_hello_farewell(message).why, "the run has ended");
}

TEST(MessageServer, AForkedChildMayDropItAndAClient) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a sanitizer's memory may be locked for good in a child of many threads";
#endif
  auto served = std::make_unique<Served>();
  auto client = std::make_unique<MessageClient>(served->options());
  os::testing::Child child([&] {
    client.reset();
    served.reset();
    return 0;
  });
  EXPECT_EQ(child.join(), (os::ProcessEnd{.code = 0}));
  client->send(Bytes(3, kOwn));
  Bytes got;
  EXPECT_EQ(client->recv(got, os::deadline_after(20s)), MessageClient::Got::kMessage);
}

TEST(MessageServer, ASilentPeerIsLostWithinSeconds) {
  // Speaks as far as the hello, and then says nothing: as one that was stopped.
  const Served served;
  auto stream = os::Stream::connect("127.0.0.1", served.server.port(), os::deadline_after(10s));
  ASSERT_TRUE(stream);
  MessageStream silent(std::move(*stream));
  Bytes message;
  while (silent.recv(message) != MessageStream::Got::kMessage) {
  }
  silent.queue(pack(Hello{.version = "", .purpose = "", .run = "", .host = "elsewhere", .pid = 7},
                    unpack_hello_challenge(message), ""));
  ASSERT_TRUE(silent.flush());
  auto& owner = const_cast<Served&>(served).owner;
  const auto [cause, left] = owner.await_loss();
  EXPECT_NE(cause.find("has not been heard"), std::string::npos) << cause;
  EXPECT_FALSE(left);
}

TEST(MessageClient, WhereNobodyListensItSaysSoAfterItsTime) {
  MessageClient::Options options;
  {
    const Served served;
    options = served.options();
  }
  options.timeout = 300ms;
  EXPECT_THROW(MessageClient{options}, TimedOut);
}

/// Lets a client in, as a server does, unless it has gone.
void let_in_by_hand(MessageStream& peer) {
  const Challenge challenge = make_challenge();
  peer.queue(pack_hello_challenge(challenge));
  if (!peer.flush()) return;
  Bytes message;
  MessageStream::Got got{};
  while ((got = peer.recv(message)) == MessageStream::Got::kNothing) std::this_thread::yield();
  if (got == MessageStream::Got::kClosed) return;
  const Hello hello = unpack_hello(message, challenge, "");
  peer.queue(pack(Admission{"there", 7, {}}, hello.challenge, ""));
  ASSERT_TRUE(peer.flush());
}

TEST(MessageClient, WhoAnswersTooLateIsNotWaitedFor) {
  auto listener = os::StreamListener::bind(true, 0);
  ASSERT_TRUE(listener);
  std::binary_semaphore gave_up{0};
  std::jthread server([&] {
    MessageStream peer(std::move(*listener->accept(os::deadline_after(10s))));
    static_cast<void>(gave_up.try_acquire_for(5s));  // it answers then, and not before
    let_in_by_hand(peer);
  });
  MessageClient::Options options;
  options.host = "127.0.0.1";
  options.port = listener->port();
  options.longest = 1000;
  options.timeout = 300ms;
  EXPECT_THROW(MessageClient{options}, TimedOut);
  gave_up.release();
}

TEST(MessageClient, AServerThatBeginsWithALongMessageIsNotHeard) {
  auto listener = os::StreamListener::bind(true, 0);
  ASSERT_TRUE(listener);
  std::jthread server([&] {
    auto stream = listener->accept(os::deadline_after(10s));
    const std::uint64_t announced = 1 << 20;
    ASSERT_EQ(stream->send(std::as_bytes(std::span(&announced, 1)), os::deadline_after(10s)),
              os::StreamOutcome::kDone);
    std::array<std::byte, 1> end{};
    EXPECT_EQ(stream->recv(end, os::deadline_after(20s)), os::StreamOutcome::kClosed);
  });
  MessageClient::Options options;
  options.host = "127.0.0.1";
  options.port = listener->port();
  options.longest = std::size_t{32} << 20;
  try {
    const MessageClient client(options);
    FAIL() << "it was let in";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("where 65536 is the most"), std::string::npos)
        << error.what();
  }
}

TEST(MessageClient, AServerThatIsGoneWithoutAFarewellIsLost) {
  // One that ends its connection right after the welcome.
  auto listener = os::StreamListener::bind(true, 0);
  ASSERT_TRUE(listener);
  std::thread server([&] {
    MessageStream peer(std::move(*listener->accept(os::deadline_after(10s))));
    let_in_by_hand(peer);
  });
  MessageClient::Options options;
  options.host = "127.0.0.1";
  options.port = listener->port();
  options.longest = 1000;
  MessageClient client(options);
  server.join();
  Bytes got;
  try {
    static_cast<void>(client.recv(got, os::deadline_after(20s)));
    FAIL() << "it was not lost";
  } catch (const ConnectionLost& lost) {
    EXPECT_EQ(lost.member().pid, 7);
    EXPECT_EQ(lost.member().host, "there");
  }
}

}  // namespace
}  // namespace shoal::group
