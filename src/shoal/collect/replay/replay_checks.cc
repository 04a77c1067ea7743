#include "shoal/collect/replay/replay_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>

#include "shoal/os/error.h"
#include "shoal/os/fnv1a.h"
#include "shoal/shm/possible_shape.h"
#include "shoal/sync/ring_column.h"

namespace shoal::collect {
namespace {

std::string text_of(const shm::TensorSpec& spec) {
  return fmt::format("{} [{}]", shm::name(spec.dtype), fmt::join(spec.shape, ", "));
}

double bytes_of(const char* what, const shm::TensorSpec& spec) {
  const std::optional<std::uint64_t> bytes = shm::possible_bytes(spec);
  if (!bytes)
    throw InvalidArgument(
        fmt::format("a replay of {} {} cannot be made: the extents of an array are 0 or more, and "
                    "its bytes {} at most",
                    what, text_of(spec), shm::kMostArrayBytes));
  return static_cast<double>(spec.bytes());
}

}  // namespace

const ReplaySpec& checked(const ReplaySpec& spec) {
  constexpr double kMost = 1e15;  // bytes; far below what overflows
  double row = bytes_of("actions", spec.action) + sizeof(float) + 1;
  for (const shm::TensorSpec& leaf : spec.obs) row += bytes_of("observations", leaf);
  if (spec.columns < 1 || spec.rows < 2 || spec.obs.empty() ||
      static_cast<double>(spec.columns) * static_cast<double>(spec.rows) * (row + 32) > kMost)
    throw InvalidArgument(fmt::format(
        "a replay of {} columns of {} rows, of {} bytes each, cannot be made: at least one column, "
        "two rows and one array of observations are needed, and 1e15 bytes are the most",
        spec.columns, spec.rows, row));
  return spec;
}

void check_column(const ReplaySpec& spec, int column) {
  if (column >= 0 && column < spec.columns) return;
  throw InvalidArgument(
      fmt::format("there is no column {} of the replay, which has {}", column, spec.columns));
}

void check_row(const ReplaySpec& spec, std::span<const shm::TensorView> obs, std::int64_t from) {
  if (obs.size() != spec.obs.size())
    throw InvalidArgument(
        fmt::format("append to a replay: {} arrays of observations are given, it has {}",
                    obs.size(), spec.obs.size()));
  for (std::size_t leaf = 0; leaf < obs.size(); ++leaf) {
    const shm::TensorView& array = obs[leaf];
    if (array.row != spec.obs[leaf])
      throw InvalidArgument(
          fmt::format("append to a replay: rows of array {} are {}, those of the replay are {}",
                      leaf, text_of(array.row), text_of(spec.obs[leaf])));
    if (from < 0 || from >= array.rows || (array.data == nullptr && array.row_bytes() > 0))
      throw InvalidArgument(
          fmt::format("append to a replay: row {} of array {} is asked for, which has {} rows",
                      from, leaf, array.data == nullptr ? 0 : array.rows));
  }
}

std::uint64_t hash_of_arrays(const ReplaySpec& spec) noexcept {
  os::Fnv1a hash;
  const auto add_array = [&hash](const shm::TensorSpec& array) {
    hash.add(static_cast<std::uint64_t>(array.dtype));
    hash.add(array.shape.size());
    for (const std::int64_t extent : array.shape) hash.add(static_cast<std::uint64_t>(extent));
  };
  for (const shm::TensorSpec& leaf : spec.obs) add_array(leaf);
  add_array(spec.action);
  return hash.value();
}

}  // namespace shoal::collect
