#include "shoal/learn/run/replayable_vector_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "shoal/env/register_env.h"

namespace shoal::learn {
namespace {

using vector::Backend;
using vector::Batch;
using vector::VectorEnv;

std::shared_ptr<VectorEnv> make(const char* id, int num_envs, Backend backend = Backend::kSerial,
                                int workers = 1) {
  return VectorEnv::create(id, {.num_envs = num_envs, .num_workers = workers, .backend = backend});
}

/// Every array of a batch, as bytes.
std::vector<std::byte> bytes_of(const Batch& batch) {
  std::vector<std::byte> all;
  const auto add = [&](std::span<const std::byte> bytes) {
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  for (const auto& view : batch.obs) add({view.data, view.bytes()});
  add(std::as_bytes(batch.reward));
  add(std::as_bytes(batch.terminated));
  add(std::as_bytes(batch.truncated));
  add(std::as_bytes(batch.reset));
  return all;
}

/// Random actions that the space contains, for the spaces of the environments used here.
class RandomActions {
 public:
  void write(const VectorEnv& envs) {
    const auto& view = envs.actions()[0];
    if (view.row.dtype == shm::DType::kF32) {
      std::uniform_real_distribution<float> torque(-1, 1);
      for (float& value : view.as<float>()) value = torque(random_);
    } else {
      for (auto& value : view.as<std::int64_t>()) value = static_cast<std::int64_t>(random_() % 2);
    }
  }

 private:
  std::mt19937_64 random_{7};
};

std::vector<std::optional<std::uint64_t>> seeds(int num_envs, std::uint64_t first) {
  std::vector<std::optional<std::uint64_t>> list;
  for (int i = 0; i < num_envs; ++i) list.emplace_back(first + static_cast<std::uint64_t>(i));
  return list;
}

/// As a checkpoint would hand it back.
SafeTensors through_a_file(const std::vector<NamedArray>& record) {
  std::vector<SafeTensor> tensors;
  for (const auto& array : record) tensors.push_back({array.name, array.spec, array.bytes});
  return SafeTensors::parse(serialize_safetensors(tensors, {}), "record");
}

class ReplayTest : public testing::TestWithParam<const char*> {};

TEST_P(ReplayTest, BringsOtherEnvironmentsToTheSamePointAndThenTheyGoTheSameWay) {
  ReplayableVectorEnv first(make(GetParam(), 5));
  RandomActions actions;
  Batch batch = first.reset(seeds(5, 100));
  for (int step = 0; step < 300; ++step) {
    actions.write(first);
    batch = first.step();
  }
  const auto record = through_a_file(first.record());

  ReplayableVectorEnv second(make(GetParam(), 5, Backend::kThread, 2));
  const auto replayed = second.replay(record);
  ASSERT_TRUE(replayed.has_value());
  EXPECT_EQ(bytes_of(*replayed), bytes_of(batch));
  EXPECT_EQ(second.recorded_steps(), 300);

  for (int step = 0; step < 300; ++step) {
    actions.write(first);
    std::memcpy(second.actions()[0].data, first.actions()[0].data, first.actions()[0].bytes());
    ASSERT_EQ(bytes_of(first.step()), bytes_of(second.step())) << step;
  }
  EXPECT_EQ(first.record(), second.record());
}

INSTANTIATE_TEST_SUITE_P(
    Tasks, ReplayTest, testing::Values("shoal/CartPole-v1", "shoal/Pendulum-v1"),
    [](const auto& info) {
      return std::string(info.param).substr(6, std::string_view("CartPole").size());
    });

/// Two of its arrays have the path "a/b".
struct Slashes : env::Env {
  Slashes() : Env(env::Dict{{{"a/b", kOne}, {"a", env::Dict{{{"b", kOne}}}}}}, env::Discrete{2}) {}
  void reset(const env::Row& /*obs*/) override {}
  env::Outcome step(const env::Row& /*action*/, const env::Row& /*obs*/) override { return {}; }
  static inline const env::Box kOne{{shm::DType::kF32, {1}}, {0}, {1}};
};
SHOAL_REGISTER_ENV("test/Slashes-v0", Slashes);

TEST(ReplayableVectorEnv, ArraysThatARecordCannotNameApartAreRefused) {
  try {
    ReplayableVectorEnv envs(make("test/Slashes-v0", 2));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("['a/b'] and ['a']['b'] are both \"a/b\""));
  }
}

TEST(ReplayableVectorEnv, StoresADiscreteActionInAByte) {
  ReplayableVectorEnv envs(make("shoal/CartPole-v1", 3));
  RandomActions actions;
  envs.reset(seeds(3, 0));
  for (int step = 0; step < 4; ++step) {
    actions.write(envs);
    envs.step();
  }
  const auto record = through_a_file(envs.record());
  EXPECT_EQ(record.at("actions").spec, (shm::TensorSpec{shm::DType::kU8, {4, 3}}));
}

TEST(ReplayableVectorEnv, AResetOfAllWithSeedsBeginsAnew) {
  ReplayableVectorEnv envs(make("shoal/CartPole-v1", 2));
  RandomActions actions;
  envs.reset(seeds(2, 0));
  actions.write(envs);
  envs.step();
  EXPECT_EQ(envs.recorded_steps(), 1);
  envs.reset(seeds(2, 9));
  EXPECT_EQ(envs.recorded_steps(), 0);
  ReplayableVectorEnv other(make("shoal/CartPole-v1", 2));
  EXPECT_TRUE(other.replay(through_a_file(envs.record())).has_value());
}

TEST(ReplayableVectorEnv, WithoutSeedsForAllThereIsNothingToReplay) {
  ReplayableVectorEnv envs(make("shoal/CartPole-v1", 2));
  EXPECT_TRUE(envs.record().empty());
  envs.reset(std::span<const std::optional<std::uint64_t>>());
  EXPECT_TRUE(envs.record().empty());
  envs.reset(seeds(2, 0));
  EXPECT_FALSE(envs.record().empty());
  const std::vector<std::uint8_t> one = {1, 0};
  envs.reset(seeds(2, 0), one);
  EXPECT_TRUE(envs.record().empty());
  EXPECT_FALSE(envs.replay(through_a_file({})).has_value());
}

TEST(ReplayableVectorEnv, ARecordOfOtherEnvironmentsIsAnError) {
  ReplayableVectorEnv envs(make("shoal/CartPole-v1", 2));
  envs.reset(seeds(2, 0));
  const auto record = through_a_file(envs.record());
  ReplayableVectorEnv more(make("shoal/CartPole-v1", 3));
  EXPECT_THROW(more.replay(record), CorruptFile);
  ReplayableVectorEnv others(make("shoal/Pendulum-v1", 2));
  EXPECT_THROW(others.replay(record), CorruptFile);
}

TEST(ReplayableVectorEnv, ArrivingElsewhereIsNoticed) {
  ReplayableVectorEnv envs(make("shoal/CartPole-v1", 2));
  RandomActions actions;
  envs.reset(seeds(2, 0));
  for (int step = 0; step < 5; ++step) {
    actions.write(envs);
    envs.step();
  }
  auto record = envs.record();
  for (auto& array : record)
    if (array.name == "actions") array.bytes[3] ^= std::byte{1};
  ReplayableVectorEnv other(make("shoal/CartPole-v1", 2));
  EXPECT_FALSE(other.replay(through_a_file(record)).has_value());
}

}  // namespace
}  // namespace shoal::learn
