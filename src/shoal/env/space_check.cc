// Whether arrays can hold a space's samples.
#include <fmt/format.h>
#include <fmt/ranges.h>

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

/// Throws unless each of [start, start + n) is an integer.
void check_range(std::int64_t n, std::int64_t start) {
  std::int64_t end = 0;
  if (n < 1 || __builtin_add_overflow(start, n, &end)) {
    throw InvalidArgument(fmt::format("a space has {} values from {} on", n, start));
  }
}

void check_kind(const Box& box) {
  const std::size_t elements = checked_elements(box.spec);
  check_count("low", box.low.size(), elements, true);
  check_count("high", box.high.size(), elements, true);
}

void check_kind(const Discrete& discrete) { check_range(discrete.n, discrete.start); }

void check_kind(const MultiDiscrete& multi) {
  const std::size_t elements = checked_elements({multi.dtype, multi.shape});
  check_count("nvec", multi.nvec.size(), elements, false);
  check_count("start", multi.start.size(), elements, false);
  for (std::size_t i = 0; i < elements; ++i) check_range(multi.nvec[i], multi.start[i]);
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

}  // namespace

void check(const Space& space) {
  std::visit([](const auto& kind) { check_kind(kind); }, space.kind());
}

}  // namespace shoal::env
