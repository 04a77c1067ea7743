#include "shoal/env/batch_of.h"

#include <fmt/format.h>

namespace shoal::env::internal {

void check_floats(const char* which, const Space& space, const char* constant,
                  std::size_t elements) {
  check_native(which, space);
  const auto all = leaves(space);
  if (all.size() == 1 && all[0].space.get_if<Box>() != nullptr &&
      all[0].spec.dtype == shm::DType::kF32 &&
      static_cast<std::size_t>(all[0].spec.numel()) == elements) {
    return;
  }
  throw InvalidArgument(
      fmt::format("its {} space is {}, and {} is {}: they must be one array of as many float32",
                  which, space.repr(), constant, elements));
}

void check_choices(const char* which, const Space& space, std::int64_t choices) {
  check_native(which, space);
  if (space == Space(Discrete{choices})) return;
  throw InvalidArgument(fmt::format("its {} space is {}, and kActions is {}: it must be {}", which,
                                    space.repr(), choices, Space(Discrete{choices}).repr()));
}

}  // namespace shoal::env::internal
