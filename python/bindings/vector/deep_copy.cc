#include "vector/deep_copy.h"

#include <utility>

#include "numpy_api.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

nb::object checked(PyObject* result) {
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

bool is_immutable(PyObject* object) {
  if (object == Py_None || PyBool_Check(object)) return true;
  const PyTypeObject* type = Py_TYPE(object);
  if (type == &PyFloat_Type || type == &PyLong_Type || type == &PyUnicode_Type ||
      type == &PyBytes_Type || type == &PyComplex_Type) {
    return true;
  }
  // np.void is no number: it may be a view of an array.
  return PyArray_IsScalar(object, Number) || PyArray_IsScalar(object, Bool);
}

bool has_plain_items(PyObject* array) {
  return !PyDataType_REFCHK(PyArray_DESCR(reinterpret_cast<PyArrayObject*>(array)));
}

/// Bounds the depth, as Python's own recursive functions do.
class Level {
 public:
  Level() {
    if (Py_EnterRecursiveCall(" while an info or an observation was copied") != 0)
      throw nb::python_error();
  }
  ~Level() { Py_LeaveRecursiveCall(); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
};

/// One call of deep_copy(): what is there twice is copied once, so cycles end.
class Copier {
 public:
  /// `object` itself where it cannot be copied: its code raises, or it is nested too deeply.
  nb::object copy_or_same(PyObject* object) {
    try {
      return copy(object);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) throw;
      return nb::borrow(object);
    }
  }

 private:
  nb::object copy(PyObject* object) {
    if (is_immutable(object)) return nb::borrow(object);
    if (nb::object known = copied_before(object)) return known;
    if (PyDict_CheckExact(object)) return copy_dict(object);
    if (PyList_CheckExact(object)) return copy_list(object);
    if (PyTuple_CheckExact(object)) return copy_tuple(object);
    if (PyArray_CheckExact(object) && has_plain_items(object)) return copy_array(object);
    return copy_other(object);
  }

  static nb::object key_of(PyObject* object) { return checked(PyLong_FromVoidPtr(object)); }

  /// No object: it was not copied yet.
  nb::object copied_before(PyObject* object) const {
    if (!memo_) return {};
    PyObject* known = PyDict_GetItemWithError(memo_.ptr(), key_of(object).ptr());
    if (known == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
    return nb::borrow(known);
  }

  /// In the memo of copy.deepcopy(), too: by id.
  void remember(PyObject* object, nb::handle copy) {
    if (!memo_) memo_ = nb::dict();
    if (PyDict_SetItem(memo_.ptr(), key_of(object).ptr(), copy.ptr()) != 0)
      throw nb::python_error();
  }

  nb::object copy_dict(PyObject* object) {
    const Level level;
    nb::object dict = checked(PyDict_Copy(object));
    bool remembered = false;
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(dict.ptr(), &at, &key, &value) != 0) {
      if (is_immutable(value)) continue;
      if (!std::exchange(remembered, true)) remember(object, dict);
      const nb::object held_key = nb::borrow(key), held_value = nb::borrow(value);
      // No key is added: the iteration goes on.
      if (PyDict_SetItem(dict.ptr(), key, copy_or_same(value).ptr()) != 0) throw nb::python_error();
    }
    return dict;
  }

  nb::object copy_list(PyObject* object) {
    const Level level;
    nb::object list = checked(PyList_GetSlice(object, 0, PyList_GET_SIZE(object)));
    remember(object, list);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.ptr()); ++i) {
      PyObject* item = PyList_GET_ITEM(list.ptr(), i);
      if (is_immutable(item)) continue;
      const nb::object held = nb::borrow(item);
      if (PyList_SetItem(list.ptr(), i, copy_or_same(item).release().ptr()) != 0)
        throw nb::python_error();
    }
    return list;
  }

  nb::object copy_tuple(PyObject* object) {
    const Level level;
    const Py_ssize_t size = PyTuple_GET_SIZE(object);
    nb::object tuple = checked(PyTuple_New(size));
    bool changed = false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyObject* item = PyTuple_GET_ITEM(object, i);
      nb::object own = copy_or_same(item);
      changed = changed || own.ptr() != item;
      PyTuple_SET_ITEM(tuple.ptr(), i, own.release().ptr());
    }
    if (!changed) return nb::borrow(object);
    if (nb::object known = copied_before(object)) return known;  // it holds itself
    remember(object, tuple);
    return tuple;
  }

  nb::object copy_array(PyObject* object) {
    nb::object array =
        checked(PyArray_NewCopy(reinterpret_cast<PyArrayObject*>(object), NPY_KEEPORDER));
    remember(object, array);
    return array;
  }

  nb::object copy_other(PyObject* object) {
    if (!deepcopy_) deepcopy_ = nb::module_::import_("copy").attr("deepcopy");
    if (!memo_) memo_ = nb::dict();
    return deepcopy_(nb::handle(object), memo_);
  }

  nb::object memo_;
  nb::object deepcopy_;
};

}  // namespace

nb::object deep_copy(nb::handle object) {
  ensure_numpy();
  return Copier().copy_or_same(object.ptr());
}

}  // namespace shoal::python
