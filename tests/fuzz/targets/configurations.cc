// What JSON says of a run: its configuration, an actor's order, arguments and reset options of environments.
#include "../input.h"
#include "shoal/env/json_text.h"
#include "shoal/env/registry.h"
#include "shoal/env/reset_options.h"
#include "shoal/learn/a3c/learning_actor.h"
#include "shoal/learn/algorithm/train_config.h"
#include "shoal/os/error.h"

namespace shoal::fuzz {
namespace {

enum class What : std::uint8_t { kConfig, kOrder, kArguments, kResetOptions };

void read(Input input) {
  const auto what = static_cast<What>(input.take<std::uint8_t>() % 4);
  const std::string text = input.rest_text();
  switch (what) {
    case What::kConfig: {
      const auto json = env::parse_json(text);
      if (json.is_discarded()) return;
      learn::TrainConfig config;
      learn::apply_saved(json, config);
      validate(config);
      learn::TrainConfig again;
      learn::apply_overrides(to_flat_json(config), again);
      SHOAL_CHECK(to_flat_json(again) == to_flat_json(config),
                  "a configuration is what was written");
      return;
    }
    case What::kOrder:
      static_cast<void>(learn::ActorOrder::decode(std::as_bytes(std::span(text))));
      return;
    case What::kArguments: {
      const std::size_t end = std::min(text.find(' '), text.size());
      const auto json = env::parse_json(text.substr(end));
      // Frames and pictures are as large as they are asked to be.
      if (json.is_object() && (json.contains("frame_stack") || json.contains("size"))) return;
      static_cast<void>(env::make_batch(text.substr(0, end), 2, text.substr(end)));
      return;
    }
    case What::kResetOptions: {
      const auto options = env::ResetOptions::from_json(text);
      static_cast<void>(options.bounds(-0.05, 0.05));
      options.expect_only({"low", "high"});
      return;
    }
  }
}

Bytes seed(What what, const std::string& text) { return Output().put(what).put_text(text).take(); }

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all{
      seed(What::kArguments, R"(shoal/Pendulum-v1 {"g": 9.81, "max_episode_steps": 20})"),
      seed(What::kArguments,
           R"(shoal/CartPole-v1 {"reward_clip": [-1, 1.5], "episode_statistics": true})"),
      seed(What::kArguments, R"(shoal/Cartpole-v1)"),
      seed(What::kResetOptions, R"({"low": -0.1, "high": 0.2})")};
  learn::ActorOrder order;
  order.observation_space = order.action_space = "{}";
  const Bytes encoded = order.encode();
  all.push_back(Output().put(What::kOrder).put_bytes(encoded).take());
  for (const auto& name : learn::algorithm_names()) {
    learn::TrainConfig config;
    config.algorithm = learn::make_algorithm_config(name);
    all.push_back(seed(What::kConfig, to_flat_json(config).dump()));
  }
  return all;
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return shoal::fuzz::refused_at_most([&] { shoal::fuzz::read({data, size}); });
}
