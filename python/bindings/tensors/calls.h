// Attributes and methods of Python objects whose names are known when this is compiled. Each name is interned once.
//
// Threads: with the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace shoal::python {

/// A string as a parameter of a template.
template <std::size_t kSize>
struct Literal {
  char text[kSize];
  consteval Literal(const char (&from)[kSize]) {
    std::copy_n(from, kSize, text);
  }  // NOLINT(*-explicit-*)
};

/// A reference of the caller's, or the error that Python has set.
inline nanobind::object checked(PyObject* made) {
  if (made == nullptr) throw nanobind::python_error();
  return nanobind::steal(made);
}

template <Literal kName>
PyObject* interned() {
  static PyObject* const name = checked(PyUnicode_InternFromString(kName.text)).release().ptr();
  return name;
}

template <Literal kName>
nanobind::object attribute(nanobind::handle object) {
  return checked(PyObject_GetAttr(object.ptr(), interned<kName>()));
}

template <Literal kName>
bool is_true(nanobind::handle object) {
  return attribute<kName>(object).ptr() == Py_True;
}

/// attribute() of one that a C type computes by a function of its own, which is called directly:
/// the name is looked up once. All objects that this is called for have the attribute of one type,
/// or of types that inherit it. Not for functions that give the GIL away.
template <Literal kName>
nanobind::object field(nanobind::handle object) {
  static const PyGetSetDef* function = nullptr;  // for ever; found twice does no harm
  if (function == nullptr) {
    const nanobind::object found = attribute<kName>(object.type());
    if (!Py_IS_TYPE(found.ptr(), &PyGetSetDescr_Type)) return attribute<kName>(object);
    function = reinterpret_cast<PyGetSetDescrObject*>(found.ptr())->d_getset;
  }
  return checked(function->get(object.ptr(), function->closure));
}

template <Literal kName>
bool is_set(nanobind::handle object) {
  return field<kName>(object).ptr() == Py_True;
}

/// `object.kName(*arguments)`, without a bound method in between.
template <Literal kName, class... Arguments>
nanobind::object call(nanobind::handle object, const Arguments&... arguments) {
  const std::array<PyObject*, 1 + sizeof...(arguments)> all{object.ptr(), arguments.ptr()...};
  return checked(PyObject_VectorcallMethod(interned<kName>(), all.data(),
                                           all.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

/// `function(argument)`.
inline nanobind::object call_with(nanobind::handle function, nanobind::handle argument) {
  std::array<PyObject*, 2> all{nullptr, argument.ptr()};
  return checked(PyObject_Vectorcall(function.ptr(), all.data() + 1,
                                     1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

/// Throws the error that Python has set for what is no integer, or too large a one.
inline std::int64_t to_int(nanobind::handle object) {
  const std::int64_t value = PyLong_AsLongLong(object.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) throw nanobind::python_error();
  return value;
}

inline std::uintptr_t to_address(nanobind::handle object) {
  const std::uint64_t value = PyLong_AsUnsignedLongLong(object.ptr());
  if (value == ~std::uint64_t{0} && PyErr_Occurred() != nullptr) throw nanobind::python_error();
  return value;
}

inline nanobind::object from_address(std::uintptr_t address) {
  return checked(PyLong_FromUnsignedLongLong(address));
}

}  // namespace shoal::python
