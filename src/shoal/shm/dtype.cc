#include "shoal/shm/dtype.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>

#include "shoal/os/error.h"

namespace shoal::shm {
namespace {

/// In the order of DType.
constexpr std::array<std::string_view, 12> kNames = {"bool",  "uint8",   "int8",    "uint16",
                                                     "int16", "uint32",  "int32",   "uint64",
                                                     "int64", "float16", "float32", "float64"};
static_assert(kNames.size() == static_cast<std::size_t>(DType::kF64) + 1);

}  // namespace

std::string_view name(DType dtype) noexcept { return kNames[static_cast<std::size_t>(dtype)]; }

DType dtype_from_name(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    throw InvalidArgument(
        fmt::format("the element type \"{}\" is not one of {}", name, fmt::join(kNames, ", ")));
  }
  return static_cast<DType>(found - kNames.begin());
}

}  // namespace shoal::shm
