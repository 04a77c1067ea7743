#include "shoal/learn/ppo/ppo_config.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "shoal/learn/config/option.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using nlohmann::json;

std::string refusal(const json& options) {
  PpoConfig config;
  try {
    options_from_json(options, config);
    validate(config);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(PpoConfig, AllFieldsSurviveJson) {
  PpoConfig config;
  config.total_steps = 7;
  config.num_steps = 3;
  config.gamma = 0.5;
  config.gae_lambda = 0.25;
  config.bootstrap_truncated = false;
  config.batch_size = 9;
  config.epochs = 2;
  config.learning_rate = 0.1;
  config.learning_rate_schedule = Schedule::kLinear;
  config.clip_range = 0.3;
  config.clip_range_schedule = Schedule::kLinear;
  config.clip_range_value = 0.4;
  config.pessimistic_value_clip = false;
  config.value_coef = 0.7;
  config.entropy_coef = 0.2;
  config.entropy_coef_schedule = Schedule::kLinear;
  config.target_kl = 0.01;
  config.recompute_advantages = true;
  config.normalize_returns = true;
  config.value_gain = 1.5;
  config.shards = 4;
  config.ranks.split_update = SplitUpdate::kNever;
  config.ranks.sync_fraction = 0.5;
  config.max_grad_norm = 5;
  config.adam_beta1 = 0.8;
  config.adam_beta2 = 0.99;
  config.adam_eps = 1e-8;
  config.advantage_normalization = AdvantageNormalization::kRollout;
  config.normalize_obs = true;
  config.clip_obs = 5;
  config.normalize_reward = true;
  config.clip_reward = 4;
  config.sign_reward = true;
  config.policy_hidden = {32};
  config.value_hidden = {};
  config.shared_hidden = true;
  config.activation = Activation::kRelu;
  config.orthogonal_init = false;
  config.log_std_init = -1;
  config.precision = Precision::kBfloat16;
  config.pixel_mean = 0.25;
  config.log_interval = 2;
  config.optimizer = OptimizerKind::kRmsPropTf;
  config.rmsprop_alpha = 0.95;
  config.rmsprop_eps = 0.1;
  config.overlap = true;
  const json text = options_to_json(config);
  const json defaults = options_to_json(PpoConfig{});
  for (const auto& [name, value] : text.items())
    EXPECT_NE(value, defaults.at(name)) << name << " was not varied here";
  PpoConfig back;
  options_from_json(json::parse(text.dump()), back);
  EXPECT_EQ(back, config);
}

TEST(PpoConfig, NamedFieldsOverwriteAndOthersStay) {
  PpoConfig config;
  config.gamma = 0.5;
  config.clip_range_value = 0.2;
  options_from_json(
      json::parse(R"({"epochs": 3.0, "clip_range_value": null, "activation": "relu"})"), config);
  EXPECT_EQ(config.epochs, 3);
  EXPECT_EQ(config.gamma, 0.5);
  EXPECT_FALSE(config.clip_range_value);
  EXPECT_EQ(config.activation, Activation::kRelu);
}

TEST(PpoConfig, NothingIsTheChoiceNone) {
  PpoConfig config;
  options_from_json({{"advantage_normalization", nullptr}}, config);
  EXPECT_EQ(config.advantage_normalization, AdvantageNormalization::kNone);
  EXPECT_NE(refusal({{"activation", nullptr}}).find("tanh, relu"), std::string::npos);
}

TEST(PpoConfig, WrongOptionsAreNamedAndChangeNothing) {
  EXPECT_NE(refusal({{"epoch", 3}}).find("no option epoch"), std::string::npos);
  EXPECT_NE(refusal({{"epochs", "many"}}).find("epochs = \"many\""), std::string::npos);
  EXPECT_NE(refusal({{"epochs", 2.5}}).find("whole number"), std::string::npos);
  EXPECT_NE(refusal({{"epochs", 1e12}}).find("whole number"), std::string::npos);
  EXPECT_NE(refusal({{"activation", "gelu"}}).find("tanh, relu"), std::string::npos);
  EXPECT_NE(refusal({{"policy_hidden", 64}}).find("list"), std::string::npos);
  PpoConfig config;
  EXPECT_THROW(options_from_json({{"epochs", 3}, {"gamma", "x"}}, config), InvalidArgument);
  EXPECT_EQ(config, PpoConfig{});
}

TEST(PpoConfig, ValuesThatCannotBeUsedAreNamedWithTheirLimits) {
  EXPECT_EQ(refusal(json::object()), "");
  const json wrong =
      json::parse(R"({"total_steps": 0, "num_steps": 0, "gamma": 1.1, "gae_lambda": -0.1,
         "batch_size": 1, "epochs": 0, "learning_rate": -1, "clip_range": 0, "clip_range_value": 0, "target_kl": 0,
         "max_grad_norm": -1, "log_interval": 0, "rmsprop_alpha": 1, "rmsprop_eps": 0, "adam_beta1": 1, "adam_beta2": 1, "adam_eps": 0, "clip_obs": 0, "clip_reward": 0,
         "policy_hidden": [0], "value_hidden": [-3]})");
  for (const auto& [name, value] : wrong.items()) {
    EXPECT_NE(refusal({{name, value}}).find(name), std::string::npos) << name;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double value : {-0.5, kInfinity, kNan})
    EXPECT_NE(refusal({{"value_coef", value}}).find("value_coef"), std::string::npos) << value;
  for (const double value : {kInfinity, kNan})
    EXPECT_NE(refusal({{"entropy_coef", value}}).find("entropy_coef"), std::string::npos) << value;
  EXPECT_EQ(refusal({{"entropy_coef", -0.01}, {"value_coef", 0}}), "");
  EXPECT_NE(refusal({{"sign_reward", true}, {"normalize_reward", true}}), "");
}

TEST(PpoConfig, SchedulesFallToZeroOrStay) {
  EXPECT_EQ(scheduled(0.4, Schedule::kConstant, 0.25), 0.4);
  EXPECT_EQ(scheduled(0.4, Schedule::kLinear, 1), 0.4);
  EXPECT_EQ(scheduled(0.4, Schedule::kLinear, 0.25), 0.1);
  EXPECT_EQ(scheduled(0.4, Schedule::kLinear, -0.1), 0) << "the last rollout may pass the end";
}

}  // namespace
}  // namespace shoal::learn
