// Requests to all workers at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "shoal/os/testing/message_of.h"
#include "shoal/process/worker_died.h"
#include "shoal/vector/sync/process_vector_env.h"
#include "shoal/vector/testing/process_toys.h"
#include "shoal/vector/testing/toy_stepper.h"

namespace shoal::vector::testing {
namespace {

using namespace std::chrono_literals;
using os::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::vector<std::byte>> messages_of(const std::vector<std::string>& texts) {
  std::vector<std::vector<std::byte>> messages;
  for (const std::string& text : texts) messages.push_back(bytes_of(text));
  return messages;
}

std::vector<std::string> ask(VectorEnv& envs, const std::vector<std::string>& texts) {
  envs.request_async(messages_of(texts));
  std::vector<std::string> answers;
  for (const auto& answer : envs.request_wait()) answers.push_back(text_of(answer));
  return answers;
}

class ProcessVectorEnvRequestsToAll : public ::testing::TestWithParam<Kind> {};

TEST_P(ProcessVectorEnvRequestsToAll, AreAnsweredByWorker) {
  auto envs = start(GetParam(), {1, 2, 1});
  EXPECT_THAT(ask(*envs, {"echo a", "echo b", "echo c"}), ElementsAre("a", "b", "c"));
  EXPECT_THAT(ask(*envs, {"echo a", "", "echo c"}), ElementsAre("a", "", "c"));
  EXPECT_EQ(envs->stats().workers[1].requests, 1U);
  const std::string large(2'000'000, 'x');
  EXPECT_THAT(ask(*envs, {"echo " + large, "", "echo " + large}), ElementsAre(large, "", large));
  envs->reset(std::uint64_t{0});
  EXPECT_NO_THROW(act(*envs, {kAct, kAct, kAct, kAct}));
}

TEST_P(ProcessVectorEnvRequestsToAll, ThatOneRefusesAreStillAnsweredByTheOthers) {
  auto envs = start(GetParam(), {1, 1, 1});
  EXPECT_THAT(message_of<process::RemoteError>([&] { ask(*envs, {"echo a", "sing", "dance"}); }),
              HasSubstr("a toy does not know \"sing\""));
  EXPECT_THAT(ask(*envs, {"echo d", "echo e", "echo f"}), ElementsAre("d", "e", "f"));
}

TEST_P(ProcessVectorEnvRequestsToAll, ExcludeEveryOtherCall) {
  auto envs = start(GetParam(), {1, 1});
  EXPECT_THROW(envs->request_wait(), InvalidState);
  EXPECT_THROW(envs->request_async(messages_of({"echo a"})), InvalidArgument);
  envs->request_async(messages_of({"echo a", "echo b"}));
  EXPECT_THROW(envs->request_async(messages_of({"echo a", "echo b"})), InvalidState);
  EXPECT_THROW(envs->reset_async({}), InvalidState);
  EXPECT_THROW(envs->request(0, bytes_of("echo a")), InvalidState);
  EXPECT_THROW(envs->wait(), InvalidState);
  EXPECT_EQ(envs->request_wait().size(), 2U);
  envs->reset_async({});
  EXPECT_THROW(envs->request_wait(), InvalidState);
  EXPECT_THROW(envs->request_async(messages_of({"echo a", "echo b"})), InvalidState);
  envs->wait();
}

INSTANTIATE_TEST_SUITE_P(Launchers, ProcessVectorEnvRequestsToAll,
                         ::testing::Values(Kind::kProcessAsThreads, Kind::kFork, Kind::kForkserver),
                         [](const auto& info) { return name(info.param); });

TEST(ProcessVectorEnvRequestsToAllTimeout, LeavesThemUnderWay) {
  auto envs = start(Kind::kForkserver, {1, 1});
  envs->request_async(messages_of({"echo a", "stop"}));
  EXPECT_THROW(envs->request_wait(20ms), TimedOut);
  EXPECT_THROW(envs->reset_async({}), InvalidState);
  // Continued again and again: the signal may come before the worker has stopped itself.
  std::vector<std::vector<std::byte>> answers;
  while (answers.empty()) {
    ::kill(envs->pid(1), SIGCONT);
    try {
      answers = envs->request_wait(20ms);
    } catch (const TimedOut&) {
    }
  }
  EXPECT_EQ(text_of(answers[0]), "a");
  EXPECT_EQ(text_of(answers[1]), "continued");
  envs->reset(std::uint64_t{0});
}

TEST(ProcessVectorEnvRequestsToAllDeath, IsThrownOnceTheOthersHaveAnswered) {
  auto envs = start(Kind::kForkserver, {1, 1});
  EXPECT_THROW(ask(*envs, {"kill", "echo b"}), process::WorkerDied);
  EXPECT_THROW(envs->reset_async({}), InvalidState);
}

TEST(ProcessVectorEnvRequestsToAllDeath, IsForgivenWhereWorkersAreRestarted) {
  Options options;
  options.faults.on_fault = OnFault::kRestart;
  auto envs = start(Kind::kForkserver, {1, 1}, options);
  envs->reset(std::uint64_t{0});
  EXPECT_THROW(ask(*envs, {"kill", "echo b"}), process::WorkerDied);
  EXPECT_THAT(ask(*envs, {"echo new", "echo b"}), ElementsAre("new", "b"));
  EXPECT_EQ(act(*envs, {kAct, kAct}).fault[0], 1);
}

TEST(ProcessVectorEnvClose, WithinNoTimeKillsWhoIsBusy) {
  auto envs = start(Kind::kForkserver, {1, 1});
  envs->request_async(messages_of({"hang", "echo b"}));
  envs->close_within(0ms);
  EXPECT_THROW(envs->request_wait(), InvalidState);
}

}  // namespace
}  // namespace shoal::vector::testing
