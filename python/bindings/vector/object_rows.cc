#include "vector/object_rows.h"

#include <fmt/format.h>

#include <utility>

#include "shoal/os/error.h"
#include "vector/deep_copy.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

nb::object new_tuple(int size) {
  nb::object tuple = nb::steal(PyTuple_New(size));
  if (!tuple) throw nb::python_error();
  return tuple;
}

nb::object list_of(nb::handle objects) {
  nb::object list = nb::steal(PySequence_List(objects.ptr()));
  if (!list) throw nb::python_error();
  return list;
}

}  // namespace

ObjectRows::ObjectRows(int leaves, int rows)
    : leaves_(leaves),
      rows_(rows),
      objects_(static_cast<std::size_t>(leaves) * static_cast<std::size_t>(rows), nb::none()) {}

nb::object ObjectRows::row(int row) const {
  nb::object tuple = new_tuple(leaves_);
  for (int leaf = 0; leaf < leaves_; ++leaf)
    PyTuple_SET_ITEM(tuple.ptr(), leaf, nb::borrow(get(leaf, row)).release().ptr());
  return tuple;
}

void ObjectRows::set_row(int row, nb::handle objects) {
  const nb::object list = list_of(objects);
  if (PyList_GET_SIZE(list.ptr()) != leaves_) {
    throw InvalidArgument(
        fmt::format("a row of {} objects, not of {}", leaves_, PyList_GET_SIZE(list.ptr())));
  }
  for (int leaf = 0; leaf < leaves_; ++leaf)
    set(leaf, row, nb::borrow(PyList_GET_ITEM(list.ptr(), leaf)));
}

nb::object ObjectRows::column(int leaf) const {
  nb::object tuple = new_tuple(rows_);
  for (int row = 0; row < rows_; ++row)
    PyTuple_SET_ITEM(tuple.ptr(), row, nb::borrow(get(leaf, row)).release().ptr());
  return tuple;
}

void ObjectRows::set_column(int leaf, nb::handle objects) {
  const nb::object list = list_of(objects);
  if (PyList_GET_SIZE(list.ptr()) != rows_) {
    throw InvalidArgument(fmt::format("expected one for each of {} environments, got {} of them",
                                      rows_, PyList_GET_SIZE(list.ptr())));
  }
  for (int row = 0; row < rows_; ++row)
    set(leaf, row, nb::borrow(PyList_GET_ITEM(list.ptr(), row)));
}

ObjectRows ObjectRows::deep_copied() const {
  ObjectRows copy(leaves_, rows_);
  for (int row = 0; row < rows_; ++row) copy.set_row(row, deep_copy(this->row(row)));
  return copy;
}

int ObjectRows::traverse(visitproc visit, void* arg) const {
  for (const nb::object& object : objects_) Py_VISIT(object.ptr());
  return 0;
}

}  // namespace shoal::python
