#include "shoal/learn/run/network_actor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "shoal/collect/experience_collector.h"
#include "shoal/learn/checkpoint/safetensors.h"
#include "shoal/os/error.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {
namespace {

using collect::Experience;
using collect::ExperienceCollector;
using vector::Backend;
using vector::VectorEnv;

constexpr int kEnvs = 6;

std::unique_ptr<VectorEnv> make(const char* id, Backend backend = Backend::kSerial,
                                int workers = 0) {
  return VectorEnv::create(id, {.num_envs = kEnvs,
                                .num_workers = workers,
                                .backend = backend,
                                .autoreset_mode = vector::AutoresetMode::kSameStep});
}

NetworkActor actor_for(const VectorEnv& envs, std::uint64_t seed = 3, bool normalize = false) {
  PpoConfig config;
  config.normalize_obs = normalize;
  return NetworkActor(envs.single_observation_space(), envs.single_action_space(), config, seed);
}

Experience collected(VectorEnv& envs, NetworkActor& actor, int steps = 50) {
  ExperienceCollector collector(envs);
  std::vector<std::optional<std::uint64_t>> seeds;
  for (std::uint64_t i = 0; i < kEnvs; ++i) seeds.emplace_back(i);
  collector.reset(seeds);
  collect::ExperienceSpec spec = collector.spec();
  spec.log_prob = spec.value = true;
  Experience experience = Experience::allocate(spec, steps);
  collector.collect(actor, experience, {.count = steps});
  return experience;
}

std::vector<std::byte> bytes(const shm::TensorView& view) {
  return {view.data, view.data + view.bytes()};
}

TEST(NetworkActor, TheSameSeedGivesTheSameExperienceOnEveryBackend) {
  for (const char* id : {"shoal/CartPole-v1", "shoal/Pendulum-v1"}) {
    const auto serial = make(id);
    NetworkActor first = actor_for(*serial);
    const Experience expected = collected(*serial, first);
    for (const int workers : {1, 2, 3}) {
      const auto threads = make(id, Backend::kThread, workers);
      NetworkActor actor = actor_for(*threads);
      const Experience experience = collected(*threads, actor);
      EXPECT_EQ(bytes(experience.action()), bytes(expected.action())) << id;
      EXPECT_EQ(bytes(experience.obs()[0]), bytes(expected.obs()[0])) << id;
      EXPECT_EQ(bytes(experience.log_prob()), bytes(expected.log_prob())) << id;
      EXPECT_EQ(bytes(experience.value()), bytes(expected.value())) << id;
    }
    NetworkActor other = actor_for(*serial, 4);
    EXPECT_NE(bytes(collected(*serial, other).action()), bytes(expected.action())) << id;
  }
}

TEST(NetworkActor, ActionsOfABoxAreKeptAsTheyWereDrawn) {
  const auto envs = make("shoal/Pendulum-v1");
  NetworkActor actor = actor_for(*envs);
  const Experience e = collected(*envs, actor, 200);
  // A mean near 0 and a deviation of 1: some lie outside of [-2, 2].
  int outside = 0;
  for (int t = 0; t < e.steps(); ++t)
    for (const float action : e.at<float>(e.action(), t)) outside += std::abs(action) > 2;
  EXPECT_GT(outside, 0);
}

TEST(NetworkActor, WeightsThatAreLoadedAreThoseThatAct) {
  const auto envs = make("shoal/CartPole-v1");
  NetworkActor first = actor_for(*envs, 3, true);
  NetworkActor second = actor_for(*envs, 3, true);
  std::vector<NamedArray> weights = first.weights();
  EXPECT_EQ(weights, second.weights());
  for (NamedArray& array : weights) {
    if (array.name != "actor.0.weight" && array.name != "normalizer.obs.mean") continue;
    array.bytes.assign(array.bytes.size(), std::byte{0x3e});
  }
  second.load_weights(weights);
  EXPECT_EQ(second.weights(), weights);
  EXPECT_NE(bytes(collected(*envs, first).log_prob()), bytes(collected(*envs, second).log_prob()));

  weights.pop_back();
  weights.pop_back();
  weights[0].bytes.assign(weights[0].bytes.size(), std::byte{});
  EXPECT_THROW(second.load_weights({weights[0]}), InvalidArgument);
  EXPECT_NE(second.weights()[0], weights[0]);
}

TEST(NetworkActor, ADirectoryThatIsNoCheckpointIsRefused) {
  const auto envs = make("shoal/CartPole-v1");
  EXPECT_THROW(NetworkActor::load("/nowhere", envs->single_observation_space(),
                                  envs->single_action_space(), 1),
               CorruptFile);
}

TEST(NetworkActor, WhatItRemembersIsGivenBack) {
  const auto envs = make("shoal/CartPoleNoVel-v1");
  RecurrentPpoConfig config;
  config.lstm_size = 4;
  const auto actor = [&] {
    return NetworkActor(envs->single_observation_space(), envs->single_action_space(), config, 3);
  };
  NetworkActor first = actor();
  EXPECT_TRUE(first.memory().empty());
  static_cast<void>(collected(*envs, first, 5));
  const std::vector<float> memory(first.memory().begin(), first.memory().end());
  EXPECT_EQ(memory.size(), kEnvs * first.memory_size());
  NetworkActor second = actor();
  second.load_memory(memory);
  EXPECT_TRUE(std::ranges::equal(second.memory(), memory));
  EXPECT_THROW(second.load_memory(std::span(memory).first(3)), InvalidArgument);
  NetworkActor plain = actor_for(*envs);
  EXPECT_EQ(plain.memory_size(), 0U);
  EXPECT_THROW(plain.load_memory(memory), InvalidArgument);
}

}  // namespace
}  // namespace shoal::learn
