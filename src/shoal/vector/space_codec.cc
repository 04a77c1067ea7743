#include "shoal/vector/space_codec.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace shoal::vector {
namespace {

using Tag = std::uint8_t;  // index of the alternative in env::Space::Kind

constexpr int kMaxDepth = 64;

using process::ByteReader;
using process::ByteWriter;

void put_list(ByteWriter& writer, const std::vector<std::int64_t>& values) {
  writer.number(static_cast<std::uint64_t>(values.size()));
  for (const std::int64_t value : values) writer.number(value);
}

void put_list(ByteWriter& writer, const std::vector<double>& values) {
  writer.number(static_cast<std::uint64_t>(values.size()));
  for (const double value : values) writer.number(std::bit_cast<std::uint64_t>(value));
}

// The count of a list whose elements take at least `element_bytes` each.
std::uint64_t get_count(ByteReader& reader, std::size_t element_bytes) {
  const auto count = reader.number<std::uint64_t>();
  if (count > reader.left() / element_bytes) throw Error("a worker's space ends too early");
  return count;
}

std::vector<std::int64_t> get_integers(ByteReader& reader) {
  std::vector<std::int64_t> values(get_count(reader, sizeof(std::int64_t)));
  for (std::int64_t& value : values) value = reader.number<std::int64_t>();
  return values;
}

std::vector<double> get_doubles(ByteReader& reader) {
  std::vector<double> values(get_count(reader, sizeof(double)));
  for (double& value : values) value = std::bit_cast<double>(reader.number<std::uint64_t>());
  return values;
}

struct Put {
  ByteWriter& writer;

  void operator()(const env::Box& box) const {
    writer.number(static_cast<std::uint8_t>(box.spec.dtype));
    put_list(writer, box.spec.shape);
    put_list(writer, box.low);
    put_list(writer, box.high);
  }
  void operator()(const env::Discrete& discrete) const {
    writer.number(static_cast<std::uint8_t>(discrete.dtype));
    writer.number(discrete.n);
    writer.number(discrete.start);
  }
  void operator()(const env::MultiDiscrete& space) const {
    writer.number(static_cast<std::uint8_t>(space.dtype));
    put_list(writer, space.nvec);
    put_list(writer, space.start);
    put_list(writer, space.shape);
  }
  void operator()(const env::MultiBinary& space) const { put_list(writer, space.shape); }
  void operator()(const env::Dict& dict) const {
    writer.number(static_cast<std::uint64_t>(dict.spaces.size()));
    for (const auto& [key, space] : dict.spaces) {
      writer.text(key);
      put_space(writer, space);
    }
  }
  void operator()(const env::Tuple& tuple) const {
    writer.number(static_cast<std::uint64_t>(tuple.spaces.size()));
    for (const env::Space& space : tuple.spaces) put_space(writer, space);
  }
  void operator()(const env::Opaque& space) const {
    writer.text(space.type);
    writer.text(space.text);
  }
};

shm::DType get_dtype(ByteReader& reader) {
  const auto value = reader.number<std::uint8_t>();
  if (value > static_cast<std::uint8_t>(shm::DType::kF64)) {
    throw Error(fmt::format("a worker's space has element type {}, which is none", value));
  }
  return static_cast<shm::DType>(value);
}

env::Space get_nested(ByteReader& reader, int depth);

env::Space get_dict(ByteReader& reader, int depth) {
  env::Dict dict;
  for (auto n = get_count(reader, 1); n > 0; --n) {
    std::string key = reader.text();
    dict.spaces.emplace_back(std::move(key), get_nested(reader, depth + 1));
  }
  return dict;
}

env::Space get_tuple(ByteReader& reader, int depth) {
  env::Tuple tuple;
  for (auto n = get_count(reader, 1); n > 0; --n) {
    tuple.spaces.push_back(get_nested(reader, depth + 1));
  }
  return tuple;
}

env::Space get_box(ByteReader& reader) {
  env::Box box;
  box.spec.dtype = get_dtype(reader);
  box.spec.shape = get_integers(reader);
  box.low = get_doubles(reader);
  box.high = get_doubles(reader);
  return box;
}

env::Space get_discrete(ByteReader& reader) {
  env::Discrete discrete;
  discrete.dtype = get_dtype(reader);
  discrete.n = reader.number<std::int64_t>();
  discrete.start = reader.number<std::int64_t>();
  return discrete;
}

env::Space get_multi_discrete(ByteReader& reader) {
  env::MultiDiscrete space;
  space.dtype = get_dtype(reader);
  space.nvec = get_integers(reader);
  space.start = get_integers(reader);
  space.shape = get_integers(reader);
  return space;
}

env::Space get_opaque(ByteReader& reader) {
  env::Opaque space;
  space.type = reader.text();
  space.text = reader.text();
  return space;
}

env::Space get_nested(ByteReader& reader, int depth) {
  if (depth > kMaxDepth)
    throw Error(fmt::format("a worker's space is nested more than {} deep", kMaxDepth));
  const auto tag = reader.number<Tag>();
  switch (tag) {
    case 0:
      return get_box(reader);
    case 1:
      return get_discrete(reader);
    case 2:
      return get_multi_discrete(reader);
    case 3:
      return env::MultiBinary{get_integers(reader)};
    case 4:
      return get_dict(reader, depth);
    case 5:
      return get_tuple(reader, depth);
    case 6:
      return get_opaque(reader);
    default:
      throw Error(fmt::format("a worker's space has kind {}, which is none", tag));
  }
}

}  // namespace

void put_space(ByteWriter& writer, const env::Space& space) {
  static_assert(std::variant_size_v<env::Space::Kind> == 7, "get_nested() knows seven kinds");
  writer.number(static_cast<Tag>(space.kind().index()));
  std::visit(Put{writer}, space.kind());
}

env::Space get_space(ByteReader& reader) { return get_nested(reader, 0); }

}  // namespace shoal::vector
