#include "shoal/learn/remote/remote_collectors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shoal/collect/testing/scripted_vector_env.h"
#include "shoal/group/connection/compression.h"
#include "shoal/group/connection/connection_lost.h"
#include "shoal/group/connection/message_client.h"
#include "shoal/learn/asynchronous/rollout_actor.h"
#include "shoal/learn/impala/impala.h"
#include "shoal/learn/remote/remote_collector.h"
#include "shoal/learn/remote/remote_messages.h"
#include "shoal/os/error.h"
#include "shoal/version.h"

namespace shoal::learn {
namespace {

using namespace std::chrono_literals;
using collect::ScriptedVectorEnv;
using group::MessageClient;
using Bytes = std::vector<std::byte>;

/// Two environments whose episodes never end.
ScriptedVectorEnv endless() { return {{{}, {}}, vector::AutoresetMode::kNextStep}; }

ImpalaConfig small_config(int max_lag) {
  ImpalaConfig config;
  config.num_steps = 5;
  config.policy_hidden = config.value_hidden = {4};
  config.max_lag = max_lag;
  config.normalize_obs = config.normalize_reward = true;
  return config;
}

RemoteCollectors::Setup setup_of(const ScriptedVectorEnv& envs, const ImpalaConfig& config) {
  return {.host = "127.0.0.1",
          .port = 0,
          .secret = "",
          .observation_space = envs.single_observation_space(),
          .action_space = envs.single_action_space(),
          .num_envs = 2,
          .config = config,
          .max_lag = config.max_lag,
          .seed = 1,
          .run = "a run",
          .attempt = 3,
          .assignment = "what to step"};
}

/// A learner, and what its collectors need.
struct Learning {
  explicit Learning(const ImpalaConfig& its)
      : config(its),
        collectors(std::make_shared<RemoteCollectors>(setup_of(envs, config))),
        learner(make_learner(envs.single_observation_space(), envs.single_action_space(), 2, config,
                             1, collectors)) {}

  RemoteCollector::Options options() const {
    return {.host = "127.0.0.1", .port = collectors->port(), .secret = ""};
  }
  /// Iterates until so many updates were made.
  IterationStats learn(std::int64_t updates) const {
    IterationStats stats;
    const auto deadline = os::deadline_after(60s);
    while (learner->iteration() < updates && os::Clock::now() < deadline)
      stats = learner->iterate();
    EXPECT_GE(learner->iteration(), updates);
    return stats;
  }

  ScriptedVectorEnv envs = endless();
  const ImpalaConfig config;
  std::shared_ptr<RemoteCollectors> collectors;
  std::unique_ptr<Learner> learner;
};

/// A collector that says what it is told to say.
struct Scripted {
  explicit Scripted(const Learning& learning, const std::string& run = "",
                    const std::string& its_version = version()) {
    MessageClient::Options options;
    options.host = "127.0.0.1";
    options.port = learning.collectors->port();
    options.hello.version = its_version;
    options.hello.purpose = "collect";
    options.hello.run = run;
    options.longest = std::size_t{1} << 20;
    client = std::make_unique<MessageClient>(options);
  }
  /// Whether there is work within a while.
  bool gets_work(std::chrono::milliseconds within = 20s) {
    Bytes message;
    if (client->recv(message, os::deadline_after(within)) != MessageClient::Got::kMessage)
      return false;
    const auto opened = open_remote(message);
    head = opened.head;
    return opened.kind == RemoteKind::kWork;
  }
  /// Says that it is ready; whether there is work within a while.
  bool is_given_work(std::chrono::milliseconds within = 20s) {
    client->send(pack_ready(head));
    return gets_work(within);
  }
  void send_rollout(const Learning& learning, float reward = 0, float last_value = 0) {
    RolloutActor actor(learning.envs.single_observation_space(),
                       learning.envs.single_action_space(), 2, learning.config, 1);
    auto room = actor.make_room();
    room.rollout.valid()[0] = 1;
    room.rollout.reward()[0] = reward;
    room.rollout.replace_ends(true);
    room.rollout.truncated()[0] = 1;
    room.rollout.next_value()[0] = last_value;
    const std::size_t width = 1 + 2 * room.obs_moments.size();
    client->send(
        pack_rollout(head, room, {std::vector<double>(width), std::vector<double>(3)}, true));
  }
  std::string why_sent_away() {
    Bytes message;
    try {
      while (client->recv(message, os::deadline_after(20s)) == MessageClient::Got::kMessage) {
      }
    } catch (const Error& error) {
      return error.what();
    }
    return "it was not sent away";
  }

  std::unique_ptr<MessageClient> client;
  RemoteHead head{"a run", 3, -1};
};

TEST(RemoteCollectors, ALearnerLearnsFromCollectorsThatComeAndGo) {
  const Learning learning(small_config(4));
  EXPECT_FALSE(learning.learner->iterate().learned) << "nobody is there yet";
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      auto envs = endless();
      RemoteCollector collector(learning.options());
      EXPECT_EQ(collector.assignment(), "what to step");
      EXPECT_EQ(collector.run(), "a run");
      EXPECT_EQ(collector.attempt(), 3U);
      const auto end = collector.collect(envs, learning.config);
      EXPECT_TRUE(end.over) << end.why;
      EXPECT_GT(collector.rollouts(), 0);
      EXPECT_EQ(collector.steps() % collector.rollouts(), 0);
    });
  const auto both_have_come = [&] {
    const auto there = learning.collectors->collectors();
    return there.size() == 2 &&
           std::ranges::all_of(there, [](const auto& one) { return one.rollouts > 0; });
  };
  const auto deadline = os::deadline_after(60s);
  IterationStats stats;
  while ((learning.learner->iteration() < 40 || !both_have_come()) && os::Clock::now() < deadline)
    stats = learning.learner->iterate();
  EXPECT_GE(learning.learner->iteration(), 40);
  EXPECT_EQ(stats.steps, 10 * learning.learner->iteration());
  EXPECT_LE(stats.policy_lag, 4);
  EXPECT_GE(stats.collectors.value_or(0), 1);
  // What the collectors' normalisers have seen is the learner's.
  const LearnerState state = learning.learner->state();
  EXPECT_TRUE(state.counters.contains("waiting_rollouts"));
  learning.collectors->end(true);
  for (auto& thread : threads) thread.join();
}

TEST(RemoteCollectors, NoMoreRolloutsAreBegunThanTheLagAllows) {
  const Learning learning(small_config(1));
  std::vector<std::unique_ptr<Scripted>> collectors;
  static_cast<void>(learning.learner->iterate());  // allows two
  for (int i = 0; i < 3; ++i) {
    collectors.push_back(std::make_unique<Scripted>(learning));
    EXPECT_EQ(collectors.back()->is_given_work(i < 2 ? 20'000ms : 600ms), i < 2);
  }
  collectors[0]->send_rollout(learning);
  EXPECT_EQ(learning.learn(1).lost_rollouts, 0);
  EXPECT_TRUE(collectors[2]->gets_work()) << "one was learned from";
}

TEST(RemoteCollectors, ACollectorDoesNotRunAheadOfItsLearner) {
  const Learning learning(small_config(8));
  static_cast<void>(learning.learner->iterate());
  Scripted only(learning);
  for (int k = 1; k <= 3; ++k) {
    ASSERT_TRUE(k == 1 ? only.is_given_work() : only.gets_work());
    only.send_rollout(learning);
    EXPECT_FALSE(only.is_given_work(600ms)) << "one waits, and there is one collector";
    EXPECT_LE(learning.learn(k).policy_lag, 1);
  }
}

TEST(RemoteCollectors, ARolloutThatHasBecomeTooOldIsCountedAndNotLearnedFrom) {
  const Learning learning(small_config(1));
  static_cast<void>(learning.learner->iterate());
  Scripted slow(learning);
  ASSERT_TRUE(slow.is_given_work());
  Scripted quick(learning);
  for (int k = 1; k <= 3; ++k) {
    ASSERT_TRUE(quick.is_given_work());
    quick.send_rollout(learning);
    EXPECT_EQ(learning.learn(k).stale_steps, 0);
  }
  slow.send_rollout(learning);
  IterationStats stats;
  for (int k = 0; k < 100 && stats.stale_steps == 0; ++k) stats = learning.learner->iterate();
  EXPECT_EQ(stats.stale_steps, 10);
  EXPECT_EQ(stats.steps, 30);
}

TEST(RemoteCollectors, ACollectorThatIsLostCostsItsRolloutAndAnotherBeginsOneForIt) {
  const Learning learning(small_config(1));
  static_cast<void>(learning.learner->iterate());
  std::vector<std::unique_ptr<Scripted>> collectors;
  for (int i = 0; i < 3; ++i) {
    collectors.push_back(std::make_unique<Scripted>(learning));
    collectors.back()->client->send(pack_ready(collectors.back()->head));
    if (i < 2) {
      ASSERT_TRUE(collectors.back()->gets_work());
    }
  }
  collectors.erase(collectors.begin());
  EXPECT_TRUE(collectors.back()->gets_work());
  EXPECT_EQ(learning.learner->iterate().lost_rollouts, 1);
}

TEST(RemoteCollectors, WhatIsOfAnotherRunOrAnEarlierAttemptIsRefused) {
  const Learning learning(small_config(1));
  EXPECT_THROW(Scripted(learning, "another run"), Error);
  EXPECT_THROW(Scripted(learning, "", "0.0.0"), Error);
  for (const RemoteHead& head : {RemoteHead{"another run", 3, -1}, RemoteHead{"a run", 2, -1}}) {
    Scripted late(learning, "a run");
    late.client->send(pack_ready(head));
    EXPECT_NE(late.why_sent_away().find("a message for run"), std::string::npos);
  }
  Scripted eager(learning);
  eager.send_rollout(learning);
  EXPECT_NE(eager.why_sent_away().find("not asked for"), std::string::npos);
}

TEST(RemoteCollectors, ARolloutThatIsNotFiniteSendsItsCollectorAwayAndTheRunGoesOn) {
  const Learning learning(small_config(1));
  static_cast<void>(learning.learner->iterate());
  Scripted wrong(learning);
  ASSERT_TRUE(wrong.is_given_work());
  wrong.send_rollout(learning, NAN);
  EXPECT_NE(wrong.why_sent_away().find("a reward that is not finite"), std::string::npos);
  Scripted cut(learning);
  ASSERT_TRUE(cut.is_given_work());
  cut.send_rollout(learning, 1, NAN);
  EXPECT_NE(cut.why_sent_away().find("a value of a last observation that is not finite"),
            std::string::npos);
  Scripted right(learning);
  ASSERT_TRUE(right.is_given_work());
  right.send_rollout(learning, 1);
  EXPECT_TRUE(learning.learn(1).learned);
}

TEST(RemoteCollectors, RolloutsThatWaitNormalisersAndWhatWasLostAreInTheState) {
  const Learning learning(small_config(3));
  static_cast<void>(learning.learner->iterate());
  {
    Scripted lost(learning);
    ASSERT_TRUE(lost.is_given_work());
  }
  Scripted collector(learning);
  ASSERT_TRUE(collector.is_given_work());
  collector.send_rollout(learning);
  LearnerState state;
  const auto deadline = os::deadline_after(20s);
  do {
    state = learning.learner->state();
  } while (state.counters["waiting_rollouts"].empty() && os::Clock::now() < deadline);
  ASSERT_EQ(state.counters["waiting_rollouts"].size(), 1U);

  const Learning again(small_config(3));
  again.learner->load_state(state);
  const IterationStats stats = again.learner->iterate();
  EXPECT_TRUE(stats.learned);
  EXPECT_EQ(stats.lost_rollouts, 1);
  EXPECT_EQ(stats.steps, 10);
}

TEST(RemoteCollectors, AnEndedLearnerIsAFarewellAndTellsWhetherTheRunIsOver) {
  auto learning = std::make_unique<Learning>(small_config(1));
  static_cast<void>(learning->learner->iterate());
  std::thread collector([&, options = learning->options(), config = learning->config] {
    auto envs = endless();
    const auto end = RemoteCollector(options).collect(envs, config);
    EXPECT_FALSE(end.over);
    EXPECT_EQ(end.why, "the learner has stopped");
  });
  learning->learn(3);
  learning.reset();
  collector.join();
}

TEST(RemoteMessages, ARolloutOfPicturesArrivesAsItWasAndSmaller) {
  if (!group::can_compress()) GTEST_SKIP() << "there is no liblz4.so.1 here";
  const std::vector<shm::TensorSpec> obs{{shm::DType::kU8, {4, 36, 36}}};
  const auto make = [&] {
    return CollectedRollout{.rollout = {6, 3, obs, {shm::DType::kI32, {1}}},
                            .obs_moments = collect::RunningMoments(0)};
  };
  CollectedRollout sent = make();
  for (auto& [name, view] : arrays_of(sent.rollout))
    for (std::size_t i = 0; i < view.bytes(); ++i)
      view.data[i] = static_cast<std::byte>(i / 500 + name.size());
  sent.finished = {{2, 7.5, 30}};
  sent.rollout.replace_ends(true);
  const Bytes plain = pack_rollout({"r", 1, 5}, sent, {}, false);
  const Bytes packed = pack_rollout({"r", 1, 5}, sent, {}, true);
  EXPECT_LT(10 * packed.size(), plain.size());
  EXPECT_LE(plain.size(), longest_rollout_message(sent));
  for (const Bytes& message : {plain, packed}) {
    CollectedRollout got = make();
    NormalizerNews news;
    const auto opened = open_remote(message);
    EXPECT_EQ(opened.head.version, 5);
    unpack_rollout(opened.rest, {}, got, news);
    EXPECT_EQ(got.finished, sent.finished);
    EXPECT_TRUE(got.rollout.ends_are_replaced());
    const auto arrays = arrays_of(got.rollout);
    const auto originals = arrays_of(sent.rollout);
    for (std::size_t k = 0; k < arrays.size(); ++k)
      EXPECT_TRUE(std::equal(arrays[k].second.data,
                             arrays[k].second.data + arrays[k].second.bytes(),
                             originals[k].second.data))
          << arrays[k].first;
    const std::vector<std::int64_t> few{2};
    EXPECT_THROW(unpack_rollout(opened.rest, few, got, news), Error)
        << "actions that there are not";
    // Cut short anywhere, it is an error and no crash.
    for (std::size_t cut = 0; cut < message.size(); cut += message.size() / 97 + 1)
      EXPECT_THROW(unpack_rollout(open_remote(std::span(message).first(cut)).rest, {}, got, news),
                   Error);
  }
}

}  // namespace
}  // namespace shoal::learn
