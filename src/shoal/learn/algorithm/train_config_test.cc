#include "shoal/learn/algorithm/train_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shoal/learn/algorithm/presets.h"
#include "shoal/os/error.h"
#include "shoal/os/testing/message_of.h"

namespace shoal::learn {
namespace {

using nlohmann::json;
using os::testing::message_of;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

std::string override_error(const char* text) {
  return message_of<InvalidArgument>([&] {
    TrainConfig config;
    apply_overrides(json::parse(text), config);
    validate(config);
  });
}

TEST(TrainConfig, EveryFieldSurvivesTheTripThroughJson) {
  TrainConfig config;
  config.learner().gamma = 0.1;
  std::get<PpoConfig>(config.algorithm).target_kl = 0.02;
  config.seed = (std::uint64_t{1} << 63) - 1;
  config.num_envs = 3;
  config.eval_every = 4;
  config.eval_episodes = 5;
  config.eval_envs = 6;
  config.final_episodes = 7;
  config.target_return = -0.3;
  config.save_every_seconds = 0.25;
  config.replay_limit = 9;
  config.pause_at_step = 10;
  TrainConfig read;
  apply_overrides(json::parse(to_flat_json(config).dump()), read);
  EXPECT_EQ(read, config);
  apply_overrides(to_flat_json({}), read);
  EXPECT_EQ(read, TrainConfig());
}

TEST(TrainConfig, OverridesChangeOnlyWhatTheyName) {
  TrainConfig config;
  apply_overrides({{"gamma", 0.5}, {"total_steps", 1e5}, {"target_return", 3}}, config);
  TrainConfig expected;
  expected.learner().gamma = 0.5;
  expected.learner().total_steps = 100'000;
  expected.target_return = 3;
  EXPECT_EQ(config, expected);
}

TEST(TrainConfig, AWrongNameIsAnErrorThatNamesTheNearest) {
  EXPECT_THAT(override_error(R"({"learing_rate": 1})"),
              AllOf(HasSubstr("learing_rate"), HasSubstr("\"learning_rate\"")));
  EXPECT_THAT(override_error(R"({"num_evns": 1})"), HasSubstr("\"num_envs\""));
}

TEST(TrainConfig, AWrongTypeOrValueIsAnErrorThatNamesTheOption) {
  for (const char* text :
       {R"({"num_envs": "8"})", R"({"num_envs": 1.5})", R"({"num_envs": 5000000000})",
        R"({"num_envs": 0})", R"({"seed": -1})", R"({"target_return": "high"})",
        R"({"save_every_seconds": null})", R"({"eval_episodes": 0})", R"({"pause_at_step": 0})",
        R"({"gamma": "x"})", R"({"gamma": 2})", R"({"batch_size": 0})"}) {
    const auto name = json::parse(text).items().begin().key();
    EXPECT_THAT(override_error(text), HasSubstr(name)) << text;
  }
  EXPECT_THAT(override_error("[]"), HasSubstr("object"));
}

TEST(TrainConfig, NamingAnotherAlgorithmTakesItsDefaults) {
  TrainConfig config;
  apply_overrides({{"gamma", 0.5}, {"num_envs", 3}}, config);
  EXPECT_EQ(algorithm_of(config.algorithm), "ppo");
  apply_overrides({{"num_steps", 7}, {"algorithm", "a2c"}}, config);
  A2cConfig expected;
  expected.num_steps = 7;
  EXPECT_EQ(std::get<A2cConfig>(config.algorithm), expected);
  EXPECT_EQ(config.num_envs, 3) << "of the run, not of the algorithm";
  apply_overrides({{"algorithm", "a2c"}, {"gamma", 0.9}}, config);
  EXPECT_EQ(config.learner().num_steps, 7) << "the same algorithm keeps what it was told";
}

TEST(TrainConfig, WhatNamesNoAlgorithmIsPpos) {
  TrainConfig config;
  json old = to_flat_json(config);
  EXPECT_EQ(old["algorithm"], "ppo");
  for (const char* name : {"algorithm", "optimizer", "log_interval", "rmsprop_eps"})
    old.erase(name);
  old["epochs"] = 3;
  apply_overrides(old, config);
  EXPECT_EQ(std::get<PpoConfig>(config.algorithm).epochs, 3);
}

TEST(TrainConfig, AnOptionThatIsNoMoreIsReadFromFilesAndRefusedFromOthers) {
  json old = to_flat_json({});
  old["gamma"] = 0.5;
  old["fused"] = false;
  TrainConfig config;
  apply_saved(old, config);
  EXPECT_EQ(config.learner().gamma, 0.5);
  EXPECT_THAT(override_error(R"({"fused": true})"),
              AllOf(HasSubstr("no option \"fused\" any more"), HasSubstr("leave it out")));
}

TEST(TrainConfig, AnOptionOfAnotherAlgorithmIsAnErrorThatSaysSo) {
  EXPECT_THAT(override_error(R"({"algorithm": "a2c", "clip_range": 0.1})"),
              AllOf(HasSubstr("a2c has no option \"clip_range\""), HasSubstr("one of ppo")));
  EXPECT_THAT(override_error(R"({"steps": 5})"), HasSubstr("nearest is \"num_steps\""));
  EXPECT_THAT(override_error(R"({"algorithm": "a2"})"),
              HasSubstr("no algorithm 'a2'; there is ppo, "));
  EXPECT_THAT(override_error(R"({"xyzzy": 1})"),
              HasSubstr("no option \"xyzzy\"; shoal.learn.config_names(\"ppo\") lists them"));
  EXPECT_THAT(override_error(R"({"algorithm": 2})"), HasSubstr("algorithm"));
}

TEST(Presets, AllAreValidAndRoundTrip) {
  for (const auto& algorithm : algorithm_names()) {
    for (const auto& name : preset_names(algorithm)) {
      const auto config = preset(name, algorithm);
      EXPECT_EQ(algorithm_of(config.algorithm), algorithm);
      EXPECT_NO_THROW(validate(config)) << name;
      TrainConfig read;
      apply_overrides(to_flat_json(config), read);
      EXPECT_EQ(read, config) << name;
    }
    EXPECT_EQ(preset_for("NoSuchTask-v0", algorithm), preset_names(algorithm).front());
  }
}

TEST(Presets, EachAlgorithmHasItsOwnOfATask) {
  EXPECT_EQ(preset_for("shoal/CartPole-v1", "a2c"), "CartPole-v1");
  EXPECT_EQ(preset_for("SegmentedWorld-v0"), "SegmentedWorld-v0");
  EXPECT_EQ(preset_for("SegmentedWorld-v0", "a2c"), "sb3");
  EXPECT_NE(preset("CartPole-v1", "a2c"), preset("CartPole-v1"));
  EXPECT_THAT(message_of<InvalidArgument>([] { preset("cleanrl", "a2c"); }),
              HasSubstr("a2c has no preset"));
  EXPECT_THAT(message_of<InvalidArgument>([] { preset_names("a2x"); }),
              HasSubstr("no algorithm 'a2x'; there is ppo, a2c"));
}

TEST(Presets, WhatATaskWithoutAPresetTakesIsStableBaselines3sWhereItHasTheAlgorithm) {
  for (const auto& algorithm : {"ppo", "a2c"}) EXPECT_EQ(preset_for("", algorithm), "sb3");
  for (const auto& algorithm : {"a3c", "impala", "appo"})
    EXPECT_EQ(preset_for("", algorithm), "default");
}

TEST(TrainConfig, OptionsOfAsynchronousLearnersAreChecked) {
  for (const char* algorithm : {"impala", "appo"}) {
    for (const auto& [name, value] :
         {std::pair("max_lag", json(0)), std::pair("max_lag", json(1001)),
          std::pair("rho_bar", json(0)), std::pair("c_bar", json(-1)),
          std::pair("deterministic", json(1)), std::pair("gamma", json(2))})
      EXPECT_THAT(override_error(json{{"algorithm", algorithm}, {name, value}}.dump().c_str()),
                  HasSubstr(name));
  }
  EXPECT_THAT(override_error(R"({"algorithm": "appo", "batch_size": 0})"), HasSubstr("batch_size"));
  EXPECT_THAT(override_error(R"({"max_lag": 1})"), HasSubstr("one of impala"));
}

TEST(Presets, Sb3OfA2cIsStableBaselines3s) {
  const auto run = preset("sb3", "a2c");
  const auto& config = run.learner();
  EXPECT_EQ(run.num_envs, 1);
  EXPECT_EQ(config.num_steps, 5);
  EXPECT_EQ(config.learning_rate, 7e-4);
  EXPECT_EQ(config.gamma, 0.99);
  EXPECT_EQ(config.gae_lambda, 1);
  EXPECT_EQ(config.value_coef, 0.5);
  EXPECT_EQ(config.entropy_coef, 0);
  EXPECT_EQ(config.max_grad_norm, 0.5);
  EXPECT_EQ(config.optimizer, OptimizerKind::kRmsProp);
  EXPECT_EQ(config.rmsprop_alpha, 0.99);
  EXPECT_EQ(config.rmsprop_eps, 1e-5);
  EXPECT_EQ(config.advantage_normalization, AdvantageNormalization::kNone);
  EXPECT_EQ(config.log_interval, 100);
}

TEST(Presets, ATasksPresetAlsoServesItsNativeTwin) {
  EXPECT_EQ(preset_for("CartPole-v1"), "CartPole-v1");
  EXPECT_EQ(preset_for("shoal/CartPole-v1"), "CartPole-v1");
  EXPECT_EQ(preset_for("some.module:Pendulum-v1"), "Pendulum-v1");
  EXPECT_EQ(preset_for("CartPole-v0"), "sb3");
  EXPECT_EQ(preset_for("cleanrl"), "sb3");
  EXPECT_EQ(preset_for(""), "sb3");
}

TEST(Presets, Sb3IsStableBaselines3) {
  const auto run = preset("sb3");
  EXPECT_EQ(run.num_envs, 1);
  const auto& config = std::get<PpoConfig>(run.algorithm);
  EXPECT_EQ(config.num_steps, 2048);
  EXPECT_EQ(config.batch_size, 64);
  EXPECT_EQ(config.epochs, 10);
  EXPECT_EQ(config.learning_rate, 3e-4);
  EXPECT_EQ(config.learning_rate_schedule, Schedule::kConstant);
  EXPECT_FALSE(config.clip_range_value.has_value());
  EXPECT_TRUE(config.bootstrap_truncated);
}

TEST(Presets, CleanRlTreatsTruncationAsTermination) {
  for (const char* name : {"cleanrl", "cleanrl_continuous", "cleanrl_atari"})
    EXPECT_FALSE(preset(name).learner().bootstrap_truncated) << name;
}

TEST(Presets, AGameOfAtarisHasOneWhereTheAlgorithmHas) {
  for (const char* id : {"ALE/Seaquest-v5", "ale_py:ALE/Breakout-v5", "PongNoFrameskip-v4"})
    for (const char* algorithm : {"ppo", "a2c"})
      EXPECT_EQ(preset_for(id, algorithm), "atari") << id;
  EXPECT_EQ(preset_for("ALE/Pong-v5"), "Pong-v5");
  EXPECT_EQ(preset_for("ALE/Pong-v5", "a2c"), "atari");
  EXPECT_EQ(preset_for("ALE/Pong-v5", "impala"), preset_names("impala").front());
  EXPECT_EQ(preset_for("Pong-v4"), "sb3");
  EXPECT_TRUE(preset("atari").learner().sign_reward);
}

TEST(Presets, AWrongNameIsAnErrorThatNamesTheNearest) {
  EXPECT_THAT(message_of<InvalidArgument>([] { preset("claenrl"); }), HasSubstr("\"cleanrl\""));
  EXPECT_THAT(preset_names(), Contains("LunarLander-v3"));
}

}  // namespace
}  // namespace shoal::learn
