// The worker's side of the protocol, spoken to by hand.
#include "shoal/vector/worker_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "shoal/vector/control_block.h"
#include "shoal/vector/messages.h"
#include "shoal/vector/testing/toy_stepper.h"

namespace shoal::vector::testing {
namespace {

using ::testing::HasSubstr;

// A parent with one worker of two toys, which runs in a thread.
class WorkerLoopTest : public ::testing::Test {
 protected:
  void start(WorkerHooks hooks = {}) {
    auto [ours, theirs] = process::Channel::pair();
    channel_ = std::move(ours);
    thread_ = std::thread([this, channel = std::move(theirs), hooks = std::move(hooks)]() mutable {
      ToyStepper stepper(2);
      run_worker(channel, stepper, hooks);
      ended_ = true;
    });
  }
  ~WorkerLoopTest() override {
    if (attached_) command(Command::kClose);
    channel_.shutdown();
    if (thread_.joinable()) thread_.join();
  }

  std::vector<std::byte> receive() {
    os::Message message;
    EXPECT_EQ(channel_.recv(message, os::deadline_after(std::chrono::seconds(20))),
              os::RecvOutcome::kMessage);
    return std::move(message.bytes);
  }
  void send(std::span<const std::byte> message) {
    ASSERT_EQ(channel_.send(message), os::SendOutcome::kSent);
  }
  void attach(std::uint64_t sequence = 0) {
    const HelloMessage hello = decode_hello(receive());
    EXPECT_EQ(hello.num_envs, 2);
    const Hello& spaces = hello.hello;
    control_ = ControlBlock::create(
        1, 2, AutoresetMode::kNextStep, 1, false, 0,
        Rows::bytes(spaces.observation_space, spaces.action_space, 2, AutoresetMode::kNextStep),
        4096);
    rows_ = Rows::map(control_.rows(), spaces.observation_space, spaces.action_space, 2,
                      AutoresetMode::kNextStep);
    sequence_ = sequence;
    cell().command.store(WorkerCell::pack(sequence, Command::kNone));
    const int fd = control_.fd();
    ASSERT_EQ(channel_.send(
                  encode_attach({.cell = 0, .first_env = 0, .sequence = sequence, .handed = {}}),
                  std::span(&fd, 1)),
              os::SendOutcome::kSent);
    attached_ = true;
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
  ControlBlock control_;
  Rows rows_;
  std::uint64_t sequence_ = 0;
  bool attached_ = false;
  std::atomic<bool> ended_{false};
  std::thread thread_;  // last: it uses the rest
};

TEST_F(WorkerLoopTest, EndsWhenTheParentIsGoneBeforeItAttaches) {
  start();
  receive();
  channel_.close();
  thread_.join();
  EXPECT_TRUE(ended_);
}

TEST_F(WorkerLoopTest, EndsWhenTheParentIsGoneWhileItWaits) {
  start();
  attach();
  reset();
  channel_.close();
  thread_.join();  // within the second of its look at the channel
  EXPECT_TRUE(ended_);
  attached_ = false;
}

TEST_F(WorkerLoopTest, EndsOnClose) {
  start();
  attach();
  command(Command::kClose);
  thread_.join();
  EXPECT_TRUE(ended_);
  attached_ = false;
}

TEST_F(WorkerLoopTest, ObeysACommandOnceHoweverOftenTheBellRings) {
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

TEST_F(WorkerLoopTest, LeavesCommandsFromBeforeItsTimeAlone) {
  start();
  attach(41);  // as a replacement is attached: the command word holds sequence 41
  reset();
  EXPECT_EQ(sequence_, 42U);
  EXPECT_EQ(cell().resets.load(), 1U);
}

TEST_F(WorkerLoopTest, ObeysACommandThatWasLeftBeforeItLooked) {
  start();
  const HelloMessage hello = decode_hello(receive());
  control_ =
      ControlBlock::create(1, 2, AutoresetMode::kNextStep, 1, false, 0,
                           Rows::bytes(hello.hello.observation_space, hello.hello.action_space, 2,
                                       AutoresetMode::kNextStep),
                           4096);
  rows_ = Rows::map(control_.rows(), hello.hello.observation_space, hello.hello.action_space, 2,
                    AutoresetMode::kNextStep);
  rows_.reset_mask[0] = rows_.reset_mask[1] = 1;
  leave(Command::kReset);
  control_.doorbell().ring();  // nobody hears it
  const int fd = control_.fd();
  ASSERT_EQ(channel_.send(encode_attach({}), std::span(&fd, 1)), os::SendOutcome::kSent);
  attached_ = true;
  wait();
}

TEST_F(WorkerLoopTest, SkipsRequestsThatWereGivenUp) {
  start();
  attach();
  send(encode_bytes(MessageKind::kRequest, 1, bytes_of("echo given up")));
  sequence_ = 1;
  leave(Command::kStep);  // stands for any later command that overwrote the request's
  sequence_ = 2;
  send(encode_bytes(MessageKind::kRequest, 3, bytes_of("echo wanted")));
  command(Command::kRequest);
  for (;;) {
    const BytesMessage reply = decode_bytes(receive());
    if (reply.sequence != 3) continue;
    EXPECT_EQ(text_of(reply.bytes), "wanted");
    break;
  }
}

TEST_F(WorkerLoopTest, ReportsAFailureAndStillArrives) {
  start();
  attach();
  reset();
  rows_.actions[0].as<std::int64_t>()[1] = ToyAction::kThrow;
  command(Command::kStep);
  wait();
  EXPECT_EQ(cell().failed.load(), 1U);
  const auto report = process::ErrorReport::decode(receive());
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->env_index, 1);
  EXPECT_THAT(report->message, HasSubstr("toy 1 refuses"));
  rows_.actions[0].as<std::int64_t>()[1] = 0;
  command(Command::kStep);
  wait();
  EXPECT_EQ(cell().failed.load(), 0U);
}

TEST_F(WorkerLoopTest, HooksSurroundParkingAndDescribeFailures) {
  WorkerHooks hooks;
  std::atomic<int> inside{0};
  std::atomic<int> parks{0};
  hooks.before_park = [&] {
    ++inside;
    ++parks;
  };
  hooks.after_park = [&] { --inside; };
  hooks.describe_exception = [] {
    process::ErrorReport report;
    report.type = "Special";
    report.env_index = 0;
    return report;
  };
  start(hooks);
  attach();
  reset();
  rows_.actions[0].as<std::int64_t>()[1] = ToyAction::kThrow;
  command(Command::kStep);
  wait();
  const auto report = process::ErrorReport::decode(receive());
  EXPECT_EQ(report->type, "Special");
  EXPECT_EQ(report->env_index, 0);
  command(Command::kClose);
  thread_.join();
  attached_ = false;
  EXPECT_EQ(inside, 0);
  EXPECT_GT(parks, 0);
}

}  // namespace
}  // namespace shoal::vector::testing
