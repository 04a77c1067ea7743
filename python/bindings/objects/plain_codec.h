// A short form of plain objects, which needs no pickle.
//
//   offset  bytes  field
//        0      4  end of the tree
//        4      …  the tree: of each object a character for its kind, and what is in it
//        …      …  of each packed object of the tree, in its order: the packer's module, the bytes
//
// It is read by processes of the same family only, which run the same build.
#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "objects/packers.h"

namespace shoal::python {

/// None, bool, int of 64 bits, float, str, bytes and what has a Packer, and tuples, lists and dicts
/// of them: all of exactly these types. A list, dict or packed object that is in the tree twice is
/// one object again.
///
/// The tree is walked once, which runs no Python code; then the packers are asked, which may give
/// the GIL back. So nothing is packed before it is known that all can be.
///
/// Threads: one, with the GIL.
class PlainCodec {
 public:
  /// Once. False when `object` has no short form: a part of it is of another type, or has
  /// surrogates; it is deep or large; or a packer leaves its object to others. Throws what a packer
  /// throws.
  bool encode(nanobind::handle object);

  std::span<const std::byte> bytes() const noexcept {
    return std::as_bytes(std::span(out_.data(), out_.size()));
  }
  /// That the bytes name.
  std::span<const ipc::Block> blocks() const noexcept { return blocks_; }
  /// Whether the tree has packed objects.
  bool has_packed() const noexcept { return !packed_.empty(); }

  /// The object that `bytes` of an encode() stand for. Throws ValueError for other bytes.
  static nanobind::object decode(std::span<const std::byte> bytes);

 private:
  static constexpr int kMaxDepth = 50;
  static constexpr int kMaxParts = 5000;
  static constexpr std::size_t kMaxText = std::size_t{1} << 24;
  static constexpr std::size_t kInlineBytes = 4096;
  /// From so many on, numbers of one type go without a kind each.
  static constexpr std::size_t kManyNumbers = 16;

  using Items = std::span<PyObject* const>;

  bool write(PyObject* object, int depth);
  bool write_shared(PyObject* object, int depth);
  bool write_items(char kind, Items items, int depth);
  bool write_dict(PyObject* dict, int depth);
  /// Of items that are all of that type.
  bool write_ints(char sequence, Items items);
  bool write_floats(char sequence, Items items);
  bool write_text(PyObject* text);
  bool write_packed();

  char* more(std::size_t bytes);
  bool put(char kind);
  template <class T>
  bool put(char kind, T value);
  bool put_int(std::int64_t value);
  bool put_size(std::size_t size);
  bool put_text(std::string_view text);
  template <class T, class Value>
  bool put_numbers(char sequence, char kind, const std::vector<Value>& values);

  fmt::basic_memory_buffer<char, kInlineBytes> out_;
  int parts_ = 0;
  std::unordered_map<PyObject*, std::uint32_t> met_;  // what may be met again
  std::vector<std::pair<nanobind::object, const KnownPacker*>> packed_;
  std::vector<ipc::Block> blocks_;
};

/// ipc.pickle_tree(obj, blocks) and ipc.decode_tree(bytes), which such a pickle may call.
void bind_plain_codec(nanobind::module_& module);

}  // namespace shoal::python
