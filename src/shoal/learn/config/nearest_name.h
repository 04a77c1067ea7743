// Which name somebody may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shoal::learn {

/// The element of `names` (not empty) with the fewest insertions, deletions, substitutions and
/// swaps of neighbours from `name`, one that contains `name` before all others; the first of
/// equals. "steps" is rather "num_steps" than "seed".
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

}  // namespace shoal::learn
