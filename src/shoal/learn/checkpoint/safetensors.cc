#include "shoal/learn/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "shoal/env/json_text.h"
#include "shoal/learn/checkpoint/durable_file.h"

namespace shoal::learn {
namespace {

using shm::DType;
static_assert(std::endian::native == std::endian::little, "safetensors are little endian");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr std::size_t kLengthBytes = 8;

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr DTypeName kDTypes[] = {
    {DType::kBool, "BOOL"}, {DType::kU8, "U8"},   {DType::kI8, "I8"},   {DType::kU16, "U16"},
    {DType::kI16, "I16"},   {DType::kU32, "U32"}, {DType::kI32, "I32"}, {DType::kU64, "U64"},
    {DType::kI64, "I64"},   {DType::kF16, "F16"}, {DType::kF32, "F32"}, {DType::kF64, "F64"},
};

std::string_view dtype_name(DType dtype) {
  for (const auto& entry : kDTypes)
    if (entry.dtype == dtype) return entry.name;
  throw InvalidArgument("safetensors: no such element type");
}

/// Reads one file's header; every error names the file.
class HeaderReader {
 public:
  HeaderReader(const std::string& origin, std::uint64_t data_bytes)
      : origin_(origin), data_bytes_(data_bytes) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw CorruptFile(fmt::format("{}: not a valid safetensors file: {}", origin_, what));
  }

  struct Entry {
    std::string name;
    shm::TensorSpec spec;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  Entry entry(const std::string& name, const nlohmann::json& value) const {
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets"))
      fail(fmt::format("the entry of \"{}\" lacks dtype, shape or data_offsets", name));
    Entry entry{name, {dtype(name, value["dtype"]), shape(name, value["shape"])}};
    const auto& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned())
      fail(fmt::format("data_offsets of \"{}\" are not two sizes", name));
    entry.begin = offsets[0].get<std::uint64_t>();
    entry.end = offsets[1].get<std::uint64_t>();
    if (entry.begin > entry.end || entry.end > data_bytes_)
      fail(fmt::format("\"{}\" lies at bytes {} to {} of {}", name, entry.begin, entry.end,
                       data_bytes_));
    if (entry.end - entry.begin != bytes_of(name, entry.spec))
      fail(fmt::format("\"{}\" has {} bytes, its shape needs {}", name, entry.end - entry.begin,
                       bytes_of(name, entry.spec)));
    return entry;
  }

 private:
  DType dtype(const std::string& name, const nlohmann::json& value) const {
    for (const auto& entry : kDTypes)
      if (value.is_string() && value.get_ref<const std::string&>() == entry.name)
        return entry.dtype;
    fail(fmt::format("\"{}\" has the element type {}, which is not supported", name, value.dump()));
  }

  std::vector<std::int64_t> shape(const std::string& name, const nlohmann::json& value) const {
    std::vector<std::int64_t> shape;
    if (!value.is_array()) fail(fmt::format("the shape of \"{}\" is not a list", name));
    for (const auto& dimension : value) {
      if (!dimension.is_number_unsigned())
        fail(fmt::format("the shape of \"{}\" has the dimension {}", name, dimension.dump()));
      shape.push_back(dimension.get<std::int64_t>());
    }
    return shape;
  }

  std::uint64_t bytes_of(const std::string& name, const shm::TensorSpec& spec) const {
    std::uint64_t bytes = shm::itemsize(spec.dtype);
    for (auto dimension : spec.shape)
      if (dimension < 0 ||
          __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dimension), &bytes))
        fail(fmt::format("the shape of \"{}\" is too large", name));
    return bytes;
  }

  const std::string& origin_;
  std::uint64_t data_bytes_;
};

std::map<std::string, std::string> read_metadata(const nlohmann::json& value,
                                                 const HeaderReader& reader) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) reader.fail("__metadata__ is not an object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) reader.fail("a value of __metadata__ is not a string");
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

/// Gaps and overlaps are errors: with them one file could have two readings. A name twice leaves a
/// gap.
void check_end_to_end(std::vector<HeaderReader::Entry>& entries, std::uint64_t data_bytes,
                      const HeaderReader& reader) {
  std::ranges::sort(entries, {}, [](const auto& e) { return std::pair(e.begin, e.end); });
  std::uint64_t end = 0;
  for (const auto& entry : entries) {
    if (entry.begin != end)
      reader.fail(fmt::format("\"{}\" begins at byte {}, not {}", entry.name, entry.begin, end));
    end = entry.end;
  }
  if (end != data_bytes)
    reader.fail(fmt::format("the arrays end at byte {} of {}", end, data_bytes));
}

}  // namespace

SafeTensorsPieces lay_out_safetensors(std::span<const SafeTensor> tensors,
                                      const std::map<std::string, std::string>& metadata) {
  std::vector<const SafeTensor*> order;
  std::set<std::string_view> names{"__metadata__"};
  for (const auto& tensor : tensors) {
    if (!names.insert(tensor.name).second)
      throw InvalidArgument(fmt::format("safetensors: the name \"{}\" is taken", tensor.name));
    if (tensor.bytes.size() != tensor.spec.bytes())
      throw InvalidArgument(fmt::format("safetensors: \"{}\" of shape [{}] needs {} bytes, got {}",
                                        tensor.name, fmt::join(tensor.spec.shape, ", "),
                                        tensor.spec.bytes(), tensor.bytes.size()));
    order.push_back(&tensor);
  }
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [](const SafeTensor* t) { return shm::itemsize(t->spec.dtype); });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const auto* tensor : order) {
    header[tensor->name] = {{"dtype", dtype_name(tensor->spec.dtype)},
                            {"shape", tensor->spec.shape},
                            {"data_offsets", {offset, offset + tensor->bytes.size()}}};
    offset += tensor->bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');

  SafeTensorsPieces pieces;
  const std::uint64_t length = text.size();
  pieces.head.resize(kLengthBytes);
  std::memcpy(pieces.head.data(), &length, kLengthBytes);
  pieces.head += text;
  for (const auto* tensor : order) pieces.arrays.push_back(tensor->bytes);
  return pieces;
}

std::vector<std::byte> serialize_safetensors(std::span<const SafeTensor> tensors,
                                             const std::map<std::string, std::string>& metadata) {
  const SafeTensorsPieces pieces = lay_out_safetensors(tensors, metadata);
  std::size_t size = pieces.head.size();
  for (const auto& array : pieces.arrays) size += array.size();
  std::vector<std::byte> file(size);
  std::byte* out = std::ranges::copy(std::as_bytes(std::span(pieces.head)), file.data()).out;
  for (const auto& array : pieces.arrays) out = std::ranges::copy(array, out).out;
  return file;
}

SafeTensors SafeTensors::parse(std::vector<std::byte> bytes, const std::string& origin) {
  SafeTensors file;
  file.origin_ = origin;
  file.bytes_ = std::move(bytes);
  const std::uint64_t size = file.bytes_.size();
  if (size < kLengthBytes) HeaderReader(origin, 0).fail(fmt::format("it has {} bytes", size));
  std::uint64_t length = 0;
  std::memcpy(&length, file.bytes_.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > size - kLengthBytes)
    HeaderReader(origin, 0).fail(fmt::format("a header of {} bytes in a file of {}", length, size));

  const HeaderReader reader(origin, size - kLengthBytes - length);
  const auto* text = reinterpret_cast<const char*>(file.bytes_.data() + kLengthBytes);
  const auto header = env::parse_json({text, length});
  if (!header.is_object()) reader.fail("its header is not JSON");
  std::vector<HeaderReader::Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__")
      file.metadata_ = read_metadata(value, reader);
    else
      entries.push_back(reader.entry(name, value));
  }
  check_end_to_end(entries, size - kLengthBytes - length, reader);
  const auto data = std::span(file.bytes_).subspan(kLengthBytes + length);
  for (auto& entry : entries)
    file.tensors_.emplace(
        std::move(entry.name),
        SafeTensorView{std::move(entry.spec), data.subspan(entry.begin, entry.end - entry.begin)});
  return file;
}

SafeTensors SafeTensors::read(const std::filesystem::path& path) {
  return parse(read_file(path), path.string());
}

const SafeTensorView& SafeTensors::at(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw CorruptFile(fmt::format("{}: there is no array \"{}\"", origin_, name));
  return found->second;
}

const SafeTensorView& SafeTensors::at(std::string_view name,
                                      const shm::TensorSpec& expected) const {
  const auto& view = at(name);
  if (view.spec != expected)
    throw CorruptFile(fmt::format("{}: \"{}\" is {}[{}], expected {}[{}]", origin_, name,
                                  dtype_name(view.spec.dtype), fmt::join(view.spec.shape, ", "),
                                  dtype_name(expected.dtype), fmt::join(expected.shape, ", ")));
  return view;
}

}  // namespace shoal::learn
