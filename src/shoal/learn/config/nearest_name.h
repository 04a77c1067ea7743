// Which name somebody may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shoal::learn {

/// "the nearest is …": the element of `names` (not empty) with the fewest insertions, deletions,
/// substitutions and swaps of neighbours from `name`, one that contains `name` before all others; the
/// first of equals. "steps" is rather "num_steps" than "seed". `otherwise` where more than two fifths of
/// the characters differ.
std::string nearest_or(std::string_view name, const std::vector<std::string>& names,
                       std::string otherwise);

}  // namespace shoal::learn
