// Who holds a lock or a permit: a process, as a number that leaves one bit of a word free.
#pragma once

#include <cstdint>

namespace shoal::sync {

/// Names a process among those that share the memory; 0 is nobody. Below 2^31. Whoever gives the
/// numbers out gives none twice while something may still be held under it.
using Owner = std::uint32_t;

inline constexpr Owner kNobody = 0;
inline constexpr Owner kMaxOwner = 0x7fff'ffff;

}  // namespace shoal::sync
