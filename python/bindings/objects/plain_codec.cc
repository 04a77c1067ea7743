#include "objects/plain_codec.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>

#include "bytes.h"
#include "objects/packers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

constexpr unsigned char kLongSize = 255;  // 32 bits follow

std::span<PyObject* const> items_of(PyObject* list_or_tuple) {
  return {PySequence_Fast_ITEMS(list_or_tuple),
          static_cast<std::size_t>(PySequence_Fast_GET_SIZE(list_or_tuple))};
}

nb::object checked(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

/// A part of what PlainCodec wrote, from its front to its end.
class Source {
 public:
  explicit Source(std::string_view bytes) noexcept : left_(bytes) {}

  bool empty() const noexcept { return left_.empty(); }

  std::string_view take_bytes(std::size_t size) {
    if (size > left_.size()) throw std::invalid_argument("bytes of a plain object cut short");
    const auto taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take_bytes(sizeof value).data(), sizeof value);
    return value;
  }
  std::size_t take_size() {
    const auto size = take<unsigned char>();
    return size == kLongSize ? take<std::uint32_t>() : size;
  }
  std::string_view take_text() { return take_bytes(take_size()); }
  /// Of objects that take a byte each at least, so that no damage asks for much memory.
  Py_ssize_t take_count() {
    const std::size_t count = take_size();
    if (count > left_.size()) throw std::invalid_argument("bytes of a plain object cut short");
    return static_cast<Py_ssize_t>(count);
  }

 private:
  std::string_view left_;
};

class Reader {
 public:
  /// Deeper than any that is written: an object that is met again takes two.
  static constexpr int kMaxDepth = 200;

  Reader(std::string_view tree, std::string_view packed) noexcept : tree_(tree), packed_(packed) {}

  nb::object read() {
    if (depth_ > kMaxDepth) throw std::invalid_argument("bytes of a plain object nested too deep");
    return read(tree_.take<char>());
  }
  bool at_end() const noexcept { return tree_.empty() && packed_.empty(); }

 private:
  nb::object read(char kind) {
    switch (kind) {
      case 'N':
        return nb::none();
      case 'T':
        return nb::bool_(true);
      case 'F':
        return nb::bool_(false);
      case 'c':
        return checked(PyLong_FromLong(tree_.take<std::int8_t>()));
      case 'h':
        return checked(PyLong_FromLong(tree_.take<std::int16_t>()));
      case 'k':
        return checked(PyLong_FromLong(tree_.take<std::int32_t>()));
      case 'i':
        return checked(PyLong_FromLong(tree_.take<std::int64_t>()));
      case 'f':
        return checked(PyFloat_FromDouble(tree_.take<double>()));
      case 's': {
        const auto text = tree_.take_text();
        return checked(PyUnicode_FromStringAndSize(text.data(), std::ssize(text)));
      }
      case 'b': {
        const auto bytes = tree_.take_text();
        return checked(PyBytes_FromStringAndSize(bytes.data(), std::ssize(bytes)));
      }
      case 't':
      case 'l':
        return read_items(kind, tree_.take_count(), [&] {
          const Deeper deeper(depth_);
          return read().release().ptr();
        });
      case 'n':
        return read_numbers(tree_.take<char>());
      case 'd':
        return read_dict();
      case 'p': {
        const Packer& packer = packer_of_module(packed_.take_text());
        return packer.unpack(packed_.take_text());
      }
      case 'm':
        return met_.emplace_back(read_shared());
      case 'r':
        return again(tree_.take<std::uint32_t>());
    }
    throw std::invalid_argument("bytes that stand for no plain object");
  }

  nb::object read_numbers(char sequence) {
    switch (tree_.take<char>()) {
      case 'c':
        return read_numbers<std::int8_t>(sequence, PyLong_FromLong);
      case 'h':
        return read_numbers<std::int16_t>(sequence, PyLong_FromLong);
      case 'k':
        return read_numbers<std::int32_t>(sequence, PyLong_FromLong);
      case 'i':
        return read_numbers<std::int64_t>(sequence, PyLong_FromLong);
      case 'f':
        return read_numbers<double>(sequence, PyFloat_FromDouble);
    }
    throw std::invalid_argument("bytes that stand for no plain object");
  }

  template <class T, class Make>
  nb::object read_numbers(char sequence, Make make) {
    const Py_ssize_t count = tree_.take_count();
    const char* from = tree_.take_bytes(static_cast<std::size_t>(count) * sizeof(T)).data();
    return read_items(sequence, count, [&] {
      T number;
      std::memcpy(&number, from, sizeof number);
      from += sizeof number;
      return make(number);
    });
  }

  /// `next()` returns a reference, or nullptr after an error.
  template <class Next>
  nb::object read_items(char sequence, Py_ssize_t count, Next next) {
    nb::object made = checked(sequence == 'l' ? PyList_New(count) : PyTuple_New(count));
    PyObject** const items = PySequence_Fast_ITEMS(made.ptr());
    for (Py_ssize_t i = 0; i < count; ++i) {
      items[i] = next();
      if (items[i] == nullptr) throw nb::python_error();
    }
    return made;
  }

  nb::object read_shared() {
    const Deeper deeper(depth_);
    return read();
  }

  nb::object again(std::uint32_t number) {
    if (number >= met_.size()) throw std::invalid_argument("bytes that stand for no plain object");
    return met_[number];
  }

  nb::object read_dict() {
    const Deeper deeper(depth_);
    nb::object dict = checked(PyDict_New());
    for (Py_ssize_t left = tree_.take_count(); left > 0; --left) {
      const nb::object key = read();
      const nb::object value = read();
      if (PyDict_SetItem(dict.ptr(), key.ptr(), value.ptr()) != 0) throw nb::python_error();
    }
    return dict;
  }

  struct Deeper {
    explicit Deeper(int& depth) noexcept : depth_(++depth) {}
    ~Deeper() { --depth_; }
    int& depth_;
  };

  Source tree_, packed_;
  std::vector<nb::object> met_;
  int depth_ = 0;
};

/// A pickle of protocol 5 that calls decode_tree() of these bytes; the opcodes are those of
/// Python's Lib/pickle.py.
nb::bytes pickle_that_decodes(std::string_view bytes) {
  constexpr std::string_view kHead =
      "\x80\x05\x8c\x0fshoal._core.ipc\x8c\x0b"
      "decode_tree\x93"
      "B";
  constexpr std::string_view kTail = "\x85R.";
  const auto size = static_cast<std::uint32_t>(bytes.size());
  std::string pickle(kHead);
  pickle.reserve(kHead.size() + sizeof size + bytes.size() + kTail.size());
  pickle.append(reinterpret_cast<const char*>(&size), sizeof size).append(bytes).append(kTail);
  return nb::bytes(pickle.data(), pickle.size());
}

nb::object pickle_tree(nb::handle object, nb::list blocks) {
  PlainCodec codec;
  if (!codec.encode(object)) return nb::none();
  if (!codec.has_packed()) return nb::module_::import_("pickle").attr("dumps")(object, 5);
  for (const ipc::Block& block : codec.blocks()) blocks.append(nb::cast(block));
  const auto bytes = codec.bytes();
  return pickle_that_decodes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

nb::object PlainCodec::decode(std::span<const std::byte> bytes) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto end = Source(all).take<std::uint32_t>();
  if (end < sizeof end || end > all.size())
    throw std::invalid_argument("bytes that stand for no plain object");
  Reader reader(all.substr(sizeof end, end - sizeof end), all.substr(end));
  nb::object object = reader.read();
  if (!reader.at_end()) throw std::invalid_argument("bytes that go on behind a plain object");
  return object;
}

bool PlainCodec::encode(nb::handle object) {
  std::uint32_t end = 0;
  out_.resize(sizeof end);
  if (!write(object.ptr(), 0) || out_.size() > std::numeric_limits<std::uint32_t>::max()) {
    return false;
  }
  end = static_cast<std::uint32_t>(out_.size());
  std::memcpy(out_.data(), &end, sizeof end);
  return write_packed();
}

bool PlainCodec::write(PyObject* object, int depth) {
  if (++parts_ > kMaxParts || depth > kMaxDepth) return false;
  if (object == Py_None) return put('N');
  if (object == Py_True) return put('T');
  if (object == Py_False) return put('F');
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const std::int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow == 0 && put_int(value);
  }
  if (PyFloat_CheckExact(object)) return put('f', PyFloat_AS_DOUBLE(object));
  if (PyUnicode_CheckExact(object)) return write_text(object);
  if (PyBytes_CheckExact(object)) {
    const auto size = static_cast<std::size_t>(PyBytes_GET_SIZE(object));
    return size < kMaxText && put('b') && put_text({PyBytes_AS_STRING(object), size});
  }
  if (PyTuple_CheckExact(object)) {
    return write_items('t', items_of(object), depth + 1);
  }
  // What nobody else refers to is not met again, and the root in a cycle only, which is deep.
  if (depth == 0 || Py_REFCNT(object) == 1) return write_shared(object, depth);
  if (const auto known = met_.find(object); known != met_.end()) return put('r', known->second);
  if (!put('m') || !write_shared(object, depth)) return false;
  met_.emplace(object, static_cast<std::uint32_t>(met_.size()));
  return true;
}

/// What has an identity that matters.
bool PlainCodec::write_shared(PyObject* object, int depth) {
  if (PyList_CheckExact(object)) {
    return write_items('l', items_of(object), depth + 1);
  }
  if (PyDict_CheckExact(object)) return write_dict(object, depth + 1);
  const KnownPacker* const packer = packer_of(Py_TYPE(object));
  if (packer == nullptr) return false;
  packed_.emplace_back(nb::borrow(object), packer);
  return put('p');
}

bool PlainCodec::write_items(char kind, Items items, int depth) {
  if (items.size() >= kManyNumbers) {
    const PyTypeObject* const type = Py_TYPE(items[0]);
    const auto is_of_type = [type](PyObject* item) { return Py_TYPE(item) == type; };
    const bool numbers = type == &PyFloat_Type || type == &PyLong_Type;
    if (numbers && std::ranges::all_of(items, is_of_type)) {
      return type == &PyFloat_Type ? write_floats(kind, items) : write_ints(kind, items);
    }
  }
  return put(kind) && put_size(items.size()) &&
         std::ranges::all_of(items, [&](PyObject* item) { return write(item, depth); });
}

bool PlainCodec::write_dict(PyObject* dict, int depth) {
  put('d');
  put_size(static_cast<std::size_t>(PyDict_GET_SIZE(dict)));
  PyObject* key;
  PyObject* value;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value) != 0;) {
    if (!write(key, depth) || !write(value, depth)) return false;
  }
  return true;
}

bool PlainCodec::write_ints(char sequence, Items items) {
  std::vector<std::int64_t> values;
  values.reserve(items.size());
  std::int64_t reach = 0;  // as far from 0 as any of them
  for (PyObject* const item : items) {
    int overflow = 0;
    const std::int64_t value = PyLong_AsLongLongAndOverflow(item, &overflow);
    if (overflow != 0) return false;
    reach |= value < 0 ? ~value : value;
    values.push_back(value);
  }
  if (std::in_range<std::int8_t>(reach)) return put_numbers<std::int8_t>(sequence, 'c', values);
  if (std::in_range<std::int16_t>(reach)) return put_numbers<std::int16_t>(sequence, 'h', values);
  if (std::in_range<std::int32_t>(reach)) return put_numbers<std::int32_t>(sequence, 'k', values);
  return put_numbers<std::int64_t>(sequence, 'i', values);
}

bool PlainCodec::write_floats(char sequence, Items items) {
  std::vector<double> values;
  values.reserve(items.size());
  for (PyObject* const item : items) {
    values.push_back(PyFloat_AS_DOUBLE(item));
  }
  return put_numbers<double>(sequence, 'f', values);
}

bool PlainCodec::write_text(PyObject* text) {
  if (PyUnicode_GET_LENGTH(text) >= static_cast<Py_ssize_t>(kMaxText)) return false;
  Py_ssize_t size = 0;
  const char* const utf8 = PyUnicode_AsUTF8AndSize(text, &size);
  if (utf8 == nullptr) {  // it has surrogates, which pickle knows how to keep
    PyErr_Clear();
    return false;
  }
  return put('s') && put_text({utf8, static_cast<std::size_t>(size)});
}

bool PlainCodec::write_packed() {
  for (const auto& [object, known] : packed_) {
    auto packed = known->packer->pack(object);
    if (!packed) return false;
    put_text(known->module);
    put_text(packed->bytes);
    std::ranges::move(packed->blocks, std::back_inserter(blocks_));
  }
  return true;
}

char* PlainCodec::more(std::size_t bytes) {
  const std::size_t at = out_.size();
  out_.resize(at + bytes);
  return out_.data() + at;
}

bool PlainCodec::put(char kind) {
  out_.push_back(kind);
  return true;
}

template <class T>
bool PlainCodec::put(char kind, T value) {
  char* const to = more(1 + sizeof value);
  *to = kind;
  std::memcpy(to + 1, &value, sizeof value);
  return true;
}

bool PlainCodec::put_int(std::int64_t value) {
  if (std::in_range<std::int8_t>(value)) return put('c', static_cast<std::int8_t>(value));
  if (std::in_range<std::int16_t>(value)) return put('h', static_cast<std::int16_t>(value));
  if (std::in_range<std::int32_t>(value)) return put('k', static_cast<std::int32_t>(value));
  return put('i', value);
}

bool PlainCodec::put_size(std::size_t size) {
  if (size < kLongSize) return put(static_cast<char>(size));
  return put(static_cast<char>(kLongSize), static_cast<std::uint32_t>(size));
}

bool PlainCodec::put_text(std::string_view text) {
  put_size(text.size());
  std::ranges::copy(text, more(text.size()));
  return true;
}

template <class T, class Value>
bool PlainCodec::put_numbers(char sequence, char kind, const std::vector<Value>& values) {
  put('n');
  put(sequence);
  put(kind);
  put_size(values.size());
  char* to = more(values.size() * sizeof(T));
  for (const Value value : values) {
    const auto number = static_cast<T>(value);
    std::memcpy(to, &number, sizeof number);
    to += sizeof number;
  }
  return true;
}

void bind_plain_codec(nb::module_& module) {
  module.def("pickle_tree", &pickle_tree, "obj"_a.none(), "blocks"_a,
             "A tree of builtins and of objects with a packer as a pickle, or None for what is "
             "more. The blocks that it names are appended to `blocks`.");
  module.def(
      "decode_tree", [](const nb::bytes& bytes) { return PlainCodec::decode(view(bytes)); },
      "bytes"_a, "For pickles of pickle_tree(), which call it.");
}

}  // namespace shoal::python
