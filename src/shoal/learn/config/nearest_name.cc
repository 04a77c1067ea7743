#include "shoal/learn/config/nearest_name.h"

#include <algorithm>
#include <utility>

#include "shoal/env/edit_distance.h"

namespace shoal::learn {
namespace {

constexpr std::size_t kLongest = 40;  // no name of ours is longer

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  return *std::ranges::min_element(names, {}, [&](const std::string& candidate) {
    return std::pair(candidate.find(name) == std::string::npos,
                     env::edit_distance(name, candidate, kLongest));
  });
}

}  // namespace shoal::learn
