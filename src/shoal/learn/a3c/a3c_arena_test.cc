#include "shoal/learn/a3c/a3c_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>
#include <string>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/os/testing/message_of.h"

namespace shoal::learn {
namespace {

using collect::Episode;
using os::testing::message_of;
using testing::HasSubstr;

constexpr double kMean[] = {0.5}, kVar[] = {2};
constexpr A3cArena::Shape kShape{.actors = 3, .floats = 32, .averages = 2};

os::Fd copy_of(int fd) { return os::Fd(::dup(fd)); }

TEST(A3cArena, BeginsWithZerosAndTheOrderToPause) {
  const A3cArena arena = A3cArena::create(kShape);
  EXPECT_EQ(arena.board().current_order(), A3cBoard::Order::kPause);
  EXPECT_EQ(arena.board().steps.load(), 0U);
  for (int actor = 0; actor < 3; ++actor) {
    EXPECT_EQ(arena.line(actor).totals().updates, 0);
    collect::RunningMoments untouched(1);
    untouched.restore(kMean, kVar, 7);
    arena.line(actor).get_rewards(untouched);
    EXPECT_EQ(untouched.count(), 7);
    EXPECT_EQ(arena.line(actor).signs(), 0U);
  }
  std::vector<float> values(32, 1.0F);
  arena.parameters().averages[1].load(0, values);
  EXPECT_EQ(values, std::vector<float>(32));
}

TEST(A3cArena, AnotherMappingHasTheSame) {
  const A3cArena ours = A3cArena::create(kShape);
  const A3cArena theirs = A3cArena::attach(copy_of(ours.fd()), 32, 2);
  EXPECT_EQ(theirs.actors(), 3);
  std::vector<float> values(32);
  std::iota(values.begin(), values.end(), 0.5F);
  // Parts that lie beside each other: none writes into another.
  SharedParameters written = theirs.parameters();
  for (int part = 0; part < 3; ++part) {
    for (float& value : values) value += 100;
    (part == 0 ? written.parameters : written.averages[static_cast<std::size_t>(part - 1)])
        .store(0, values);
  }
  for (int actor = 0; actor < 3; ++actor) {
    ActorLine line = theirs.line(actor);
    line.give_sign();
    ActorTotals totals;
    totals.updates = 10 + actor;
    totals.lag = 0.25;
    line.set_totals(totals);
    collect::RunningMoments rewards(1);
    rewards.restore(kMean, kVar, 30.0 + actor);
    line.set_rewards(rewards);
    const std::vector<Episode> episodes(200, Episode{actor, 1.5, 7});
    EXPECT_EQ(line.put(episodes), 200U);
  }
  theirs.board().give_order(A3cBoard::Order::kGo);
  EXPECT_EQ(ours.board().current_order(), A3cBoard::Order::kGo);
  for (int actor = 0; actor < 3; ++actor) {
    EXPECT_EQ(ours.line(actor).signs(), 1U);
    EXPECT_EQ(ours.line(actor).totals().updates, 10 + actor);
    EXPECT_EQ(ours.line(actor).totals().lag, 0.25);
    collect::RunningMoments rewards(1);
    ours.line(actor).get_rewards(rewards);
    EXPECT_EQ(rewards.count(), 30.0 + actor);
    EXPECT_EQ(rewards.mean()[0], kMean[0]);
    EXPECT_EQ(rewards.var()[0], kVar[0]);
    std::vector<Episode> taken;
    ours.line(actor).take(taken);
    EXPECT_EQ(taken, std::vector<Episode>(200, Episode{actor, 1.5, 7}));
  }
  const SharedParameters read = ours.parameters();
  std::vector<float> found(32);
  read.averages[1].load(0, found);
  EXPECT_EQ(found, values);
  read.parameters.load(0, found);
  EXPECT_EQ(found[3], 103.5F);
  read.averages[0].load(0, found);
  EXPECT_EQ(found[31], 231.5F);
}

TEST(A3cBoard, BeginsNoRolloutBeyondTheEndAndAnotherForOneThatIsGivenBack) {
  const A3cArena arena = A3cArena::create(kShape);
  A3cBoard& board = arena.board();
  EXPECT_TRUE(board.begin(40, 100));
  EXPECT_TRUE(board.begin(40, 100));
  EXPECT_TRUE(board.begin(40, 100)) << "the last one passes the end";
  EXPECT_FALSE(board.begin(40, 100));
  EXPECT_EQ(board.finished_steps(), 0);
  const A3cBoard::Made made = board.finish(40);
  EXPECT_EQ(made.steps, 40);
  EXPECT_EQ(made.updates, 1U);
  board.finish(40);
  EXPECT_FALSE(board.begin(40, 100)) << "the third is under way";
  board.give_back(40);
  EXPECT_TRUE(board.begin(40, 100));
  EXPECT_EQ(board.finish(40).steps, 120);
  EXPECT_EQ(board.finished_steps(), 120);
}

TEST(A3cBoard, GivingBackWhatWasNotBegunMakesARunLonger) {
  const A3cArena arena = A3cArena::create(kShape);
  A3cBoard& board = arena.board();
  board.give_back(40);
  for (int k = 0; k < 4; ++k) EXPECT_TRUE(board.begin(40, 100)) << k;
  EXPECT_FALSE(board.begin(40, 100));
}

TEST(A3cArena, EpisodesWaitWhereTheRingIsFullAndComeInOrder) {
  const A3cArena arena = A3cArena::create(kShape);
  ActorLine line = arena.line(1);
  std::vector<Episode> episodes;
  for (int i = 0; i < 300; ++i) episodes.push_back({i, i / 2.0, i});
  ASSERT_EQ(line.put(episodes), ActorLine::kEpisodes);
  EXPECT_EQ(line.put(episodes), 0U);
  std::vector<Episode> taken;
  line.take(taken);
  EXPECT_EQ(line.put(std::span(episodes).subspan(ActorLine::kEpisodes)),
            300U - ActorLine::kEpisodes);
  line.take(taken);
  EXPECT_EQ(taken, episodes);
}

TEST(A3cArena, OfAnotherNetworkOrNoneIsRefused) {
  const A3cArena arena = A3cArena::create(kShape);
  EXPECT_THAT(message_of([&] { A3cArena::attach(copy_of(arena.fd()), 48, 2); }),
              HasSubstr("32 parameters with 2 averages"));
  EXPECT_THAT(message_of([&] { A3cArena::attach(copy_of(arena.fd()), 32, 1); }),
              HasSubstr("this actor's network has 32 with 1"));
  const shm::Arena other = shm::Arena::create("another", 4096);
  EXPECT_THAT(message_of([&] { A3cArena::attach(copy_of(other.fd()), 32, 2); }),
              HasSubstr("\"another\" holds something else"));
}

TEST(ActorTotals, DifferencesAreWhatWasAdded) {
  ActorTotals sum;
  sum += {.updates = 2, .explained = 1, .loss = 4, .learning_rate = 0.5};
  const ActorTotals before = sum;
  sum += {.updates = 1, .loss = -1, .grad_norm = 3, .learning_rate = 0.25};
  ActorTotals since = sum;
  since -= before;
  EXPECT_EQ(since.updates, 1);
  EXPECT_EQ(since.explained, 0);
  EXPECT_EQ(since.loss, -1);
  EXPECT_EQ(since.grad_norm, 3);
  EXPECT_EQ(since.learning_rate, 0.25) << "the last one, no difference";
}

}  // namespace
}  // namespace shoal::learn
