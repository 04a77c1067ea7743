// What Replay refuses of its callers; for its own source files.
#pragma once

#include <cstdint>
#include <span>

#include "shoal/collect/replay/replay.h"

namespace shoal::collect {

/// Throws InvalidArgument for a spec of which no replay can be made; returns it.
const ReplaySpec& checked(const ReplaySpec& spec);

/// Throws InvalidArgument where the replay has no such column.
void check_column(const ReplaySpec& spec, int column);

/// Throws InvalidArgument unless row `from` of each of `obs` is there, and is a leaf of the spec's.
void check_row(const ReplaySpec& spec, std::span<const shm::TensorView> obs, std::int64_t from);

/// Tells specs apart whose arrays differ in element types or shapes.
std::uint64_t hash_of_arrays(const ReplaySpec& spec) noexcept;

}  // namespace shoal::collect
