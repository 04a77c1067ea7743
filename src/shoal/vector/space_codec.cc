#include "shoal/vector/space_codec.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <variant>

namespace shoal::vector {
namespace {

using Tag = std::uint8_t;  // index of the alternative in env::Space::Kind

constexpr int kMaxDepth = 64;

template <class T>
std::span<const T> all(const std::vector<T>& values) {
  return values;
}

struct Put {
  ByteWriter& writer;

  void operator()(const env::Box& box) const {
    writer.put(static_cast<std::uint8_t>(box.spec.dtype));
    writer.put_list(all(box.spec.shape));
    writer.put_list(all(box.low));
    writer.put_list(all(box.high));
  }
  void operator()(const env::Discrete& discrete) const {
    writer.put(static_cast<std::uint8_t>(discrete.dtype));
    writer.put(discrete.n);
    writer.put(discrete.start);
  }
  void operator()(const env::MultiDiscrete& space) const {
    writer.put(static_cast<std::uint8_t>(space.dtype));
    writer.put_list(all(space.nvec));
    writer.put_list(all(space.start));
    writer.put_list(all(space.shape));
  }
  void operator()(const env::MultiBinary& space) const { writer.put_list(all(space.shape)); }
  void operator()(const env::Dict& dict) const {
    writer.put(static_cast<std::uint64_t>(dict.spaces.size()));
    for (const auto& [key, space] : dict.spaces) {
      writer.put_text(key);
      put_space(writer, space);
    }
  }
  void operator()(const env::Tuple& tuple) const {
    writer.put(static_cast<std::uint64_t>(tuple.spaces.size()));
    for (const env::Space& space : tuple.spaces) put_space(writer, space);
  }
};

shm::DType get_dtype(ByteReader& reader) {
  const auto value = reader.get<std::uint8_t>();
  if (value > static_cast<std::uint8_t>(shm::DType::kF64)) {
    throw Error(fmt::format("a worker's space has element type {}, which is none", value));
  }
  return static_cast<shm::DType>(value);
}

env::Space get_nested(ByteReader& reader, int depth);

env::Space get_dict(ByteReader& reader, int depth) {
  env::Dict dict;
  for (auto n = reader.get<std::uint64_t>(); n > 0; --n) {
    std::string key = reader.get_text();
    dict.spaces.emplace_back(std::move(key), get_nested(reader, depth + 1));
  }
  return dict;
}

env::Space get_tuple(ByteReader& reader, int depth) {
  env::Tuple tuple;
  for (auto n = reader.get<std::uint64_t>(); n > 0; --n) {
    tuple.spaces.push_back(get_nested(reader, depth + 1));
  }
  return tuple;
}

env::Space get_box(ByteReader& reader) {
  env::Box box;
  box.spec.dtype = get_dtype(reader);
  box.spec.shape = reader.get_list<std::int64_t>();
  box.low = reader.get_list<double>();
  box.high = reader.get_list<double>();
  return box;
}

env::Space get_discrete(ByteReader& reader) {
  env::Discrete discrete;
  discrete.dtype = get_dtype(reader);
  discrete.n = reader.get<std::int64_t>();
  discrete.start = reader.get<std::int64_t>();
  return discrete;
}

env::Space get_multi_discrete(ByteReader& reader) {
  env::MultiDiscrete space;
  space.dtype = get_dtype(reader);
  space.nvec = reader.get_list<std::int64_t>();
  space.start = reader.get_list<std::int64_t>();
  space.shape = reader.get_list<std::int64_t>();
  return space;
}

env::Space get_nested(ByteReader& reader, int depth) {
  if (depth > kMaxDepth) throw Error(fmt::format("a worker's space is nested more than {} deep", kMaxDepth));
  const auto tag = reader.get<Tag>();
  switch (tag) {
    case 0: return get_box(reader);
    case 1: return get_discrete(reader);
    case 2: return get_multi_discrete(reader);
    case 3: return env::MultiBinary{reader.get_list<std::int64_t>()};
    case 4: return get_dict(reader, depth);
    case 5: return get_tuple(reader, depth);
    default: throw Error(fmt::format("a worker's space has kind {}, which is none", tag));
  }
}

}  // namespace

void put_space(ByteWriter& writer, const env::Space& space) {
  static_assert(std::variant_size_v<env::Space::Kind> == 6, "get_nested() knows six kinds");
  writer.put(static_cast<Tag>(space.kind().index()));
  std::visit(Put{writer}, space.kind());
}

env::Space get_space(ByteReader& reader) { return get_nested(reader, 0); }

}  // namespace shoal::vector
