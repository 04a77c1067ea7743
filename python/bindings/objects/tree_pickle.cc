#include "objects/tree_pickle.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "objects/packers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

/// Opcodes of Python's Lib/pickle.py.
class TreePickle {
 public:
  explicit TreePickle(nb::handle blocks) : blocks_(blocks) { out_ = "\x80\x05"; }

  /// False when a part cannot be written after all.
  bool write(nb::object object) {
    PyObject* const it = object.ptr();
    if (it == Py_None) return put('N');
    if (PyBool_Check(it)) return put(it == Py_True ? '\x88' : '\x89');
    if (PyLong_CheckExact(it)) return write_int(PyLong_AsLongLong(it));
    if (PyFloat_CheckExact(it)) return write_float(PyFloat_AS_DOUBLE(it));
    if (PyUnicode_CheckExact(it)) return write_str(it);
    if (PyBytes_CheckExact(it)) return write_bytes(it);
    if (PyTuple_CheckExact(it)) return write_tuple(it);
    if (const auto known = memo_.find(it); known != memo_.end()) return write_get(known->second);
    if (PyList_CheckExact(it)) return write_list(object);
    if (PyDict_CheckExact(it)) return write_dict(object);
    return write_packed(object);
  }

  nb::bytes finish() {
    put('.');
    return nb::bytes(out_.data(), out_.size());
  }

 private:
  bool put(char opcode) {
    out_.push_back(opcode);
    return true;
  }

  template <class T>
  bool put(char opcode, T value) {  // little-endian, as this machine is
    static_assert(std::endian::native == std::endian::little);
    put(opcode);
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return true;
  }

  bool write_int(long long value) {
    if (value >= 0 && value < 256) return put('K', static_cast<std::uint8_t>(value));
    if (value >= std::numeric_limits<std::int32_t>::min() &&
        value <= std::numeric_limits<std::int32_t>::max()) {
      return put('J', static_cast<std::int32_t>(value));
    }
    put('\x8a', std::uint8_t{8});
    out_.append(reinterpret_cast<const char*>(&value), 8);
    return true;
  }

  bool write_float(double value) {
    return put('G', __builtin_bswap64(std::bit_cast<std::uint64_t>(value)));
  }

  bool write_text(char short_opcode, char opcode, const char* data, Py_ssize_t size) {
    if (size < 256) {
      put(short_opcode, static_cast<std::uint8_t>(size));
    } else {
      put(opcode, static_cast<std::uint32_t>(size));
    }
    out_.append(data, static_cast<std::size_t>(size));
    return true;
  }

  void write_text(const std::string& text) {
    write_text('\x8c', 'X', text.data(), static_cast<Py_ssize_t>(text.size()));
  }

  bool write_str(PyObject* text) {
    Py_ssize_t size;
    const char* data = PyUnicode_AsUTF8AndSize(text, &size);
    if (data == nullptr) {  // lone surrogates
      PyErr_Clear();
      return false;
    }
    return write_text('\x8c', 'X', data, size);
  }

  bool write_bytes(PyObject* bytes) {
    return write_text('C', 'B', PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes));
  }

  bool write_tuple(PyObject* tuple) {
    const Py_ssize_t size = PyTuple_GET_SIZE(tuple);
    if (size == 0) return put(')');
    if (size > 3) put('(');
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (!write(nb::borrow(PyTuple_GET_ITEM(tuple, i)))) return false;
    }
    constexpr char kSmall[] = {'\x85', '\x86', '\x87'};
    return put(size > 3 ? 't' : kSmall[size - 1]);
  }

  // A packer may give the GIL back: other threads may change lists and dicts meanwhile.
  bool write_list(nb::object list) {
    put(']');
    memoize(list);
    put('(');
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.ptr()); ++i) {
      if (!write(nb::borrow(PyList_GET_ITEM(list.ptr(), i)))) return false;
    }
    return put('e');
  }

  bool write_dict(nb::object dict) {
    put('}');
    memoize(dict);
    const nb::object items = nb::steal(PyDict_Items(dict.ptr()));
    if (!items.is_valid()) throw nb::python_error();
    put('(');
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.ptr()); ++i) {
      PyObject* const item = PyList_GET_ITEM(items.ptr(), i);
      if (!write(nb::borrow(PyTuple_GET_ITEM(item, 0)))) return false;
      if (!write(nb::borrow(PyTuple_GET_ITEM(item, 1)))) return false;
    }
    return put('u');
  }

  bool write_packed(nb::object object) {
    const Packer* const packer = packer_of(Py_TYPE(object.ptr()));
    if (packer == nullptr) return false;
    const nb::object packed = packer->pack(object, blocks_);
    if (!packed.is_valid()) return false;
    if (const auto known = memo_.find(packer->function); known != memo_.end()) {
      write_get(known->second);
    } else {
      write_text(packer->module);
      write_text(packer->name);
      put('\x93');
      memoize(nb::borrow(packer->function));
    }
    write_bytes(packed.ptr());
    put('\x85');
    put('R');
    memoize(std::move(object));
    return true;
  }

  void memoize(nb::object object) {
    put('\x94');
    memo_.emplace(object.ptr(), static_cast<std::uint32_t>(memo_.size()));
    kept_.push_back(std::move(object));
  }

  bool write_get(std::uint32_t index) {
    if (index < 256) return put('h', static_cast<std::uint8_t>(index));
    return put('j', index);
  }

  nb::handle blocks_;
  std::string out_;
  std::unordered_map<PyObject*, std::uint32_t> memo_;
  std::vector<nb::object> kept_;  // no address is used twice
};

}  // namespace

nb::object pickle_tree(nb::handle object, nb::list blocks) {
  if (!is_packable_tree(object)) return nb::none();
  TreePickle pickle(blocks);
  if (!pickle.write(nb::borrow(object))) return nb::none();
  return pickle.finish();
}

void bind_tree_pickle(nb::module_& module) {
  module.def("pickle_tree", &pickle_tree, "obj"_a.none(), "blocks"_a,
             "A tree of builtins and of objects with a packer as a pickle, or None for what is "
             "more; blocks that it names are appended to `blocks`, also in the latter case.");
}

}  // namespace shoal::python
