#include "vector/copy_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "numpy_api.h"
#include "shoal/env/space.h"
#include "shoal/os/error.h"
#include "vector/spaces.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

static_assert(std::is_same_v<npy_intp, std::int64_t>, "shapes are handed to NumPy as they are");

constexpr std::int64_t kMaxCachedScalars = 1024;

std::string text(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

std::string repr_of(nb::handle object) { return nb::cast<std::string>(nb::repr(object)); }

std::string type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

std::string shape_text(std::span<const std::int64_t> shape) {
  return shape.size() == 1 ? fmt::format("({},)", shape[0])
                           : fmt::format("({})", fmt::join(shape.begin(), shape.end(), ", "));
}

PyArrayObject* as_array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

std::span<const std::int64_t> shape_of(PyArrayObject* array) {
  return {PyArray_DIMS(array), static_cast<std::size_t>(PyArray_NDIM(array))};
}

std::string what_came(PyArrayObject* array) {
  return fmt::format("{} of shape {}", text(reinterpret_cast<PyObject*>(PyArray_DESCR(array))),
                     shape_text(shape_of(array)));
}

std::int64_t read_integer(shm::DType dtype, const std::byte* at) {
  std::int64_t number = 0;
  shm::with_type_of(dtype, [&]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    number = static_cast<std::int64_t>(value);
  });
  return number;
}

/// Whether every element is the same number in `cast`, which was made of `given` by an unsafe cast.
bool same_numbers(nb::handle given, nb::handle cast) {
  nb::object same = nb::steal(PyObject_RichCompare(given.ptr(), cast.ptr(), Py_EQ));
  if (!same) throw nb::python_error();
  return nb::cast<bool>(nb::module_::import_("numpy").attr("all")(same).attr("__bool__")());
}

/// Whether an element of some floats is infinite: a look at their bits.
template <class Word>
bool any_infinite(const void* data, npy_intp count, Word exponent) {
  const auto* words = static_cast<const Word*>(data);
  constexpr Word kSign = Word{1} << (8 * sizeof(Word) - 1);
  return std::any_of(words, words + count, [&](Word word) { return (word & ~kSign) == exponent; });
}

/// Whether every finite element is finite in `cast`, which was rounded.
bool as_finite(nb::handle given, nb::handle cast) {
  PyArrayObject* const array = as_array(cast.ptr());
  const void* const data = PyArray_DATA(array);
  const npy_intp count = PyArray_SIZE(array);
  constexpr std::uint32_t kInfinity = 0x7f800000;
  constexpr std::uint16_t kHalfInfinity = 0x7c00;
  if (PyArray_ITEMSIZE(array) == 4 && !any_infinite(data, count, kInfinity)) return true;
  if (PyArray_ITEMSIZE(array) == 2 && !any_infinite(data, count, kHalfInfinity)) return true;
  const nb::object finite = nb::module_::import_("numpy").attr("isfinite");
  return same_numbers(finite(given), finite(cast));
}

/// Whether `cast`, of `dtype`, has what `given` has: the same numbers, where floats may be rounded.
bool holds(PyArrayObject* given, PyArray_Descr* dtype, nb::handle cast) {
  if (PyArray_CanCastArrayTo(given, dtype, NPY_SAFE_CASTING)) return true;
  const nb::handle array(reinterpret_cast<PyObject*>(given));
  if (dtype->kind != 'f' || !PyArray_CanCastArrayTo(given, dtype, NPY_SAME_KIND_CASTING)) {
    return same_numbers(array, cast);
  }
  return PyArray_DESCR(given)->kind != 'f' || as_finite(array, cast);
}

/// The table that a plan with objects needs.
template <class Table>
Table& table_of(Table* objects, const std::string& path) {
  if (objects != nullptr) return *objects;
  throw InvalidArgument(fmt::format(
      "samples{} have no arrays of fixed size, and this call takes arrays only; reset() and step() "
      "take them",
      path.empty() ? "" : " of '" + path + "'"));
}

/// np.asarray(value), with NumPy's complaint as ours.
nb::object natural_array(PyObject* value, const std::string& expected) {
  nb::object array = nb::steal(PyArray_FromAny(value, nullptr, 0, 0, 0, nullptr));
  if (array) return array;
  nb::python_error error;
  const bool unfit = error.matches(PyExc_TypeError) || error.matches(PyExc_ValueError) ||
                     error.matches(PyExc_OverflowError);
  if (!unfit) throw error;  // Ctrl-C, for one
  throw InvalidArgument(fmt::format("expected {}, got {}, of which NumPy says: {}", expected,
                                    type_name(value), text(error.value())));
}

}  // namespace

CopyPlan::CopyPlan(nb::handle space) {
  ensure_numpy();
  space_from_python(space);  // refuses what is no space
  int leaves = 0;
  root_ = make_node(space, "", leaves);
}

CopyPlan::Node CopyPlan::make_node(nb::handle space, const std::string& path, int& leaves) {
  const auto child_path = [&](const std::string& key) {
    return path.empty() ? key : path + "/" + key;
  };
  nb::module_ spaces = nb::module_::import_("gymnasium.spaces");
  Node node;
  node.path = path;
  if (nb::isinstance(space, spaces.attr("Dict"))) {
    node.kind = Kind::kDict;
    for (auto [key, subspace] : nb::cast<nb::dict>(space.attr("spaces"))) {
      node.keys.push_back(nb::borrow(key));
      node.children.push_back(make_node(subspace, child_path(text(key)), leaves));
    }
  } else if (nb::isinstance(space, spaces.attr("Tuple"))) {
    node.kind = Kind::kTuple;
    for (nb::handle subspace : space.attr("spaces")) {
      const std::string key = std::to_string(node.children.size());
      node.children.push_back(make_node(subspace, child_path(key), leaves));
    }
  } else if (const auto arrays = env::leaves(space_from_python(space)); arrays.empty()) {
    node.kind = Kind::kObject;
    node.leaf = objects_++;
  } else {
    node.leaf = leaves++;
    node.spec = arrays.front().spec;
    node.type = type_num(node.spec.dtype);
    node.bytes = node.spec.bytes();
    node.dtype = nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(node.type)));
    if (nb::isinstance(space, spaces.attr("Discrete"))) add_scalars(node, space);
  }
  return node;
}

void CopyPlan::add_scalars(Node& node, nb::handle space) {
  const auto n = nb::cast<std::int64_t>(nb::int_(space.attr("n")));
  if (n > kMaxCachedScalars) return;
  node.first_scalar = nb::cast<std::int64_t>(nb::int_(space.attr("start")));
  nb::object type = node.dtype.attr("type");
  for (std::int64_t i = 0; i < n; ++i) node.scalars.push_back(type(node.first_scalar + i));
}

/// True when `value` is an array whose bytes are those of the rows. `rows` is -1 for a single
/// sample.
bool CopyPlan::fits(const Node& node, PyObject* value, std::int64_t rows) {
  if (!PyArray_Check(value)) return false;
  PyArrayObject* array = as_array(value);
  if (PyArray_TYPE(array) != node.type || !PyArray_ISCARRAY_RO(array)) return false;
  const std::size_t batch_dims = rows < 0 ? 0 : 1;
  const auto shape = shape_of(array);
  if (shape.size() != node.spec.shape.size() + batch_dims) return false;
  if (rows >= 0 && shape[0] != rows) return false;
  for (std::size_t i = batch_dims; i < shape.size(); ++i) {
    if (shape[i] != node.spec.shape[i - batch_dims]) return false;
  }
  return true;
}

bool CopyPlan::fits_batch_node(const Node& node, PyObject* batch, std::int64_t rows) {
  switch (node.kind) {
    case Kind::kLeaf:
      return fits(node, batch, rows);
    case Kind::kObject:
      return false;
    case Kind::kDict:
      if (!PyDict_Check(batch) ||
          PyDict_GET_SIZE(batch) != static_cast<Py_ssize_t>(node.children.size())) {
        return false;
      }
      break;
    case Kind::kTuple:
      if (!PyTuple_Check(batch) ||
          PyTuple_GET_SIZE(batch) != static_cast<Py_ssize_t>(node.children.size())) {
        return false;
      }
      break;
  }
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    PyObject* child = node.kind == Kind::kDict
                          ? PyDict_GetItem(batch, node.keys[i].ptr())
                          : PyTuple_GET_ITEM(batch, static_cast<Py_ssize_t>(i));
    if (child == nullptr || !fits_batch_node(node.children[i], child, rows)) return false;
  }
  return true;
}

void CopyPlan::store_node(const Node& node, PyObject* sample,
                          std::span<const shm::TensorView> leaves, std::int64_t row,
                          ObjectRows* objects, int object_row) {
  if (node.kind == Kind::kObject) {
    table_of(objects, node.path).set(node.leaf, object_row, nb::borrow(sample));
    return;
  }
  if (node.kind != Kind::kLeaf) {
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      store_node(node.children[i], child_of(node, i, sample).ptr(), leaves, row, objects,
                 object_row);
    }
    return;
  }
  std::byte* out =
      leaves[static_cast<std::size_t>(node.leaf)].data + static_cast<std::size_t>(row) * node.bytes;
  if (fits(node, sample, -1)) {
    std::memcpy(out, PyArray_DATA(as_array(sample)), node.bytes);
  } else if (node.type == NPY_INT64 && PyArray_IsScalar(sample, Int64) && node.spec.shape.empty()) {
    const std::int64_t value = PyArrayScalar_VAL(sample, Int64);
    std::memcpy(out, &value, sizeof value);
  } else {
    convert(node, sample, -1, out);
  }
}

nb::object CopyPlan::load_node(const Node& node, std::span<const shm::TensorView> leaves,
                               std::int64_t row, const ObjectRows* objects, int object_row) {
  return assemble(node, [&](const Node& leaf) -> nb::object {
    if (leaf.kind == Kind::kObject) {
      return nb::borrow(table_of(objects, leaf.path).get(leaf.leaf, object_row));
    }
    const std::byte* in = leaves[static_cast<std::size_t>(leaf.leaf)].data +
                          static_cast<std::size_t>(row) * leaf.bytes;
    if (!leaf.spec.shape.empty()) {
      nb::object array = new_array(leaf.spec);
      std::memcpy(array_data(array), in, leaf.bytes);
      return array;
    }
    if (!leaf.scalars.empty()) {
      const std::int64_t i = read_integer(leaf.spec.dtype, in) - leaf.first_scalar;
      if (i >= 0 && i < static_cast<std::int64_t>(leaf.scalars.size())) {
        return leaf.scalars[static_cast<std::size_t>(i)];
      }
    }
    auto* dtype = reinterpret_cast<PyArray_Descr*>(leaf.dtype.ptr());
    return nb::steal(PyArray_Scalar(const_cast<std::byte*>(in), dtype, nullptr));
  });
}

void CopyPlan::store_batch_node(const Node& node, PyObject* batch,
                                std::span<const shm::TensorView> leaves, ObjectRows* objects) {
  if (node.kind == Kind::kObject) {
    store_object_column(node, batch, objects);
    return;
  }
  if (node.kind != Kind::kLeaf) {
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      store_batch_node(node.children[i], child_of(node, i, batch).ptr(), leaves, objects);
    }
    return;
  }
  const shm::TensorView& view = leaves[static_cast<std::size_t>(node.leaf)];
  if (fits(node, batch, view.rows)) {
    std::memcpy(view.data, PyArray_DATA(as_array(batch)),
                node.bytes * static_cast<std::size_t>(view.rows));
  } else if (PyIter_Check(batch)) {
    nb::object list = nb::steal(PySequence_List(batch));
    if (!list) throw nb::python_error();
    convert(node, list.ptr(), view.rows, view.data);
  } else {
    convert(node, batch, view.rows, view.data);
  }
}

void CopyPlan::store_object_column(const Node& node, PyObject* batch, ObjectRows* objects) {
  try {
    table_of(objects, node.path).set_column(node.leaf, batch);
  } catch (const InvalidArgument& error) {
    if (node.path.empty()) throw;
    throw InvalidArgument(fmt::format("for '{}' {}", node.path, error.what()));
  }
}

nb::object CopyPlan::load_batch(std::span<const shm::TensorView> leaves,
                                const ObjectRows* objects) const {
  return assemble(root_, [&](const Node& leaf) {
    if (leaf.kind == Kind::kObject) return table_of(objects, leaf.path).column(leaf.leaf);
    const shm::TensorView& view = leaves[static_cast<std::size_t>(leaf.leaf)];
    nb::object array = new_array(view.row, view.rows);
    std::memcpy(array_data(array), view.data, leaf.bytes * static_cast<std::size_t>(view.rows));
    return array;
  });
}

nb::object CopyPlan::view_batch(std::span<const shm::TensorView> leaves, nb::handle owner,
                                const ObjectRows* objects) const {
  return assemble(root_, [&](const Node& leaf) {
    if (leaf.kind == Kind::kObject) return table_of(objects, leaf.path).column(leaf.leaf);
    return array_view(leaves[static_cast<std::size_t>(leaf.leaf)], owner, true);
  });
}

/// The way of everything that is not already an array of the right kind. `rows` is -1 for a single
/// sample.
void CopyPlan::convert(const Node& node, PyObject* value, std::int64_t rows, std::byte* out) {
  std::string expected =
      fmt::format("{}{} of shape {}", node.path.empty() ? "" : "for '" + node.path + "' ",
                  text(node.dtype), shape_text(node.spec.shape));
  if (rows >= 0) {
    std::vector<std::int64_t> all = {rows};
    all.insert(all.end(), node.spec.shape.begin(), node.spec.shape.end());
    expected += fmt::format(" for each of {} environments, {} in all", rows, shape_text(all));
  }
  nb::object given = natural_array(value, expected);
  PyArrayObject* array = as_array(given.ptr());

  auto shape = shape_of(array);
  if (rows >= 0) {
    if (shape.empty()) {
      throw nb::type_error(
          fmt::format("expected {}, got one {}", expected, type_name(value)).c_str());
    }
    if (shape[0] != rows) {
      throw InvalidArgument(fmt::format("expected {}, got {} of them", expected, shape[0]));
    }
    shape = shape.subspan(1);
  }
  if (!std::equal(shape.begin(), shape.end(), node.spec.shape.begin(), node.spec.shape.end())) {
    throw InvalidArgument(fmt::format("expected {}, got {}", expected, what_came(array)));
  }

  auto* dtype = reinterpret_cast<PyArray_Descr*>(node.dtype.ptr());
  if (std::strchr("biufO", PyArray_DESCR(array)->kind) == nullptr) {
    throw InvalidArgument(fmt::format("expected {}, got {}", expected, what_came(array)));
  }
  Py_INCREF(dtype);  // PyArray_FromArray takes it
  nb::object cast =
      nb::steal(PyArray_FromArray(array, dtype, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
  if (!cast) {
    nb::python_error error;
    throw InvalidArgument(
        fmt::format("expected {}, got {}: {}", expected, what_came(array), text(error.value())));
  }
  if (!holds(array, dtype, cast)) {
    throw InvalidArgument(fmt::format("expected {}, got {} with values that {} cannot hold",
                                      expected, what_came(array), text(node.dtype)));
  }
  std::memcpy(out, array_data(cast), node.bytes * static_cast<std::size_t>(rows < 0 ? 1 : rows));
}

/// Element `i` of a dict or tuple sample.
nb::object CopyPlan::child_of(const Node& node, std::size_t i, PyObject* sample) {
  const std::string where = node.path.empty() ? "" : "for '" + node.path + "' ";
  if (node.kind == Kind::kDict) {
    nb::object item = nb::steal(PyObject_GetItem(sample, node.keys[i].ptr()));
    if (item) return item;
    PyErr_Clear();
    std::string keys;
    for (const nb::object& key : node.keys) keys += (keys.empty() ? "" : ", ") + repr_of(key);
    throw InvalidArgument(
        fmt::format("expected {}a dict with the keys {}, got {}{}", where, keys, type_name(sample),
                    PyDict_Check(sample) ? " without " + repr_of(node.keys[i]) : ""));
  }
  const auto size = static_cast<std::int64_t>(node.children.size());
  if (!PySequence_Check(sample) || PySequence_Size(sample) != size) {
    PyErr_Clear();
    throw InvalidArgument(fmt::format("expected {}a tuple of {}, got {}", where, size,
                                      PyTuple_Check(sample)
                                          ? fmt::format("one of {}", PyTuple_GET_SIZE(sample))
                                          : type_name(sample)));
  }
  nb::object item = nb::steal(PySequence_GetItem(sample, static_cast<Py_ssize_t>(i)));
  if (!item) throw nb::python_error();
  return item;
}

template <class MakeLeaf>
nb::object CopyPlan::assemble(const Node& node, const MakeLeaf& make_leaf) {
  if (node.kind == Kind::kLeaf || node.kind == Kind::kObject) {
    nb::object leaf = make_leaf(node);
    if (!leaf) throw nb::python_error();
    return leaf;
  }
  if (node.kind == Kind::kDict) {
    nb::dict dict;
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      dict[node.keys[i]] = assemble(node.children[i], make_leaf);
    }
    return dict;
  }
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(node.children.size())));
  if (!tuple) throw nb::python_error();
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i),
                     assemble(node.children[i], make_leaf).release().ptr());
  }
  return tuple;
}

}  // namespace shoal::python
