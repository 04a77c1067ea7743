#include "shoal/serve/row_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "shoal/os/error.h"
#include "shoal/shm/possible_shape.h"

namespace shoal::serve {
namespace {

constexpr std::uint32_t kMaxLeaves = 256;
constexpr std::uint32_t kMaxDims = 32;

}  // namespace

std::size_t aligned_bytes(const shm::TensorSpec& leaf) noexcept {
  return (leaf.bytes() + kLeafAlignment - 1) / kLeafAlignment * kLeafAlignment;
}

std::size_t row_bytes(const RowSpec& spec) noexcept {
  std::size_t sum = 0;
  for (const shm::TensorSpec& leaf : spec) sum += aligned_bytes(leaf);
  return sum;
}

void check_row_spec(const RowSpec& spec, std::string_view what) {
  if (spec.size() > kMaxLeaves) {
    throw InvalidArgument(
        fmt::format("{} has {} arrays, and a model service takes {} at most: stack those of one "
                    "shape and dtype to one array",
                    what, spec.size(), kMaxLeaves));
  }
  for (const shm::TensorSpec& leaf : spec) {
    if (leaf.shape.size() > kMaxDims) {
      throw InvalidArgument(
          fmt::format("{} has an array of {} dimensions, and a model service takes {} at most: "
                      "reshape it to fewer",
                      what, leaf.shape.size(), kMaxDims));
    }
  }
}

void write(process::ByteWriter& writer, const RowSpec& spec) {
  writer.number(static_cast<std::uint32_t>(spec.size()));
  for (const shm::TensorSpec& leaf : spec) {
    writer.number(static_cast<std::uint8_t>(leaf.dtype));
    writer.number(static_cast<std::uint32_t>(leaf.shape.size()));
    for (const std::int64_t extent : leaf.shape) writer.number(extent);
  }
}

RowSpec read_row_spec(process::ByteReader& reader) {
  const auto check = [](bool good) {
    if (!good)
      throw Error("a message of the model service describes an array that there cannot be");
  };
  const auto leaves = reader.number<std::uint32_t>();
  check(leaves <= kMaxLeaves);
  RowSpec spec(leaves);
  for (shm::TensorSpec& leaf : spec) {
    const auto dtype = reader.number<std::uint8_t>();
    const auto dims = reader.number<std::uint32_t>();
    check(dtype <= static_cast<std::uint8_t>(shm::DType::kF64) && dims <= kMaxDims);
    leaf.dtype = static_cast<shm::DType>(dtype);
    leaf.shape.resize(dims);
    for (std::int64_t& extent : leaf.shape) extent = reader.number<std::int64_t>();
    check(shm::possible_bytes(leaf).has_value());
  }
  return spec;
}

std::string describe(const RowSpec& spec) {
  std::string text;
  for (const shm::TensorSpec& leaf : spec) {
    text += fmt::format("{}{}[{}]", text.empty() ? "" : ", ", shm::name(leaf.dtype),
                        fmt::join(leaf.shape, ", "));
  }
  return text.empty() ? "no arrays" : text;
}

}  // namespace shoal::serve
