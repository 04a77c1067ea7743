#include "tree_pickle.h"

#include <nanobind/stl/string.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

constexpr int kMaxDepth = 50;
constexpr int kMaxParts = 5000;
constexpr Py_ssize_t kMaxText = Py_ssize_t{1} << 24;

/// How objects of one type become bytes, and which function of which module makes them of these.
struct Packer {
  PyObject* pack;  // pack(obj, blocks): bytes, or None; owned for ever, as the type is
  std::string module;
  std::string name;
};

using Packers = std::unordered_map<PyTypeObject*, Packer>;

/// Written under the GIL when tensors.py and arrays.py are imported; never destroyed.
Packers& packers() {
  static Packers* const table = new Packers;
  return *table;
}

/// Whether all parts are of types that are known; asks no Python code.
class Survey {
 public:
  bool knows(PyObject* object, int depth) {
    if (++parts_ > kMaxParts || depth > kMaxDepth) return false;
    if (object == Py_None || PyBool_Check(object) || PyFloat_CheckExact(object)) return true;
    if (PyLong_CheckExact(object)) return fits(object);
    if (PyUnicode_CheckExact(object)) return PyUnicode_GET_LENGTH(object) < kMaxText;
    if (PyBytes_CheckExact(object)) return PyBytes_GET_SIZE(object) < kMaxText;
    if (PyTuple_CheckExact(object)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
        if (!knows(PyTuple_GET_ITEM(object, i), depth + 1)) return false;
      }
      return true;
    }
    if (PyList_CheckExact(object)) {
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) {
        if (!knows(PyList_GET_ITEM(object, i), depth + 1)) return false;
      }
      return true;
    }
    if (PyDict_CheckExact(object)) {
      PyObject *key, *value;
      for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &value);) {
        if (!knows(key, depth + 1) || !knows(value, depth + 1)) return false;
      }
      return true;
    }
    return packers().contains(Py_TYPE(object));
  }

 private:
  static bool fits(PyObject* integer) {
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(integer, &overflow);
    return overflow == 0;
  }

  int parts_ = 0;
};

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
    const auto found = packers().find(Py_TYPE(object.ptr()));
    if (found == packers().end()) return false;
    const Packer& packer = found->second;
    PyObject* const arguments[] = {object.ptr(), blocks_.ptr()};
    const nb::object packed = nb::steal(PyObject_Vectorcall(packer.pack, arguments, 2, nullptr));
    if (!packed.is_valid()) throw nb::python_error();
    if (!PyBytes_CheckExact(packed.ptr())) return false;
    if (const auto known = memo_.find(packer.pack); known != memo_.end()) {
      write_get(known->second);
    } else {
      write_text('\x8c', 'X', packer.module.data(), static_cast<Py_ssize_t>(packer.module.size()));
      write_text('\x8c', 'X', packer.name.data(), static_cast<Py_ssize_t>(packer.name.size()));
      put('\x93');
      memoize(nb::borrow(packer.pack));
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

void add_packer(nb::handle type, nb::object packer, std::string module, std::string name) {
  if (!PyType_Check(type.ptr())) throw nb::type_error("not a type");
  auto* const key = reinterpret_cast<PyTypeObject*>(nb::borrow(type).release().ptr());
  packers()[key] = {packer.release().ptr(), std::move(module), std::move(name)};
}

}  // namespace

nb::object pickle_tree(nb::handle object, nb::list blocks) {
  if (!Survey().knows(object.ptr(), 0)) return nb::none();
  TreePickle pickle(blocks);
  if (!pickle.write(nb::borrow(object))) return nb::none();
  return pickle.finish();
}

void bind_tree_pickle(nb::module_& module) {
  module.def("pickle_tree", &pickle_tree, "obj"_a.none(), "blocks"_a,
             "A tree of builtins and of objects with a packer as a pickle, or None for what is "
             "more; blocks that it names are appended to `blocks`, also in the latter case.");
  module.def(
      "add_packer", &add_packer, "type"_a, "packer"_a, "module"_a, "name"_a,
      "Objects of exactly this type are pickled as a call of the function `name` of "
      "`module` with packer(obj, blocks), which is bytes, or None to leave the tree to others.");
}

}  // namespace shoal::python
