#include "shoal/process/start_method.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace shoal::process {
namespace {

constexpr std::array<std::pair<StartMethod, std::string_view>, 4> kNames{{
    {StartMethod::kAuto, "auto"},
    {StartMethod::kFork, "fork"},
    {StartMethod::kForkserver, "forkserver"},
    {StartMethod::kSpawn, "spawn"},
}};

}  // namespace

StartMethod start_method_from_name(std::string_view text) {
  for (const auto& [method, method_name] : kNames) {
    if (method_name == text) return method;
  }
  throw InvalidArgument(fmt::format(
      "start method '{}' does not exist: use 'auto', 'fork', 'forkserver' or 'spawn'", text));
}

std::string_view name(StartMethod method) noexcept {
  for (const auto& [known, method_name] : kNames) {
    if (known == method) return method_name;
  }
  return "unknown";
}

}  // namespace shoal::process
