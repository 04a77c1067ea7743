// Whether arrays can hold a space's samples.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "shoal/env/space.h"
#include "shoal/os/error.h"
#include "shoal/shm/possible_shape.h"

namespace shoal::env {
namespace {

/// Throws unless an array of this shape can be; returns its elements.
std::size_t checked_elements(const shm::TensorSpec& spec) {
  constexpr std::size_t kMostDimensions = 64;
  if (spec.shape.size() > kMostDimensions || !shm::possible_bytes(spec)) {
    throw InvalidArgument(fmt::format("a space has the shape [{}]: there are no such arrays",
                                      fmt::join(spec.shape, ", ")));
  }
  return static_cast<std::size_t>(spec.numel());
}

void check_count(const char* what, std::size_t count, std::size_t elements, bool one_for_all) {
  if (count == elements || (one_for_all && count <= 1)) return;
  throw InvalidArgument(
      fmt::format("a space of {} elements has {} values of {}", elements, count, what));
}

/// The integers of an element type, the largest rounded up where there is no such double; infinite for floats.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
};

Range range_of(shm::DType dtype) {
  if (dtype == shm::DType::kBool) return {0, 1};
  Range range;
  shm::with_type_of(dtype, [&](auto type) {
    using Limits = std::numeric_limits<decltype(type)>;
    if constexpr (Limits::is_integer) {
      range = {static_cast<double>(Limits::min()), static_cast<double>(Limits::max())};
    }
  });
  return range;
}

bool is_integer(shm::DType dtype) {
  return dtype != shm::DType::kBool && std::isfinite(range_of(dtype).most);
}

/// Throws unless each of [start, start + n) is an integer of `dtype`, and n is one, as Gymnasium needs.
void check_range(std::int64_t n, std::int64_t start, shm::DType dtype) {
  std::int64_t end = 0;
  const Range range = range_of(dtype);
  if (n < 1 || __builtin_add_overflow(start, n, &end)) {
    throw InvalidArgument(fmt::format("a space has {} values from {} on", n, start));
  }
  if (!is_integer(dtype)) {
    throw InvalidArgument(
        fmt::format("a space of {} values has the element type {}, which has no integers", n,
                    shm::name(dtype)));
  }
  if (static_cast<double>(start) < range.least || static_cast<double>(end - 1) > range.most ||
      static_cast<double>(n) > range.most) {
    throw InvalidArgument(fmt::format("a space has {} values from {} on, which {} does not hold", n,
                                      start, shm::name(dtype)));
  }
}

/// Throws for a bound that the element type does not have; an infinite one is no bound.
void check_held(const char* what, const std::vector<double>& bounds, shm::DType dtype) {
  const Range range = range_of(dtype);
  for (const double bound : bounds) {
    if (!std::isfinite(bound) || (bound >= range.least && bound <= range.most)) continue;
    throw InvalidArgument(fmt::format("a Box of {} has the {} bound {}, which it does not hold",
                                      shm::name(dtype), what, bound));
  }
}

void check_kind(const Box& box) {
  const std::size_t elements = checked_elements(box.spec);
  check_count("low", box.low.size(), elements, true);
  check_count("high", box.high.size(), elements, true);
  check_held("low", box.low, box.spec.dtype);
  check_held("high", box.high, box.spec.dtype);
}

void check_kind(const Discrete& discrete) {
  check_range(discrete.n, discrete.start, discrete.dtype);
}

void check_kind(const MultiDiscrete& multi) {
  const std::size_t elements = checked_elements({multi.dtype, multi.shape});
  check_count("nvec", multi.nvec.size(), elements, false);
  check_count("start", multi.start.size(), elements, false);
  for (std::size_t i = 0; i < elements; ++i) {
    check_range(multi.nvec[i], multi.start[i], multi.dtype);
  }
}

void check_kind(const MultiBinary& binary) { checked_elements({shm::DType::kI8, binary.shape}); }

/// What `of` holds, under its name.
void check_child(const std::string& name, const Space& of) {
  try {
    check(of);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", name, error.what()));
  }
}

void check_kind(const Dict& dict) {
  std::set<std::string> keys;
  for (const auto& [key, space] : dict.spaces) {
    if (!keys.insert(key).second) {
      throw InvalidArgument(fmt::format("a Dict space has the key \"{}\" twice", key));
    }
    check_child(key, space);
  }
}

void check_kind(const Tuple& tuple) {
  for (std::size_t i = 0; i < tuple.spaces.size(); ++i) {
    check_child(std::to_string(i), tuple.spaces[i]);
  }
}

void check_kind(const Opaque& /*has no arrays*/) {}

/// Throws unless `low` to `high` are bounds that an array of `box` can have.
void check_bounds(const Box& box) {
  if (box.spec.numel() == 0) return;
  if (box.low.empty() || box.high.empty()) throw InvalidArgument("a Box has no bounds");
  for (std::size_t i = 0; i < std::max(box.low.size(), box.high.size()); ++i) {
    const double low = box.low[box.low.size() == 1 ? 0 : i];
    const double high = box.high[box.high.size() == 1 ? 0 : i];
    if (low <= high) continue;
    throw InvalidArgument(fmt::format("a Box has the bounds {} to {}", low, high));
  }
}

}  // namespace

void check(const Space& space) {
  std::visit([](const auto& kind) { check_kind(kind); }, space.kind());
}

void check_native(const char* which, const Space& space) {
  try {
    check(space);
    for (const Leaf& leaf : leaves(space)) {
      const auto* const box = leaf.space.get_if<Box>();
      try {
        if (box != nullptr) check_bounds(*box);
      } catch (const InvalidArgument& error) {
        if (leaf.path.empty()) throw;
        throw InvalidArgument(fmt::format("{}: {}", leaf.path, error.what()));
      }
    }
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("its {} space: {}", which, error.what()));
  }
}

}  // namespace shoal::env
