// shoal._learn: learning. Environments come from shoal._core.
#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>

#include "learn/learn_bindings.h"
#include "shoal/env/json_text.h"
#include "shoal/learn/algorithm/make_learner.h"
#include "shoal/learn/algorithm/presets.h"
#include "shoal/learn/algorithm/train_config.h"
#include "shoal/os/error.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {

nlohmann::json parse_json(const std::string& text, const char* what) {
  auto json = env::parse_json(text);
  if (json.is_discarded()) throw InvalidArgument(fmt::format("{} is not JSON", what));
  return json;
}

void bind_learn_config(nb::module_& module) {
  module.def("algorithm_names", &learn::algorithm_names, "The default one first.");
  module.def(
      "preset_names", [](const std::string& algorithm) { return learn::preset_names(algorithm); },
      "algorithm"_a = "ppo");
  module.def(
      "preset_for",
      [](const std::string& env_id, const std::string& algorithm) {
        return learn::preset_for(env_id, algorithm);
      },
      "env_id"_a, "algorithm"_a = "ppo");
  module.def(
      "preset",
      [](const std::string& name, const std::string& algorithm) {
        return to_flat_json(learn::preset(name, algorithm)).dump();
      },
      "name"_a, "algorithm"_a = "ppo", "All options of a preset, as JSON.");
  module.def(
      "config_names", [](const std::string& algorithm) { return learn::config_names(algorithm); },
      "algorithm"_a = "ppo");
  module.def(
      "envs_of_rank",
      [](const std::string& config_json, std::shared_ptr<group::Group> group) {
        learn::TrainConfig config;
        apply_saved(parse_json(config_json, "the configuration"), config);
        const auto range = learn::envs_of_rank(config.num_envs, config.algorithm, group);
        return std::pair(range.first, range.count);
      },
      "config_json"_a, "group"_a.none(),
      "The environments of a run that are this rank's: the first, and how many.");
  module.def(
      "override_config",
      [](const std::string& config_json, const std::string& overrides_json) {
        learn::TrainConfig config;
        apply_saved(parse_json(config_json, "the configuration"), config);
        apply_overrides(parse_json(overrides_json, "the options"), config);
        validate(config);
        return to_flat_json(config).dump();
      },
      "config_json"_a, "overrides_json"_a,
      "The configuration with some options changed, checked, as JSON.");
}

}  // namespace shoal::python

NB_MODULE(_learn, module) {
  module.doc() = "Shoal's learners. Use them through shoal.learn.";
  nb::module_::import_("shoal._core");  // its types and exceptions are ours too
  shoal::python::bind_learn_a3c(module);
  shoal::python::bind_learn_actor(module);
  shoal::python::bind_learn_config(module);
  shoal::python::bind_learn_directory(module);
  shoal::python::bind_learn_numerics(module);
  shoal::python::bind_learn_policy(module);
  shoal::python::bind_learn_remote(module);
  shoal::python::bind_learn_trainer(module);
}
