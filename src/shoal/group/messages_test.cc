#include "shoal/group/messages.h"

#include <gtest/gtest.h>

#include "shoal/os/error.h"

namespace shoal::group {
namespace {

Greeting some_greeting() {
  return {.attempt = "run 7",
          .rank = 2,
          .size = 4,
          .local_rank = 0,
          .for_data = true,
          .members = {{2, "host-b", 71}, {3, "host-b", 72}},
          .challenge = make_challenge(),
          .port = 29'501};
}

TEST(Messages, AGreetingArrivesAsItWasSent) {
  const Greeting sent = some_greeting();
  const Challenge against = make_challenge();
  const auto message = pack(sent, against, "secret");
  EXPECT_EQ(kind_of(message), MessageKind::kGreeting);
  const Greeting received = unpack_greeting(message, against, "secret");
  EXPECT_EQ(received.attempt, sent.attempt);
  EXPECT_EQ(received.rank, 2);
  EXPECT_EQ(received.size, 4);
  EXPECT_TRUE(received.for_data);
  EXPECT_EQ(received.members, sent.members);
  EXPECT_EQ(received.challenge, sent.challenge);
  EXPECT_EQ(received.port, sent.port);
}

TEST(Messages, ASealIsOfOneSecretAndOneChallengeAndTheseBytes) {
  const Challenge against = make_challenge();
  auto message = pack(some_greeting(), against, "secret");
  EXPECT_THROW(unpack_greeting(message, against, "another"), Error);
  EXPECT_THROW(unpack_greeting(message, against, ""), Error);
  EXPECT_THROW(unpack_greeting(message, make_challenge(), "secret"), Error) << "recorded before";
  message[5] ^= std::byte{1};
  EXPECT_THROW(unpack_greeting(message, against, "secret"), Error);
}

TEST(Messages, AWelcomeArrivesAsItWasSent) {
  const Welcome sent{
      .members = {{0, "a", 1}, {1, "b", 2}}, .hosts = {{0}, {1}}, .places = {{}, {"10.0.0.2", 7}}};
  const Challenge against = make_challenge();
  const Welcome received = unpack_welcome(pack(sent, against, "s"), against, "s");
  EXPECT_EQ(received.members, sent.members);
  EXPECT_EQ(received.hosts, sent.hosts);
  EXPECT_EQ(received.places, sent.places);
}

TEST(Messages, TheOthersArriveAsTheyWereSent) {
  const Challenge challenge = make_challenge();
  EXPECT_EQ(unpack_challenge(pack(challenge)), challenge);
  EXPECT_EQ(unpack_refusal(pack_refusal("no")), "no");
  EXPECT_EQ(unpack_farewell(pack_farewell(3)), 3);
  const auto arrived = pack(MessageKind::kArrived, Round{1ULL << 40, 3});
  EXPECT_EQ(unpack_round(arrived, MessageKind::kArrived).number, 1ULL << 40);
  EXPECT_EQ(unpack_round(arrived, MessageKind::kArrived).needed, 3U);
  EXPECT_THROW(unpack_round(arrived, MessageKind::kEnough), Error);
  const Loss loss = unpack_loss(pack(Loss{2, "stopped", 4.5}));
  EXPECT_EQ(loss.rank, 2);
  EXPECT_EQ(loss.cause, "stopped");
  EXPECT_EQ(loss.silent_seconds, 4.5);
}

TEST(Messages, WhatIsNoneOfOursIsAnError) {
  EXPECT_THROW(kind_of({}), Error);
  const auto refusal = pack_refusal("no");
  EXPECT_THROW(unpack_farewell(refusal), Error);
  EXPECT_THROW(unpack_refusal(std::span(refusal).first(3)), Error);
  EXPECT_THROW(unpack_greeting(std::span(refusal).first(3), {}, ""), Error);
}

}  // namespace
}  // namespace shoal::group
