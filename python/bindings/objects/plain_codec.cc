#include "objects/plain_codec.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "objects/packers.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

/// Reads what PlainCodec wrote.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) noexcept : left_(bytes) {}

  nb::object read() {
    switch (take<char>()) {
      case 'N':
        return nb::none();
      case 'T':
        return nb::bool_(true);
      case 'F':
        return nb::bool_(false);
      case 'c':
        return nb::steal(PyLong_FromLong(take<std::int8_t>()));
      case 'h':
        return nb::steal(PyLong_FromLong(take<std::int16_t>()));
      case 'k':
        return nb::steal(PyLong_FromLong(take<std::int32_t>()));
      case 'i':
        return nb::steal(PyLong_FromLongLong(take<std::int64_t>()));
      case 'f':
        return nb::steal(PyFloat_FromDouble(take<double>()));
      case 's': {
        const auto text = take_sized();
        return checked(PyUnicode_FromStringAndSize(characters(text), length(text)));
      }
      case 'b': {
        const auto data = take_sized();
        return checked(PyBytes_FromStringAndSize(characters(data), length(data)));
      }
      case 't':
        return read_tuple();
      case 'l':
        return read_list();
      case 'd':
        return read_dict();
      case 'p': {
        const auto unpacker = text(take_sized());
        return unpack(unpacker, text(take_sized()));
      }
    }
    throw std::invalid_argument("bytes that stand for no plain object");
  }

  bool empty() const noexcept { return left_.empty(); }

 private:
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take_bytes(sizeof value).data(), sizeof value);
    return value;
  }
  std::span<const std::byte> take_bytes(std::size_t bytes) {
    if (bytes > left_.size()) throw std::invalid_argument("bytes of a plain object cut short");
    const auto taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }
  std::span<const std::byte> take_sized() { return take_bytes(take<std::uint16_t>()); }

  static std::string_view text(std::span<const std::byte> bytes) noexcept {
    return {characters(bytes), bytes.size()};
  }
  static const char* characters(std::span<const std::byte> bytes) noexcept {
    return reinterpret_cast<const char*>(bytes.data());
  }
  static Py_ssize_t length(std::span<const std::byte> bytes) noexcept {
    return static_cast<Py_ssize_t>(bytes.size());
  }
  static nb::object checked(PyObject* object) {
    if (object == nullptr) throw nb::python_error();
    return nb::steal(object);
  }

  nb::object read_tuple() {
    const auto size = take<std::uint16_t>();
    nb::object tuple = checked(PyTuple_New(size));
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyTuple_SET_ITEM(tuple.ptr(), i, read().release().ptr());
    }
    return tuple;
  }
  nb::object read_list() {
    const auto size = take<std::uint16_t>();
    nb::object list = checked(PyList_New(size));
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyList_SET_ITEM(list.ptr(), i, read().release().ptr());
    }
    return list;
  }
  nb::object read_dict() {
    nb::object dict = checked(PyDict_New());
    for (auto left = take<std::uint16_t>(); left > 0; --left) {
      const nb::object key = read();
      const nb::object value = read();
      if (PyDict_SetItem(dict.ptr(), key.ptr(), value.ptr()) != 0) throw nb::python_error();
    }
    return dict;
  }

  std::span<const std::byte> left_;
};

}  // namespace

nb::object PlainCodec::decode(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  nb::object object = reader.read();
  if (!reader.empty()) throw std::invalid_argument("bytes that go on behind a plain object");
  return object;
}

bool PlainCodec::put(char kind, const void* data, std::size_t bytes) noexcept {
  if (used_ + 1 + bytes > kMaxBytes) return false;
  bytes_[used_++] = static_cast<std::byte>(kind);
  if (bytes != 0) std::memcpy(bytes_.data() + used_, data, bytes);
  used_ += bytes;
  return true;
}

bool PlainCodec::put_sized(char kind, const char* data, std::size_t bytes) noexcept {
  return put(kind, nullptr, 0) && put_sized(data, bytes);
}

bool PlainCodec::put_sized(const char* data, std::size_t bytes) noexcept {
  const auto size = static_cast<std::uint16_t>(bytes);
  if (bytes > kMaxBytes || used_ + sizeof size + bytes > kMaxBytes) return false;
  std::memcpy(bytes_.data() + used_, &size, sizeof size);
  std::memcpy(bytes_.data() + used_ + sizeof size, data, bytes);
  used_ += sizeof size + bytes;
  return true;
}

bool PlainCodec::put_int(std::int64_t value) noexcept {
  const auto as = [&]<class T>(char kind, T narrow) { return put(kind, &narrow, sizeof narrow); };
  if (value == static_cast<std::int8_t>(value)) return as('c', static_cast<std::int8_t>(value));
  if (value == static_cast<std::int16_t>(value)) return as('h', static_cast<std::int16_t>(value));
  if (value == static_cast<std::int32_t>(value)) return as('k', static_cast<std::int32_t>(value));
  return as('i', value);
}

bool PlainCodec::first_time(PyObject* object) noexcept {
  const auto end = shared_.begin() + static_cast<std::ptrdiff_t>(seen_);
  if (seen_ == kMaxShared || std::find(shared_.begin(), end, object) != end) return false;
  shared_[seen_++] = object;
  return true;
}

bool PlainCodec::write(nb::handle object, int depth) {
  PyObject* self = object.ptr();
  if (self == Py_None) return put('N', nullptr, 0);
  if (self == Py_True) return put('T', nullptr, 0);
  if (self == Py_False) return put('F', nullptr, 0);
  if (PyLong_CheckExact(self)) {
    int overflow = 0;
    const std::int64_t value = PyLong_AsLongLongAndOverflow(self, &overflow);
    return overflow == 0 && put_int(value);
  }
  if (PyFloat_CheckExact(self)) {
    const double value = PyFloat_AS_DOUBLE(self);
    return put('f', &value, sizeof value);
  }
  if (PyUnicode_CheckExact(self)) {
    if (PyUnicode_GET_LENGTH(self) > static_cast<Py_ssize_t>(kMaxBytes)) return false;
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(self, &size);
    if (text == nullptr) {  // it has surrogates, which pickle knows how to keep
      PyErr_Clear();
      return false;
    }
    return put_sized('s', text, static_cast<std::size_t>(size));
  }
  if (PyBytes_CheckExact(self)) {
    return put_sized('b', PyBytes_AS_STRING(self),
                     static_cast<std::size_t>(PyBytes_GET_SIZE(self)));
  }
  if (PyTuple_CheckExact(self) || PyList_CheckExact(self) || PyDict_CheckExact(self)) {
    return depth < kMaxDepth && write_items(object, depth + 1);
  }
  return write_packed(object);
}

// Packing moves and copies, so nothing is packed before it is known that all can be.
bool PlainCodec::write_packed(nb::handle object) {
  const Packer* const packer = packer_of(Py_TYPE(object.ptr()));
  if (packer == nullptr || !first_time(object.ptr())) return false;
  if (!blocks_.is_valid()) {
    if (object.ptr() != root_.ptr() && !is_packable_tree(root_)) return false;
    blocks_ = nb::list();
  }
  const nb::object packed = packer->pack(object, blocks_);
  return packed.is_valid() && put_sized('p', packer->unpacker.data(), packer->unpacker.size()) &&
         put_sized(PyBytes_AS_STRING(packed.ptr()),
                   static_cast<std::size_t>(PyBytes_GET_SIZE(packed.ptr())));
}

// A packer may give the GIL back, and another thread change a list or dict: its items are held, and
// its size is looked at again.
bool PlainCodec::write_items(nb::handle object, int depth) {
  PyObject* self = object.ptr();
  const Py_ssize_t size = PyTuple_CheckExact(self)  ? PyTuple_GET_SIZE(self)
                          : PyList_CheckExact(self) ? PyList_GET_SIZE(self)
                                                    : PyDict_GET_SIZE(self);
  if (size > static_cast<Py_ssize_t>(kMaxBytes)) return false;
  const auto count = static_cast<std::uint16_t>(size);
  if (PyTuple_CheckExact(self)) {
    if (!put('t', &count, sizeof count)) return false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (!write(PyTuple_GET_ITEM(self, i), depth)) return false;
    }
    return true;
  }
  if (!first_time(self)) return false;
  if (PyList_CheckExact(self)) {
    if (!put('l', &count, sizeof count)) return false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (PyList_GET_SIZE(self) != size || !write(nb::borrow(PyList_GET_ITEM(self, i)), depth))
        return false;
    }
    return PyList_GET_SIZE(self) == size;
  }
  if (!put('d', &count, sizeof count)) return false;
  PyObject* key;
  PyObject* value;
  Py_ssize_t left = size;
  for (Py_ssize_t at = 0; PyDict_Next(self, &at, &key, &value) != 0; --left) {
    const nb::object kept = nb::borrow(value);
    if (left == 0 || !write(nb::borrow(key), depth) || !write(kept, depth)) return false;
  }
  return left == 0;
}

}  // namespace shoal::python
