#include "shoal/serve/remote/env_numbers.h"

#include <limits>

namespace shoal::serve {

EnvNumbers::Number EnvNumbers::of(std::uint32_t model, std::uint32_t client, std::int32_t env) {
  const auto [at, is_new] = numbers_.try_emplace({client, model, env}, 0);
  if (!is_new) return {at->second, false};
  if (free_.empty()) {
    at->second = next_++;
  } else {
    at->second = free_.back();
    free_.pop_back();
  }
  return {at->second, true};
}

void EnvNumbers::forget(std::uint32_t client, std::uint64_t last) {
  auto at = numbers_.lower_bound({client, 0, std::numeric_limits<std::int32_t>::min()});
  while (at != numbers_.end() && std::get<0>(at->first) == client) {
    left_.push_back({last, at->second});
    at = numbers_.erase(at);
  }
}

void EnvNumbers::came_back(std::uint64_t first) {
  while (!left_.empty() && left_.front().last < first) {
    free_.push_back(left_.front().number);
    left_.pop_front();
  }
}

}  // namespace shoal::serve
