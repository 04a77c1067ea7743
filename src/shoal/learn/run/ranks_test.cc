// Training runs on several ranks, which are threads here; that processes do the same,
// tests/python/test_learn_ranks.py shows.
#include "shoal/learn/run/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "shoal/group/testing/layouts.h"
#include "shoal/learn/algorithm/presets.h"
#include "shoal/learn/checkpoint/durable_file.h"
#include "shoal/learn/run/trainer.h"
#include "shoal/learn/testing/temporary_directory.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

namespace fs = std::filesystem;
using group::Group;
using group::testing::Layout;
using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kEnv = "shoal/CartPole-v1";

/// Everything on that ranks have to agree on: normalisers, moments of advantages, an early end.
TrainConfig config_of(const std::string& algorithm, const json& overrides = json::object()) {
  TrainConfig config;
  apply_overrides({{"algorithm", algorithm}}, config);
  if (algorithm == "ppo")
    apply_overrides({{"batch_size", 60}, {"epochs", 3}, {"target_kl", 0.02}}, config);
  apply_overrides({{"total_steps", 1600},
                   {"num_envs", 8},
                   {"num_steps", 40},
                   {"advantage_normalization", "minibatch"},
                   {"learning_rate", 3e-3},
                   {"normalize_obs", true},
                   {"normalize_reward", true},
                   {"policy_hidden", {16}},
                   {"value_hidden", {16}},
                   {"eval_every", 0},
                   {"eval_episodes", 2},
                   {"eval_envs", 2},
                   {"final_episodes", 2},
                   {"log_interval", 1},
                   {"seed", 5}},
                  config);
  apply_overrides(overrides, config);
  return config;
}

class RanksTest : public ::testing::Test {
 protected:
  fs::path directory(const std::string& name) const { return temporary_.path() / name; }

  /// One rank's part of a run.
  TrainResult train(const std::string& name, const TrainConfig& config,
                    std::shared_ptr<Group> group, bool resume) {
    const auto range = envs_of_rank(config.num_envs, config.algorithm, group);
    const auto make = [](int num_envs) {
      return vector::VectorEnv::create(kEnv,
                                       {.num_envs = num_envs, .backend = vector::Backend::kSerial});
    };
    Trainer trainer({.envs = make(range.count),
                     .eval_envs = group && group->rank() > 0 ? nullptr : make(config.eval_envs),
                     .config = config,
                     .run_directory = directory(name),
                     .resume = resume,
                     .group = group});
    trainer.start();
    trainer.wait();
    return trainer.result();
  }

  /// A run on ranks in this layout; the results by rank.
  std::vector<TrainResult> run(const std::string& name, const Layout& layout,
                               const TrainConfig& config, bool resume = false) {
    const auto launches = group::testing::launches(layout);
    std::vector<TrainResult> results(launches.size());
    std::vector<std::jthread> threads;
    for (const auto& launch : launches)
      threads.emplace_back([&, launch] {
        try {
          results[static_cast<std::size_t>(launch.rank)] =
              train(name, config, Group::join(launch), resume);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << launch.rank << ": " << error.what();
        }
      });
    threads.clear();
    return results;
  }

  std::string text(const std::string& name, const std::string& file) const {
    const auto bytes = read_file(directory(name) / file);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  /// All arrays of the last checkpoint.
  std::string arrays(const std::string& name) const {
    std::string all;
    for (const char* file : {"policy", "optim", "envs"})
      all += text(name, std::string("checkpoints/last/") + file + ".safetensors");
    return all;
  }

  /// What was measured, but for times.
  std::vector<json> progress(const std::string& name) const {
    std::vector<json> lines;
    std::istringstream file(text(name, "progress.jsonl"));
    for (std::string line; std::getline(file, line);) {
      lines.push_back(json::parse(line));
      for (const char* timed : {"seconds", "time/fps", "time/time_elapsed", "charts/SPS"})
        lines.back().erase(timed);
    }
    return lines;
  }

  TemporaryDirectory temporary_;
};

class Ranks : public RanksTest, public ::testing::WithParamInterface<std::string> {};

INSTANTIATE_TEST_SUITE_P(Algorithms, Ranks, ::testing::Values("ppo", "a2c"),
                         [](const auto& info) { return info.param; });

TEST_P(Ranks, TheSameShardsGiveTheSameBitsOnAnyNumberOfRanks) {
  const auto config = config_of(GetParam(), {{"shards", 4}});
  run("one", {1}, config);
  for (const auto& [name, layout] :
       {std::pair{"two", Layout{2}}, {"four", Layout{4}}, {"apart", Layout{1, 1}}}) {
    run(name, layout, config);
    EXPECT_EQ(arrays(name), arrays("one")) << name;
    EXPECT_EQ(progress(name), progress("one")) << name;
  }
}

TEST_P(Ranks, WithoutShardsARunIsRepeatable) {
  const auto config = config_of(GetParam());
  run("first", {2}, config);
  run("second", {2}, config);
  EXPECT_EQ(arrays("first"), arrays("second"));
  run("three", {3}, config_of(GetParam(), {{"num_envs", 9}}));  // no power of two
}

TEST_P(Ranks, AnUpdateThatIsNotSharedOutGivesTheSameBits) {
  const auto shared_out = config_of(GetParam(), {{"split_update", "always"}});
  run("always", {2}, shared_out);
  for (const auto& [name, how, layout] : {std::tuple{"never", "never", Layout{2}},
                                          {"apart", "never", Layout{1, 1}},
                                          {"measured", "auto", Layout{2}}}) {
    run(name, layout, config_of(GetParam(), {{"split_update", how}}));
    EXPECT_EQ(arrays(name), arrays("always")) << name;
    EXPECT_EQ(progress(name), progress("always")) << name;
  }
  run("shards", {2}, config_of(GetParam(), {{"split_update", "never"}, {"shards", 4}}));
  run("alone", {1}, config_of(GetParam(), {{"shards", 4}}));
  EXPECT_EQ(arrays("shards"), arrays("alone"));
}

TEST_P(Ranks, ARunGoesOnWithAnotherNumberOfRanks) {
  const auto whole = config_of(GetParam(), {{"shards", 4}});
  run("whole", {1}, whole);
  run("cut", {4}, config_of(GetParam(), {{"shards", 4}, {"pause_at_step", 640}}));
  run("cut", {2}, whole, true);
  EXPECT_EQ(arrays("cut"), arrays("whole"));
}

TEST_P(Ranks, OnlyRankZeroWritesAndEvaluatesAndAllCountAllSteps) {
  const auto config = config_of(GetParam());
  const auto results = run("a", {2}, config);
  EXPECT_EQ(results[0].steps, 1600);
  EXPECT_EQ(results[1].steps, 1600);
  EXPECT_EQ(results[0].evaluated_episodes, 2);
  EXPECT_EQ(results[1].evaluated_episodes, 0);
  EXPECT_GT(results[0].episodes, results[1].episodes);
  EXPECT_EQ(progress("a").back().at("step"), 1600);
}

TEST_F(RanksTest, NumbersThatDoNotGoTogetherAreRefusedOnAllRanks) {
  for (const auto& [overrides, told] :
       {std::pair{json{{"num_envs", 9}}, "num_envs is 9, which does not go into 2 ranks"},
        {json{{"shards", 3}}, "shards is 3, which does not go into 2 ranks"},
        {json{{"shards", 6}, {"num_envs", 12}}, "powers of two"}}) {
    const auto config = config_of("ppo", overrides);
    std::vector<std::jthread> threads;
    for (const auto& launch : group::testing::launches({2}))
      threads.emplace_back([&, launch] {
        const auto group = Group::join(launch);
        try {
          static_cast<void>(envs_of_rank(config.num_envs, config.algorithm, group));
          ADD_FAILURE() << told;
        } catch (const InvalidArgument& error) {
          EXPECT_THAT(error.what(), HasSubstr(told));
        }
        group->barrier();
      });
  }
}

TEST_F(RanksTest, AnUpdateOfEachRankNeedsSumsInLine) {
  const auto config = config_of("ppo", {{"split_update", "never"}, {"num_envs", 9}});
  std::vector<std::jthread> threads;
  for (const auto& launch : group::testing::launches({2, 1}))
    threads.emplace_back([&, launch] {
      const auto group = Group::join(launch);
      const auto envs =
          vector::VectorEnv::create(kEnv, {.num_envs = 3, .backend = vector::Backend::kSerial});
      EXPECT_THAT(
          [&] {
            make_learner(envs->single_observation_space(), envs->single_action_space(), 9,
                         config.algorithm, 1, group);
          },
          ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("split_update is never")));
      group->barrier();
    });
}

TEST_F(RanksTest, OtherAlgorithmsAreRefused) {
  std::vector<std::jthread> threads;
  for (const auto& launch : group::testing::launches({2}))
    threads.emplace_back([launch] {
      const auto group = Group::join(launch);
      TrainConfig config;
      apply_overrides({{"algorithm", "dqn"}}, config);
      EXPECT_THROW(envs_of_rank(config.num_envs, config.algorithm, group), InvalidArgument);
      group->barrier();
    });
}

TEST_F(RanksTest, WhatEndsOneEndsTheOthersWithItsCause) {
  const auto config = config_of("ppo");
  run("taken", {1}, config);  // so that rank 0 fails: a run is there already
  std::string others;
  std::vector<std::jthread> threads;
  for (const auto& launch : group::testing::launches({2}))
    threads.emplace_back([&, launch] {
      try {
        train("taken", config, Group::join(launch), false);
        ADD_FAILURE() << "rank " << launch.rank << " trained";
      } catch (const group::PeerLost& lost) {
        EXPECT_EQ(launch.rank, 1);
        others = lost.what();
      } catch (const InvalidArgument&) {
        EXPECT_EQ(launch.rank, 0);
      }
    });
  threads.clear();
  EXPECT_THAT(others, HasSubstr("already holds a run"));
}

}  // namespace
}  // namespace shoal::learn
