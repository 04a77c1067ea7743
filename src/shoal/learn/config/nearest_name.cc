#include "shoal/learn/config/nearest_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "shoal/env/edit_distance.h"

namespace shoal::learn {
namespace {

constexpr std::size_t kLongest = 40;  // no name of ours is longer

}  // namespace

std::string nearest_or(std::string_view name, const std::vector<std::string>& names,
                       std::string otherwise) {
  const auto away = [&](const std::string& candidate) {
    return std::pair(candidate.find(name) == std::string::npos,
                     env::edit_distance(name, candidate, kLongest));
  };
  const std::string& nearest = *std::ranges::min_element(names, {}, away);
  const auto [is_apart, edits] = away(nearest);
  if (is_apart && edits * 5 > std::max(name.size(), nearest.size()) * 2) return otherwise;
  return fmt::format("the nearest is \"{}\"", nearest);
}

}  // namespace shoal::learn
