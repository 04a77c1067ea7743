// How far a misspelt name is from one that exists.
#pragma once

#include <cstddef>
#include <string_view>

namespace shoal::env {

/// The least number of insertions, deletions, replacements and swaps of neighbours that make `a`
/// from `b`, no character changed twice (optimal string alignment). Where the lengths alone differ by
/// more than `limit`, that difference, which is no more than the distance and takes no time.
std::size_t edit_distance(std::string_view a, std::string_view b,
                          std::size_t limit = std::string_view::npos);

}  // namespace shoal::env
