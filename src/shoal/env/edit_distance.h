// How far a misspelt name is from one that exists.
#pragma once

#include <cstddef>
#include <string_view>

namespace shoal::env {

/// The least number of insertions, deletions, replacements and swaps of neighbours that make `a`
/// from `b`, no character changed twice (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace shoal::env
