// The worker's side of a pool of rounds, spoken to by hand.
#include "shoal/vector/worker_program/pool_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "shoal/vector/sync/control_block.h"
#include "shoal/vector/testing/toy_stepper.h"
#include "shoal/vector/workers/pool_door.h"
#include "shoal/vector/workers/pool_messages.h"
#include "shoal/vector/workers/worker_pool.h"

namespace shoal::vector::testing {
namespace {

using ::testing::HasSubstr;

// A parent with one worker of two toys, which runs in a thread.
class PoolWorkerTest : public ::testing::Test {
 protected:
  void start(PoolWorkerHooks hooks = {},
             std::function<process::ErrorReport()> describe_exception = {}) {
    auto [ours, theirs] = process::Channel::pair();
    channel_ = std::move(ours);
    hooks.open = [describe_exception](std::span<const std::byte>, int, int count) {
      return PoolWorkerHooks::Opened{std::make_unique<ToyStepper>(count), describe_exception, {}};
    };
    thread_ = std::thread([this, channel = std::move(theirs), hooks = std::move(hooks)]() mutable {
      const process::Identity identity({.num_envs = 2});
      run_pool_worker(channel, identity, hooks);
      ended_ = true;
    });
    door_ = PoolDoor::create(1, 1);
    const int fd = door_.fd();
    ASSERT_EQ(
        channel_.send(PoolMessage{.kind = PoolKind::kJoin, .flag = true, .bytes = {}}.encode(),
                      std::span(&fd, 1)),
        os::SendOutcome::kSent);
  }
  ~PoolWorkerTest() override {
    channel_.shutdown();
    door_.words().mail.fetch_add(1);
    ring();
    if (thread_.joinable()) thread_.join();
  }

  PoolMessage receive() {
    os::Message message;
    EXPECT_EQ(channel_.recv(message, os::deadline_after(std::chrono::seconds(20))),
              os::RecvOutcome::kMessage);
    return PoolMessage::decode(message.bytes);
  }
  void ring() {
    door_.ring();
    if (attached_) control_.doorbell().ring();
  }
  void send(PoolMessage message, int fd = -1) {
    message.session = kRoundSession;
    const std::span<const int> fds = fd < 0 ? std::span<const int>{} : std::span(&fd, 1);
    ASSERT_EQ(channel_.send(message.encode(), fds), os::SendOutcome::kSent);
    door_.words().mail.fetch_add(1, std::memory_order_release);
    ring();
  }
  void make_segment(std::uint64_t sequence) {
    const PoolMessage hello = receive();
    EXPECT_EQ(hello.kind, PoolKind::kHello);
    EXPECT_EQ(hello.count, 2);
    const Hello spaces = decode_hello(hello.bytes);
    control_ = ControlBlock::create(
        1, 2, AutoresetMode::kNextStep, 1,
        Rows::bytes(spaces.observation_space, spaces.action_space, 2, AutoresetMode::kNextStep),
        4096);
    rows_ = Rows::map(control_.rows(), spaces.observation_space, spaces.action_space, 2,
                      AutoresetMode::kNextStep);
    sequence_ = sequence;
    cell().command.store(WorkerCell::pack(sequence, Command::kNone));
  }
  void send_segment(std::uint64_t sequence) {
    send({.kind = PoolKind::kAttach, .sequence = sequence, .bytes = {}}, control_.fd());
    attached_ = true;
  }
  void attach(std::uint64_t sequence = 0) {
    make_segment(sequence);
    send_segment(sequence);
  }
  WorkerCell& cell() { return control_.cell(0); }
  // Leaves a command without ringing.
  void leave(Command command) {
    control_.gather().start(static_cast<std::uint32_t>(++sequence_), 1);
    cell().command.store(WorkerCell::pack(sequence_, command), std::memory_order_release);
  }
  void command(Command command) {
    leave(command);
    control_.doorbell().ring();
  }
  void wait() {
    ASSERT_EQ(control_.gather().park(os::deadline_after(std::chrono::seconds(20))),
              sync::WaitOutcome::kReady);
    EXPECT_EQ(cell().done.load(), sequence_);
  }
  void reset() {
    rows_.reset_mask[0] = rows_.reset_mask[1] = 1;
    command(Command::kReset);
    wait();
  }

  process::Channel channel_;
  PoolDoor door_;
  ControlBlock control_;
  Rows rows_;
  std::uint64_t sequence_ = 0;
  bool attached_ = false;
  std::atomic<bool> ended_{false};
  std::thread thread_;  // last: it uses the rest
};

TEST_F(PoolWorkerTest, EndsWhenTheParentIsGoneBeforeItAttaches) {
  start();
  receive();
  channel_.close();
  thread_.join();  // within the second of its look at the channel
  EXPECT_TRUE(ended_);
}

TEST_F(PoolWorkerTest, EndsWhenTheParentIsGoneWhileItWaits) {
  start();
  attach();
  reset();
  channel_.close();
  thread_.join();  // likewise
  EXPECT_TRUE(ended_);
}

TEST_F(PoolWorkerTest, ClosesItsEnvironmentsAndIsThenWokenByTheDoor) {
  start();
  attach();
  reset();
  send({.kind = PoolKind::kClose, .flag = true, .bytes = {}});
  const PoolMessage closed = receive();
  EXPECT_EQ(closed.kind, PoolKind::kClosed);
  EXPECT_TRUE(decode_reports(closed.bytes).empty());
  channel_.shutdown();
  door_.words().mail.fetch_add(1);
  door_.ring();
  thread_.join();
  EXPECT_TRUE(ended_);
}

TEST_F(PoolWorkerTest, ObeysACommandOnceHoweverOftenTheBellRings) {
  start();
  attach();
  reset();
  for (int i = 0; i < 50; ++i) control_.doorbell().ring();
  command(Command::kStep);
  for (int i = 0; i < 50; ++i) control_.doorbell().ring();
  wait();
  EXPECT_EQ(cell().steps.load(), 1U);
  EXPECT_EQ(rows_.obs[1].as<std::int64_t>()[0], 1);
}

TEST_F(PoolWorkerTest, LeavesCommandsFromBeforeItsTimeAlone) {
  start();
  attach(41);  // as a replacement is attached: the command word holds sequence 41
  reset();
  EXPECT_EQ(sequence_, 42U);
  EXPECT_EQ(cell().resets.load(), 1U);
}

TEST_F(PoolWorkerTest, ObeysACommandThatWasLeftBeforeItLooked) {
  start();
  make_segment(0);
  rows_.reset_mask[0] = rows_.reset_mask[1] = 1;
  leave(Command::kReset);
  control_.doorbell().ring();  // nobody hears it
  send_segment(0);
  wait();
}

TEST_F(PoolWorkerTest, AnswersBetweenCommandsWhateverWasGivenUp) {
  start();
  attach();
  reset();
  send({.kind = PoolKind::kRequest, .sequence = 1, .bytes = bytes_of("echo given up")});
  send({.kind = PoolKind::kRequest, .sequence = 2, .bytes = bytes_of("echo wanted")});
  command(Command::kStep);
  wait();
  PoolMessage reply = receive();
  while (reply.sequence != 2) reply = receive();
  EXPECT_EQ(text_of(reply.bytes), "wanted");
  EXPECT_EQ(cell().requests.load(), 2U);
}

TEST_F(PoolWorkerTest, ReportsAFailureAndStillArrives) {
  start();
  attach();
  reset();
  rows_.actions[0].as<std::int64_t>()[1] = ToyAction::kThrow;
  command(Command::kStep);
  wait();
  EXPECT_EQ(cell().failed.load(), 1U);
  const PoolMessage faults = receive();
  EXPECT_EQ(faults.kind, PoolKind::kFaults);
  EXPECT_EQ(faults.sequence, sequence_);
  EXPECT_TRUE(faults.flag);
  const auto reports = decode_reports(faults.bytes);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].env_index, 1);
  EXPECT_THAT(reports[0].message, HasSubstr("toy 1 refuses"));
  rows_.actions[0].as<std::int64_t>()[1] = 0;
  command(Command::kStep);
  wait();
  EXPECT_EQ(cell().failed.load(), 0U);
}

TEST_F(PoolWorkerTest, HooksSurroundParkingAndDescribeFailures) {
  PoolWorkerHooks hooks;
  std::atomic<int> inside{0};
  std::atomic<int> parks{0};
  hooks.before_park = [&] {
    ++inside;
    ++parks;
  };
  hooks.after_park = [&] { --inside; };
  start(hooks, [] {
    process::ErrorReport report;
    report.type = "Special";
    report.env_index = 0;
    return report;
  });
  attach();
  reset();
  rows_.actions[0].as<std::int64_t>()[1] = ToyAction::kThrow;
  command(Command::kStep);
  wait();
  const auto reports = decode_reports(receive().bytes);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].type, "Special");
  EXPECT_EQ(reports[0].env_index, 0);
  channel_.shutdown();
  door_.words().mail.fetch_add(1);
  ring();
  thread_.join();
  EXPECT_EQ(inside, 0);
  EXPECT_GT(parks, 0);
}

}  // namespace
}  // namespace shoal::vector::testing
