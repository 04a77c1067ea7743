#include "shoal/learn/algorithm/presets.h"

#include <fmt/format.h>

#include <algorithm>

#include "shoal/learn/config/nearest_name.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

std::span<const Preset> presets_of(const AlgorithmConfig& config) {
  return std::visit([](const auto& its) { return its.presets(); }, config);
}

}  // namespace

std::vector<std::string> preset_names(std::string_view algorithm) {
  const AlgorithmConfig config = make_algorithm_config(algorithm);
  std::vector<std::string> names;
  for (const auto& entry : presets_of(config)) names.emplace_back(entry.name);
  return names;
}

TrainConfig preset(std::string_view name, std::string_view algorithm) {
  TrainConfig config;
  config.algorithm = make_algorithm_config(algorithm);
  const auto presets = presets_of(config.algorithm);
  const auto entry = std::ranges::find(presets, name, &Preset::name);
  if (entry == presets.end())
    throw InvalidArgument(fmt::format(
        "{} has no preset \"{}\"; {}", algorithm, name,
        nearest_or(name, preset_names(algorithm),
                   fmt::format("shoal.learn.preset_names(\"{}\") lists them", algorithm))));
  apply_overrides(nlohmann::json::parse(entry->json), config);
  return config;
}

std::string preset_for(std::string_view env_id, std::string_view algorithm) {
  const auto start = env_id.find_last_of("/:");
  const auto task = start == std::string_view::npos ? env_id : env_id.substr(start + 1);
  const auto presets = presets_of(make_algorithm_config(algorithm));
  const bool known = std::ranges::any_of(presets, [&](const Preset& entry) {
    return entry.name == task && task.find("-v") != std::string_view::npos;
  });
  if (known) return std::string(task);
  const bool atari = env_id.find("ALE/") != std::string_view::npos ||
                     env_id.find("NoFrameskip-v") != std::string_view::npos;
  if (atari && std::ranges::find(presets, "atari", &Preset::name) != presets.end()) return "atari";
  return std::string(presets.front().name);
}

}  // namespace shoal::learn
