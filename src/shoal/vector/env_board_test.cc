#include "shoal/vector/env_board.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

#include "shoal/os/error.h"
#include "shoal/shm/arena.h"
#include "shoal/vector/async/async_segment.h"
#include "shoal/vector/sync/control_block.h"

namespace shoal::vector {
namespace {

os::Fd copy_of(int fd) { return os::Fd(::dup(fd)); }

std::map<std::string, std::int64_t> counters_of(const EnvBoard& board) {
  const shm::BoardReading reading = shm::Board::read(copy_of(board.fd()));
  return {reading.counters.begin(), reading.counters.end()};
}

TEST(EnvBoard, SaysWhatIsWaitedForAndWhatWasReceived) {
  EnvBoard board(8, 2);
  board.set_backend("process async");
  board.set_title("CartPole-v1");
  const shm::BoardReading reading = shm::Board::read(copy_of(board.fd()));
  EXPECT_EQ(reading.kind, "envs process async");
  EXPECT_EQ(reading.title, "CartPole-v1");

  board.waiting(CallState::Call::kStep, 5);
  auto counters = counters_of(board);
  EXPECT_EQ(counters["envs"], 8);
  EXPECT_EQ(counters["workers"], 2);
  EXPECT_EQ(counters["call"], static_cast<int>(CallState::Call::kStep));
  EXPECT_EQ(counters["since_ns"], 5);

  board.received({.batches = 3, .env_steps = 24, .resets = 1, .wait_ns = 7}, 9);
  board.set_in_flight(4);
  counters = counters_of(board);
  EXPECT_EQ(counters["call"], 0);
  EXPECT_EQ(counters["since_ns"], 9);
  EXPECT_EQ(counters["batches"], 3);
  EXPECT_EQ(counters["env_steps"], 24);
  EXPECT_EQ(counters["resets"], 1);
  EXPECT_EQ(counters["wait_ns"], 7);
  EXPECT_EQ(counters["in_flight"], 4);
}

TEST(EnvBoard, NamesTheProcessAndStateOfEachWorker) {
  EnvBoard board(8, 2);
  WorkerHealth health;
  health.pid = 1234567;
  health.state = WorkerState::kHung;
  board.set_worker(1, health);
  board.count_restart();
  auto counters = counters_of(board);
  EXPECT_EQ(counters["worker 0"], 0);
  EXPECT_EQ(counters["worker 1"] & 0xffffffff, 1234567);
  EXPECT_EQ(counters["worker 1"] >> 32, static_cast<int>(WorkerState::kHung));
  EXPECT_EQ(counters["restarts"], 1);
}

TEST(ObserveWorkers, ReadsTheWordsOfRounds) {
  ControlBlock control = ControlBlock::create(2, 8, AutoresetMode::kNextStep, 1, 4096, 4096);
  control.cell(0).env_now.store(EnvMarker::kNone);
  control.cell(1).env_now.store(5 | EnvMarker::kResetting);
  control.cell(1).env_since.store(77);
  control.cell(1).steps.store(3);
  control.cell(1).busy_ns.store(9);
  const auto workers = observe_workers(copy_of(control.fd()));
  ASSERT_EQ(workers.size(), 2u);
  EXPECT_EQ(workers[0].env, -1);
  EXPECT_EQ(workers[1].env, 5);
  EXPECT_TRUE(workers[1].in_reset);
  EXPECT_EQ(workers[1].since_ns, 77u);
  EXPECT_EQ(workers[1].steps, 3u);
  EXPECT_EQ(workers[1].busy_ns, 9u);
}

TEST(ObserveWorkers, ReadsTheWordsOfArrivalOrder) {
  const Hello spaces{.observation_space = env::Discrete{3, 0, {}},
                     .action_space = env::Discrete{2, 0, {}},
                     .extra = {}};
  AsyncSegment segment = AsyncSegment::create(
      spaces, {.num_workers = 3, .num_envs = 6, .most_envs = 2, .batch_size = 2, .num_blocks = 4});
  segment.cell(2).env_now.store(4);
  segment.cell(2).steps.store(11);
  const auto workers = observe_workers(copy_of(segment.fd()));
  ASSERT_EQ(workers.size(), 3u);
  EXPECT_EQ(workers[0].env, -1);
  EXPECT_EQ(workers[2].env, 4);
  EXPECT_FALSE(workers[2].in_reset);
  EXPECT_EQ(workers[2].steps, 11u);
}

TEST(ObserveWorkers, WhatIsSomethingElseIsRefused) {
  const shm::Arena other = shm::Arena::create("other", 4096);
  EXPECT_THROW(observe_workers(copy_of(other.fd())), Error);
  const EnvBoard board(1, 1);
  EXPECT_THROW(observe_workers(copy_of(board.fd())), Error);
}

TEST(ObserveWorkers, AHeaderThatPromisesTooMuchIsRefused) {
  const ControlBlock control = ControlBlock::create(1, 1, AutoresetMode::kNextStep, 1, 64, 64);
  const shm::Arena written = shm::Arena::attach(copy_of(control.fd()));
  written.at<ControlHeader>(0)->num_workers = 1 << 20;
  EXPECT_THROW(observe_workers(copy_of(control.fd())), Error);
}

}  // namespace
}  // namespace shoal::vector
