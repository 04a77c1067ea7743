#include "shoal/group/rendezvous/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shoal/group/messages.h"
#include "shoal/group/testing/layouts.h"
#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"

namespace shoal::group {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// How the attempt to join ends; empty: well.
std::string outcome(const Launch& launch, const JoinOptions& options) {
  try {
    static_cast<void>(Group::join(launch, options));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// A stranger's connection to rank 0, once that listens.
os::Stream connected_to(const Launch& root) {
  while (true)
    if (auto stream = os::Stream::connect("127.0.0.1", root.ports[0], os::deadline_after(1s)))
      return std::move(*stream);
}

TEST(Rendezvous, WhoDoesNotComeIsNamed) {
  const auto launches = testing::launches({3});
  EXPECT_THAT(outcome(launches[0], {.timeout = 50ms}), HasSubstr("local ranks 1, 2 did not come"));
  EXPECT_THAT(outcome(launches[1], {.timeout = 50ms}),
              HasSubstr("the first rank of this host did not answer"));
  const auto apart = testing::launches({1, 1});
  EXPECT_THAT(outcome(apart[0], {.timeout = 50ms}), HasSubstr("rank 1 did not come"));
  EXPECT_THAT(outcome(apart[1], {.timeout = 50ms}), HasSubstr("rank 0 at 127.0.0.1"));
}

TEST(Rendezvous, ARankOfAnotherAttemptIsRefusedAndToldWhy) {
  auto launches = testing::launches({1, 1});
  launches[1].attempt = "the one before";
  std::string first;
  std::jthread root([&] { first = outcome(launches[0], {.timeout = 500ms}); });
  EXPECT_THAT(outcome(launches[1], {.timeout = 400ms}),
              AllOf(HasSubstr("here is attempt"), HasSubstr("the one before")));
  root.join();
  EXPECT_THAT(first, HasSubstr("rank 1 did not come"));
}

TEST(Rendezvous, ARankWithoutTheSecretIsRefused) {
  const auto launches = testing::launches({1, 1});
  std::jthread root(
      [&] { static_cast<void>(outcome(launches[0], {.timeout = 500ms, .secret = "a"})); });
  EXPECT_THAT(outcome(launches[1], {.timeout = 400ms, .secret = "b"}),
              HasSubstr("SHOAL_GROUP_SECRET"));
}

TEST(Rendezvous, AWrongSecretIsToldOfOnBothSidesWhileTheyWait) {
  const auto launches = testing::launches({1, 1});
  ::testing::internal::CaptureStderr();
  std::jthread root(
      [&] { static_cast<void>(outcome(launches[0], {.timeout = 1s, .secret = "a"})); });
  static_cast<void>(outcome(launches[1], {.timeout = 900ms, .secret = "b"}));
  root.join();
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const char* text : {"[warning] a rank was refused: ", "did not take it in: "}) {
    const auto first = said.find(text);
    ASSERT_NE(first, std::string::npos) << text << said;
    EXPECT_EQ(said.find(text, first + 1), std::string::npos) << said;
    EXPECT_THAT(said.substr(first, said.find('\n', first) - first),
                HasSubstr("SHOAL_GROUP_SECRET"));
  }
}

TEST(Rendezvous, WithTheSameSecretTheyMeet) {
  const auto launches = testing::launches({1, 1});
  std::jthread root([&] { EXPECT_EQ(outcome(launches[0], {.timeout = 30s, .secret = "a"}), ""); });
  EXPECT_EQ(outcome(launches[1], {.timeout = 30s, .secret = "a"}), "");
}

TEST(Rendezvous, BeyondTheLoopbackASecretIsNeeded) {
  auto launches = testing::launches({1, 1});
  launches[0].address = "192.0.2.1";
  EXPECT_THAT(outcome(launches[0], {.timeout = 50ms}), HasSubstr("SHOAL_GROUP_SECRET"));
}

TEST(Rendezvous, ARank0WhoseAddressIsUnknownIsAnErrorThatSaysWhereItComesFrom) {
  auto launches = testing::launches({1, 1});
  launches[1].address = "no-such-host.invalid";
  EXPECT_THAT(outcome(launches[1], {.timeout = 50ms}),
              AllOf(HasSubstr("no-such-host.invalid"), HasSubstr("SHOAL_GROUP_ADDR=host:port")));
}

TEST(Rendezvous, APortThatAnotherProgramHasIsPassedOver) {
  const auto launches = testing::launches({1, 1});
  const auto taken = os::StreamListener::bind(true, launches[0].ports[0]);
  ASSERT_TRUE(taken);
  std::jthread root([&] { EXPECT_EQ(outcome(launches[0], {.timeout = 60s}), ""); });
  EXPECT_EQ(outcome(launches[1], {.timeout = 60s}), "");
}

TEST(Rendezvous, AStrangerWhoSaysNothingKeepsNobodyFromMeeting) {
  const auto launches = testing::launches({1, 1});
  std::jthread root([&] { EXPECT_EQ(outcome(launches[0], {.timeout = 30s}), ""); });
  auto stranger = connected_to(launches[0]);
  EXPECT_EQ(outcome(launches[1], {.timeout = 30s}), "");
}

TEST(Rendezvous, AStrangerCannotFillTheMemoryOfRank0) {
  const auto launches = testing::launches({1, 1});
  std::jthread root([&] { EXPECT_EQ(outcome(launches[0], {.timeout = 30s}), ""); });
  auto stranger = connected_to(launches[0]);
  const std::uint32_t announced = 1 << 20;
  ASSERT_EQ(stranger.send(std::as_bytes(std::span(&announced, 1)), os::testing::test_deadline()),
            os::StreamOutcome::kDone);
  Link link(std::move(stranger));
  os::Message message;
  for (const MessageKind kind : {MessageKind::kChallenge, MessageKind::kRefused}) {
    ASSERT_EQ(link.recv(message, os::deadline_after(10s)), os::RecvOutcome::kMessage);
    ASSERT_EQ(kind_of(message.bytes), kind);
  }
  EXPECT_THAT(unpack_refusal(message.bytes), HasSubstr("where 65536 is the most"));
  EXPECT_EQ(outcome(launches[1], {.timeout = 30s}), "");
}

TEST(Rendezvous, ASecondRankOfTheSameNumberIsRefused) {
  auto launches = testing::launches({3});
  std::string twin;
  std::vector<std::jthread> ranks;
  ranks.emplace_back([&] { static_cast<void>(outcome(launches[0], {.timeout = 1s})); });
  for (int i = 0; i < 2; ++i)
    ranks.emplace_back([&, i] {
      const auto text = outcome(launches[1], {.timeout = 700ms});
      if (text.find("is there already") != std::string::npos) twin = text;
    });
  ranks.clear();
  EXPECT_THAT(twin, HasSubstr("rank 1 is there already"));
}

TEST(Rendezvous, ASecondRankOfTheSameLocalNumberIsRefused) {
  auto launches = testing::launches({3});
  launches[2].local_rank = 1;
  std::vector<std::string> ends(3);
  std::vector<std::jthread> ranks;
  ranks.emplace_back([&] { ends[0] = outcome(launches[0], {.timeout = 1s}); });
  for (const std::size_t i : {1, 2})
    ranks.emplace_back([&, i] { ends[i] = outcome(launches[i], {.timeout = 700ms}); });
  ranks.clear();
  EXPECT_THAT(ends[0], HasSubstr("local rank 2 did not come"));
  EXPECT_THAT(ends[1] + ends[2], HasSubstr("local rank 1 is rank "));
}

bool is_of_this_machine(const char* address) {
  try {
    return os::StreamListener::bind_host(address, 0).has_value();
  } catch (const Error&) {  // a machine without IPv6
    return false;
  }
}

TEST(Rendezvous, EveryAddressOfTheLoopbackWillDo) {
  for (const char* address : {"127.0.1.1", "::1", "localhost"}) {
    if (!is_of_this_machine(address)) continue;
    auto launches = testing::launches({1, 1, 1});
    for (Launch& launch : launches) launch.address = address;
    std::vector<std::jthread> ranks;
    for (const Launch& launch : launches)
      ranks.emplace_back([&] { EXPECT_EQ(outcome(launch, {.timeout = 60s}), "") << address; });
  }
}

TEST(Rendezvous, ANameOfRank0ThatIsTheLoopbackOnItsOwnMachineOnlyIsHeardBeyondIt) {
  auto launches = testing::launches({1, 1});
  launches[0].address = "0x7f.1";     // as a name that its machine gives itself
  launches[1].address = "127.0.0.2";  // as the address that others know
  std::jthread root([&] { EXPECT_EQ(outcome(launches[0], {.timeout = 60s, .secret = "a"}), ""); });
  EXPECT_EQ(outcome(launches[1], {.timeout = 60s, .secret = "a"}), "");
}

TEST(Rendezvous, WhoeverWaitsWithoutEndIsFound) {
  const auto launches = testing::launches({1, 1});
  const auto endless = std::chrono::nanoseconds::max();
  std::jthread root([&] { EXPECT_EQ(outcome(launches[0], {.timeout = endless}), ""); });
  EXPECT_EQ(outcome(launches[1], {.timeout = endless}), "");
}

TEST(Rendezvous, OneThatIsKilledBeforeAllHaveComeMakesRoom) {
  const auto launches = testing::launches({3});
  const auto rank = [&](std::size_t i) {
    return std::make_unique<os::testing::Child>(
        [&, i] { return outcome(launches[i], {.timeout = 60s}).empty() ? 0 : 1; });
  };
  const auto first = rank(0);
  const auto killed = rank(1);
  ASSERT_TRUE(first->wait_until_asleep() && killed->wait_until_asleep());
  killed->kill();
  const auto second = rank(1), third = rank(2);
  for (const auto* child : {&first, &second, &third})
    EXPECT_EQ((*child)->join(), (os::ProcessEnd{.code = 0}));
}

TEST(Rendezvous, ALaunchThatIsNoneIsAnError) {
  EXPECT_THAT(outcome(Launch::local(2, 2, "x"), {}), HasSubstr("rank 2 of 2"));
}

}  // namespace
}  // namespace shoal::group
