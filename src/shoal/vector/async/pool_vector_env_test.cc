// Sessions of a worker pool: what they share, and what becomes of environments that die.
#include "shoal/vector/async/pool_vector_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <set>
#include <thread>

#include "shoal/os/testing/child.h"
#include "shoal/os/testing/message_of.h"
#include "shoal/vector/testing/backends.h"
#include "shoal/vector/testing/toy_stepper.h"

namespace shoal::vector::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Ids = std::vector<std::int64_t>;
using os::testing::message_of;

constexpr std::int64_t kAct = 1;

std::shared_ptr<WorkerPool> make_pool(int num_workers) {
  return make_toy_pool(Kind::kForkserver, num_workers);
}

Options with(OnFault on_fault, int batch_size, int cohorts = 0) {
  Options options{.batch_size = batch_size, .cohorts = cohorts};
  options.faults.on_fault = on_fault;
  options.faults.backoff = 1ms;
  return options;
}

void send(VectorEnv& envs, const Ids& ids, std::int64_t action) {
  for (const std::int64_t id : ids) {
    envs.actions()[0].as<std::int64_t>()[static_cast<std::size_t>(id)] = action;
  }
  envs.send(ids);
}

/// What one environment's row says.
struct Row {
  int fault, truncated, reset;
  double reward;
  std::int64_t tick;
  double random;
};

std::map<std::int64_t, Row> rows_of(const Arrivals& arrivals) {
  std::map<std::int64_t, Row> rows;
  for (std::size_t i = 0; i < arrivals.env_ids.size(); ++i) {
    const Batch& batch = arrivals.batch;
    rows[arrivals.env_ids[i]] = {batch.fault[i],
                                 batch.truncated[i],
                                 batch.reset[i],
                                 batch.reward[i],
                                 batch.obs[1].as<std::int64_t>()[i],
                                 batch.obs[0].as<double>()[3 * i]};
  }
  return rows;
}

TEST(PoolVectorEnv, SessionsShareTheWorkers) {
  auto pool = make_pool(2);
  auto train = make_pool_toys(pool, 4, {.batch_size = 2});
  auto eval = make_pool_toys(pool, 3);
  EXPECT_EQ(train->stats().workers[0].pid, eval->stats().workers[0].pid);
  auto alone = make_toys(Kind::kSerial, 3, 1);
  Recorded expected = record(alone->reset(std::uint64_t{3}));
  EXPECT_EQ(record(eval->reset(std::uint64_t{3})), expected);
  train->send_reset({});
  for (int i = 0; i < 20; ++i) {
    const Arrivals arrivals = train->recv(30s);
    send(*train, {arrivals.env_ids.begin(), arrivals.env_ids.end()}, kAct);
    set_actions(*eval, {1, 2, 3});
    set_actions(*alone, {1, 2, 3});
    EXPECT_EQ(record(eval->step()), record(alone->step()));
  }
  train->close();
  set_actions(*eval, {1, 2, 3});
  set_actions(*alone, {1, 2, 3});
  EXPECT_EQ(record(eval->step()), record(alone->step()));
}

TEST(PoolVectorEnv, FewerEnvironmentsThanWorkersLeaveSomeIdle) {
  auto pool = make_pool(3);
  auto envs = make_pool_toys(pool, 2);
  EXPECT_EQ(envs->num_workers(), 2);
  EXPECT_EQ(envs->reset(std::uint64_t{1}).reward.size(), 2U);
}

TEST(PoolVectorEnv, AClosedPoolIsSaidByEverySession) {
  auto pool = make_pool(1);
  auto envs = make_pool_toys(pool, 2);
  envs->reset(std::uint64_t{1});
  pool->close();
  EXPECT_THAT(message_of<InvalidState>([&] { envs->step_async(); }), HasSubstr("pool"));
  EXPECT_THAT(message_of<InvalidState>([&] { make_pool_toys(pool, 2); }),
              HasSubstr("pool is closed"));
  envs->close();
}

TEST(PoolVectorEnv, ThePoolEndsWithItsLastHolder) {
  auto pool = make_pool(1);
  auto envs = make_pool_toys(pool, 1);
  const std::weak_ptr<WorkerPool> watch = pool;
  pool.reset();
  EXPECT_FALSE(watch.expired());
  envs->close();
  EXPECT_TRUE(watch.expired());
}

TEST(PoolVectorEnv, AFailureToOpenLeavesTheOtherSessions) {
  auto pool = make_pool(2);
  auto envs = make_pool_toys(pool, 2);
  EXPECT_THAT(message_of<process::RemoteError>([&] { make_pool_toys(pool, 2, {}, "throw"); }),
              HasSubstr("no toys today"));
  EXPECT_EQ(envs->reset(std::uint64_t{1}).reward.size(), 2U);
}

TEST(PoolVectorEnv, RequestsAreAnsweredBesideSteps) {
  auto envs = make_pool_toys(make_pool(1), 2, {.batch_size = 1});
  envs->reset(std::uint64_t{1});
  send(*envs, {0}, kAct);
  EXPECT_EQ(text_of(envs->request(0, bytes_of("echo hello"))), "hello");
  EXPECT_THAT(message_of<process::RemoteError>([&] { envs->request(0, bytes_of("nonsense")); }),
              HasSubstr("does not know"));
  envs->recv(30s);
}

TEST(PoolVectorEnv, ALateEnvironmentIsNamedAndMayBeWaitedForAgain) {
  auto envs = make_pool_toys(make_pool(2), 4, {.batch_size = 2});
  envs->reset(std::uint64_t{1});
  send(*envs, {0}, kAct);
  send(*envs, {3}, ToyAction::kHang);
  EXPECT_THAT(
      message_of<TimedOut>([&] { envs->recv(50ms); }),
      ::testing::AllOf(HasSubstr("environment 3 (for 0."), ::testing::Not(HasSubstr("0 ("))));
  EXPECT_EQ(envs->in_flight(), 2);
  send(*envs, {1}, kAct);
  const auto rows = rows_of(envs->recv(30s));
  EXPECT_TRUE(rows.contains(0) && rows.contains(1));
}

TEST(PoolVectorEnv, ADeathIsRaisedWithItsEnvironments) {
  auto envs = make_pool_toys(make_pool(2), 4, {.batch_size = 2});
  envs->reset(std::uint64_t{1});
  send(*envs, {2, 3}, ToyAction::kExit);
  try {
    envs->recv(30s);
    FAIL();
  } catch (const process::WorkerDied& died) {
    EXPECT_EQ(died.certificate().first_env, 2);
    EXPECT_EQ(died.certificate().num_envs, 2);
    EXPECT_EQ(died.certificate().status.code, 3);
  }
  EXPECT_THAT(message_of<InvalidState>([&] { envs->send(Ids{0}); }), HasSubstr("died"));
}

TEST(PoolVectorEnv, WithRestartADeathEndsTheRowsAndNewEnvironmentsGoOn) {
  for (const std::int64_t death : {ToyAction::kKill, ToyAction::kKillWriting}) {
    auto envs = make_pool_toys(make_pool(2), 4, with(OnFault::kRestart, 2));
    envs->reset(std::uint64_t{1});
    send(*envs, {0, 1}, kAct);
    const auto before = rows_of(envs->recv(30s));
    send(*envs, {0}, death);
    send(*envs, {2}, kAct);
    auto rows = rows_of(envs->recv(30s));
    EXPECT_EQ(rows.at(0).fault, 1);
    EXPECT_EQ(rows.at(0).truncated, 1);
    EXPECT_EQ(rows.at(0).reward, 0);
    EXPECT_EQ(rows.at(0).random, death == ToyAction::kKill ? before.at(0).random : 0);
    EXPECT_EQ(rows.at(2).fault, 0);
    // Environment 1 was idle when its worker died: its next step ends as a fault; then both begin.
    send(*envs, {0, 1}, kAct);
    rows = rows_of(envs->recv(30s));
    EXPECT_EQ(rows.at(0).fault, 0);
    EXPECT_EQ(rows.at(0).reset, 1);
    EXPECT_EQ(rows.at(0).tick, 0);
    EXPECT_EQ(rows.at(1).fault, 1);
    send(*envs, {0, 1}, kAct);
    rows = rows_of(envs->recv(30s));
    EXPECT_EQ(rows.at(0).tick, 1);
    EXPECT_EQ(rows.at(1).reset, 1);
    EXPECT_EQ(envs->stats().workers[0].restarts, 1U);
  }
}

// Plays batches of toys whose workers kill themselves; `payload` says where.
void play_with_kills(const std::string& payload, int cohorts) {
  Options options = with(OnFault::kRestart, cohorts > 0 ? 0 : 3, cohorts);
  options.faults.max_restarts = 1000;
  options.faults.max_backoff = 1ms;
  auto envs = make_pool_toys(make_pool(2), 6, options, payload);
  std::vector<int> sent(6, 0), came(6, 0);
  int faults = 0;
  envs->send_reset({});
  std::fill(sent.begin(), sent.end(), 1);
  for (int batch = 0; batch < 30; ++batch) {
    const Arrivals arrivals = envs->recv(30s);
    const Ids ids(arrivals.env_ids.begin(), arrivals.env_ids.end());
    for (std::size_t slot = 0; slot < ids.size(); ++slot) {
      ++came[static_cast<std::size_t>(ids[slot])];
      faults += arrivals.batch.fault[slot];
    }
    for (std::size_t i = 0; i < 6; ++i) EXPECT_LE(came[i], sent[i]);
    send(*envs, ids, kAct);
    for (const std::int64_t id : ids) ++sent[static_cast<std::size_t>(id)];
  }
  EXPECT_GT(faults, 0) << payload;
  envs->discard(30s);
  EXPECT_EQ(envs->in_flight(), 0);
}

TEST(PoolVectorEnv, AWorkerKilledAnywhereOnTheWayOfAnOrderLosesNothingElse) {
  for (const char* point : {"taken", "stepped", "claimed", "written", "ready", "arrived"}) {
    for (const int cohorts : {0, 2}) {
      for (const int nth : {7, 12})
        play_with_kills(std::string("kill at ") + point + " " + std::to_string(nth), cohorts);
    }
  }
}

// The places of a run are claimed at once, and filled one by one when its worker is dead.
TEST(PoolVectorEnv, AWorkerKilledAnywhereOnTheWayOfNeighboursLosesNothingElse) {
  for (const char* point : {"taken", "stepped", "claimed", "written", "ready", "arrived"}) {
    for (const int cohorts : {0, 2}) {
      for (const int nth : {2, 3, 5})
        play_with_kills(std::string("runs kill at ") + point + " " + std::to_string(nth), cohorts);
    }
  }
}

TEST(PoolVectorEnv, AnInfoThatIsLostWithItsWorkerIsAFaultOfItsRow) {
  for (const char* point : {"written", "ready", "arrived", "taken"}) {
    for (const int nth : {7, 8, 9}) {
      Options options = with(OnFault::kRestart, 3);
      options.faults.max_restarts = 1000;
      options.faults.max_backoff = 1ms;
      auto envs = make_pool_toys(make_pool(2), 6, options,
                                 std::string("kill at ") + point + " " + std::to_string(nth));
      envs->send_reset({});
      int faults = 0;
      std::set<std::int64_t> begun;  // whose reset has come
      for (int batch = 0; batch < 12; ++batch) {
        const Arrivals arrivals = envs->recv(30s);
        std::map<int, std::size_t> infos;
        for (const auto& info : arrivals.infos) infos[info.slot] = info.bytes.size();
        for (int slot = 0; slot < 3; ++slot) {
          const auto at = static_cast<std::size_t>(slot);
          const bool fault = arrivals.batch.fault[at] != 0;
          faults += fault ? 1 : 0;
          const bool began = begun.insert(arrivals.env_ids[at]).second;
          if (began || arrivals.batch.reset[at] != 0) continue;
          EXPECT_EQ(infos[slot], fault ? 0U : 300'000U) << point << " " << nth << " " << batch;
        }
        send(*envs, Ids(arrivals.env_ids.begin(), arrivals.env_ids.end()), ToyAction::kLargeInfo);
      }
      EXPECT_GT(faults, 0) << point;
      envs->discard(30s);
    }
  }
}

TEST(PoolVectorEnv, ASessionSeesTheRestartThatAnotherMade) {
  auto pool = make_pool(1);
  auto one = make_pool_toys(pool, 1, with(OnFault::kRestart, 1));
  auto other = make_pool_toys(pool, 1, with(OnFault::kRestart, 1));
  auto strict = make_pool_toys(pool, 1, with(OnFault::kRaise, 1));
  for (auto* envs : {one.get(), other.get(), strict.get()}) envs->reset(std::uint64_t{1});
  send(*one, {0}, ToyAction::kKill);
  EXPECT_EQ(rows_of(one->recv(30s)).at(0).fault, 1);
  send(*one, {0}, kAct);
  EXPECT_EQ(rows_of(one->recv(30s)).at(0).reset, 1);
  send(*other, {0}, kAct);
  EXPECT_EQ(rows_of(other->recv(30s)).at(0).fault, 1);
  send(*other, {0}, kAct);
  EXPECT_EQ(rows_of(other->recv(30s)).at(0).reset, 1);
  EXPECT_THAT(message_of<process::WorkerDied>([&] { send(*strict, {0}, kAct); }),
              HasSubstr("SIGKILL"));
}

// A replacement whose hello waits to be read has ended already, and its end has been counted.
TEST(PoolVectorEnv, AReplacementThatEndsBetweenItsHelloAndItsFirstOrderIsAFault) {
  auto pool = make_pool(1);
  auto one = make_pool_toys(pool, 1, with(OnFault::kRestart, 1), "late");
  auto other = make_pool_toys(pool, 1, with(OnFault::kRestart, 1));
  for (auto* envs : {one.get(), other.get()}) envs->reset(std::uint64_t{1});
  const auto await_exits = [&](std::uint64_t count) {
    while (pool->exits() < count) std::this_thread::sleep_for(1ms);
  };
  send(*one, {0}, ToyAction::kKill);
  EXPECT_EQ(rows_of(one->recv(30s)).at(0).fault, 1);
  send(*one, {0}, kAct);
  while (one->health()[0].state != WorkerState::kStarting) {  // asks for it, and looks no more
    EXPECT_THROW(one->recv(0ms), TimedOut);
  }
  // What the worker says to the other comes after its hello to the one, which is kept for it.
  send(*other, {0}, kAct);
  EXPECT_EQ(rows_of(other->recv(30s)).at(0).fault, 1);
  send(*other, {0}, kAct);
  EXPECT_EQ(rows_of(other->recv(30s)).at(0).reset, 1);
  ::kill(pool->pid(0), SIGKILL);
  await_exits(2);

  EXPECT_EQ(rows_of(one->recv(30s)).at(0).fault, 1);
  send(*one, {0}, kAct);
  EXPECT_EQ(rows_of(one->recv(30s)).at(0).reset, 1);
}

TEST(PoolVectorEnv, TooManyDeathsAreRaisedWithTheirHistory) {
  Options options = with(OnFault::kRestart, 1);
  options.faults.max_restarts = 2;
  auto envs = make_pool_toys(make_pool(1), 1, options);
  envs->reset(std::uint64_t{1});
  for (int i = 0; i < 2; ++i) {
    send(*envs, {0}, ToyAction::kKill);
    EXPECT_EQ(rows_of(envs->recv(30s)).at(0).fault, 1);
    send(*envs, {0}, kAct);
    envs->recv(30s);
  }
  send(*envs, {0}, ToyAction::kKill);
  EXPECT_THAT(message_of<TooManyFaults>([&] { envs->recv(30s); }), HasSubstr("fault 1 (killed)"));
  EXPECT_THAT(message_of<InvalidState>([&] { envs->send(Ids{0}); }),
              HasSubstr("fault number 3 within 60 s"));
}

TEST(PoolVectorEnv, DroppedEnvironmentsAreLeftOutAndFillWhatNobodyElseCan) {
  auto envs = make_pool_toys(make_pool(3), 3, with(OnFault::kDrop, 2));
  envs->reset(std::uint64_t{1});
  send(*envs, {0}, ToyAction::kKill);
  send(*envs, {1}, kAct);
  EXPECT_EQ(rows_of(envs->recv(30s)).at(0).fault, static_cast<int>(RowFault::kFault));
  send(*envs, {0, 1, 2}, kAct);
  EXPECT_EQ(envs->in_flight(), 2);
  auto rows = rows_of(envs->recv(30s));
  EXPECT_TRUE(rows.contains(1) && rows.contains(2));
  send(*envs, {1}, ToyAction::kKill);
  send(*envs, {2}, kAct);
  EXPECT_EQ(rows_of(envs->recv(30s)).at(1).fault, static_cast<int>(RowFault::kFault));
  send(*envs, {1, 2}, kAct);
  rows = rows_of(envs->recv(30s));
  EXPECT_EQ(rows.at(2).fault, 0);
  EXPECT_EQ(rows.at(0).fault, static_cast<int>(RowFault::kDropped));
  send(*envs, {2}, ToyAction::kKill);
  EXPECT_THAT(message_of<TooManyFaults>([&] { envs->recv(30s); }),
              HasSubstr("every environment has been dropped"));
}

TEST(PoolVectorEnv, AHungStepIsKilledAfterItsTimeAndNamed) {
  Options options = with(OnFault::kRaise, 1);
  options.faults.step_timeout = 1s;
  auto envs = make_pool_toys(make_pool(1), 2, options);
  envs->reset(std::uint64_t{1});
  send(*envs, {1}, ToyAction::kHang);
  EXPECT_THAT(message_of<process::WorkerDied>([&] { envs->recv(30s); }),
              HasSubstr("environment 1 did not finish its step within 1 s (step_timeout)"));
  options.faults.on_fault = OnFault::kRestart;
  auto others = make_pool_toys(make_pool(1), 2, options);
  others->reset(std::uint64_t{1});
  send(*others, {1}, ToyAction::kHang);
  EXPECT_EQ(rows_of(others->recv(30s)).at(1).fault, 1);
  ASSERT_EQ(others->faults().size(), 1U);
  EXPECT_EQ(others->faults()[0].fault->kind, FaultKind::kHang);
  EXPECT_EQ(others->faults()[0].fault->env, 1);
  EXPECT_EQ(others->health()[0].faults[static_cast<std::size_t>(FaultKind::kHang)], 1U);
}

TEST(PoolVectorEnv, WithRestartAFailureThatCannotBeMendedAloneIsItsWorkersDeath) {
  auto envs = make_pool_toys(make_pool(2), 4, with(OnFault::kRestart, 1));
  envs->reset(std::uint64_t{1});
  send(*envs, {3}, ToyAction::kThrow);
  EXPECT_EQ(rows_of(envs->recv(30s)).at(3).fault, 1);
  send(*envs, {3}, kAct);
  EXPECT_EQ(rows_of(envs->recv(30s)).at(3).reset, 1);
  send(*envs, {2}, kAct);
  const int expected = ToyStepper(1).can_rebuild() ? 0 : 1;
  EXPECT_EQ(rows_of(envs->recv(30s)).at(2).fault, expected);
}

TEST(PoolVectorEnv, WhatFailsWhileASessionIsClosedIsToldAndThePoolGoesOn) {
  auto pool = make_pool(2);
  auto bad = make_pool_toys(pool, 2);
  auto good = make_pool_toys(pool, 2);
  bad->request(1, bytes_of("close badly"));
  bad->close();
  const VectorEnv::CloseOutcome outcome = bad->take_close_outcome();
  ASSERT_EQ(outcome.failures.size(), 1U);
  EXPECT_EQ(outcome.failures[0].report().message, "toy 1 wants to play on");
  EXPECT_EQ(outcome.failures[0].worker(), "worker 1");
  EXPECT_EQ(bad->take_close_outcome().failures.size(), 0U);
  EXPECT_NO_THROW(good->reset(std::uint64_t{1}));
  good->close();
  EXPECT_EQ(good->take_close_outcome().failures.size(), 0U);
}

TEST(PoolVectorEnv, AnInterruptEndsTheWaitForASessionThatCloses) {
  struct Interrupted {};
  bool closing = false;
  Options options;
  options.interrupt_check = [&] {
    if (closing) throw Interrupted();
  };
  auto envs = make_pool_toys(make_pool(1), 1, options, "", true);
  envs->request(0, bytes_of("never close"));
  closing = true;
  envs->close_within(std::chrono::hours(1));
  EXPECT_THROW(std::rethrow_exception(envs->take_close_outcome().interrupt), Interrupted);
}

TEST(PoolVectorEnv, CloseDoesNotWaitForAHungEnvironment) {
  auto envs = make_pool_toys(make_pool(1), 1, {.batch_size = 1}, "", true);
  envs->reset(std::uint64_t{1});
  send(*envs, {0}, ToyAction::kHang);
  envs->close();
}

TEST(PoolVectorEnv, ClosesThoughAStoppedWorkerHasNoRoomForAnotherMessage) {
  auto envs = make_pool_toys(make_pool(1), 1, {.batch_size = 1}, "", true);
  const int pid = envs->stats().workers[0].pid;
  ASSERT_TRUE(os::testing::stop(pid));
  const std::vector<std::byte> message = bytes_of("echo " + std::string(60'000, 'x'));
  for (int i = 0; i < 20; ++i) EXPECT_THROW(envs->request(0, message, 1ms), TimedOut);
  envs->close();
  EXPECT_NE(::kill(pid, 0), 0);
}

}  // namespace
}  // namespace shoal::vector::testing
