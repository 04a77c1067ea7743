#include "shoal/learn/config/train_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shoal/learn/config/presets.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

std::string override_error(const char* text) {
  return error_of([&] {
    TrainConfig config;
    apply_overrides(json::parse(text), config);
    validate(config);
  });
}

TEST(TrainConfig, EveryFieldSurvivesTheTripThroughJson) {
  TrainConfig config;
  config.ppo.gamma = 0.1;
  config.ppo.target_kl = 0.02;
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
  expected.ppo.gamma = 0.5;
  expected.ppo.total_steps = 100'000;
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

TEST(Presets, AllAreValidAndRoundTrip) {
  for (const auto& name : preset_names()) {
    const auto config = preset(name);
    EXPECT_NO_THROW(validate(config)) << name;
    TrainConfig read;
    apply_overrides(to_flat_json(config), read);
    EXPECT_EQ(read, config) << name;
  }
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
  const auto config = preset("sb3");
  EXPECT_EQ(config.num_envs, 1);
  EXPECT_EQ(config.ppo.num_steps, 2048);
  EXPECT_EQ(config.ppo.batch_size, 64);
  EXPECT_EQ(config.ppo.epochs, 10);
  EXPECT_EQ(config.ppo.learning_rate, 3e-4);
  EXPECT_EQ(config.ppo.learning_rate_schedule, Schedule::kConstant);
  EXPECT_FALSE(config.ppo.clip_range_value.has_value());
  EXPECT_TRUE(config.ppo.bootstrap_truncated);
}

TEST(Presets, CleanRlTreatsTruncationAsTermination) {
  for (const char* name : {"cleanrl", "cleanrl_continuous", "cleanrl_atari"})
    EXPECT_FALSE(preset(name).ppo.bootstrap_truncated) << name;
}

TEST(Presets, AWrongNameIsAnErrorThatNamesTheNearest) {
  EXPECT_THAT(error_of([] { preset("claenrl"); }), HasSubstr("\"cleanrl\""));
  EXPECT_THAT(preset_names(), Contains("LunarLander-v3"));
}

}  // namespace
}  // namespace shoal::learn
