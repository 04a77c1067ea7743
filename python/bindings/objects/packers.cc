#include "objects/packers.h"

#include <nanobind/stl/string.h>

#include <unordered_map>
#include <utility>

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

constexpr int kMaxDepth = 50;
constexpr int kMaxParts = 5000;
constexpr Py_ssize_t kMaxText = Py_ssize_t{1} << 24;

using Packers = std::unordered_map<const PyTypeObject*, Packer>;

/// Written under the GIL when tensors.py and arrays.py are imported.
Packers& packers() {
  static Packers* const table = new Packers;
  return *table;
}

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>{}(text);
  }
};

PyObject* find_unpacker(std::string_view name) {
  using Unpackers = std::unordered_map<std::string, PyObject*, Hash, std::equal_to<>>;
  static Unpackers* const table = new Unpackers;
  if (const auto found = table->find(name); found != table->end()) return found->second;
  const std::size_t colon = name.find(':');
  const std::string module(name.substr(0, colon)), function(name.substr(colon + 1));
  PyObject* const made =
      nb::object(nb::module_::import_(module.c_str()).attr(function.c_str())).release().ptr();
  (*table)[std::string(name)] = made;
  return made;
}

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

void add_packer(nb::handle type, nb::object packer, std::string module, std::string name) {
  if (!PyType_Check(type.ptr())) throw nb::type_error("not a type");
  auto* const key = reinterpret_cast<PyTypeObject*>(nb::borrow(type).release().ptr());
  std::string unpacker = module + ":" + name;
  packers()[key] = {packer.release().ptr(), std::move(module), std::move(name),
                    std::move(unpacker)};
}

}  // namespace

nb::object Packer::pack(nb::handle object, nb::handle blocks) const {
  PyObject* const arguments[] = {object.ptr(), blocks.ptr()};
  nb::object packed = nb::steal(PyObject_Vectorcall(function, arguments, 2, nullptr));
  if (!packed.is_valid()) throw nb::python_error();
  return PyBytes_CheckExact(packed.ptr()) ? std::move(packed) : nb::object();
}

const Packer* packer_of(const PyTypeObject* type) {
  const auto found = packers().find(type);
  return found == packers().end() ? nullptr : &found->second;
}

nb::object unpack(std::string_view unpacker, std::string_view packed) {
  const nb::bytes bytes(packed.data(), packed.size());
  PyObject* const arguments[] = {bytes.ptr()};
  nb::object made = nb::steal(PyObject_Vectorcall(find_unpacker(unpacker), arguments, 1, nullptr));
  if (!made.is_valid()) throw nb::python_error();
  return made;
}

bool is_packable_tree(nb::handle object) { return Survey().knows(object.ptr(), 0); }

void bind_packers(nb::module_& module) {
  module.def(
      "add_packer", &add_packer, "type"_a, "packer"_a, "module"_a, "name"_a,
      "Objects of exactly this type cross as packer(obj, blocks), which is bytes, or None to leave "
      "the tree to others; the function `name` of `module` makes them of it again.");
}

}  // namespace shoal::python
