#include "shoal/learn/algorithm/algorithm_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <optional>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

/// Calls `visit` with the defaults of each algorithm.
template <class Visit>
void for_each_algorithm(Visit&& visit) {
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    (visit(std::variant_alternative_t<kIndex, AlgorithmConfig>()), ...);
  }(std::make_index_sequence<std::variant_size_v<AlgorithmConfig>>());
}

}  // namespace

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for_each_algorithm([&](const auto& config) { names.emplace_back(config.kAlgorithm); });
  return names;
}

AlgorithmConfig make_algorithm_config(std::string_view algorithm) {
  std::optional<AlgorithmConfig> found;
  for_each_algorithm([&](auto config) {
    if (config.kAlgorithm == algorithm) found = std::move(config);
  });
  if (found) return *found;
  const auto names = algorithm_names();
  throw InvalidArgument(
      fmt::format("there is no algorithm '{}'; there is {}", algorithm, fmt::join(names, ", ")));
}

std::string_view algorithm_of(const AlgorithmConfig& config) {
  return std::visit([](const auto& its) { return its.kAlgorithm; }, config);
}

LearnerConfig& learner_config(AlgorithmConfig& config) {
  return std::visit([](auto& its) -> LearnerConfig& { return its; }, config);
}

const LearnerConfig& learner_config(const AlgorithmConfig& config) {
  return std::visit([](const auto& its) -> const LearnerConfig& { return its; }, config);
}

}  // namespace shoal::learn
