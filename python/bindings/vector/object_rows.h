// Samples of the leaves of a space that have no array of fixed size (Text, Sequence, Graph, OneOf,
// custom spaces): Python objects, one for each such leaf and environment, beside the shared rows.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

namespace shoal::python {

/// A table of objects. All start as None.
///
/// Threads: those with the GIL.
class ObjectRows {
 public:
  ObjectRows() = default;
  ObjectRows(int leaves, int rows);

  nanobind::handle get(int leaf, int row) const { return objects_[index(leaf, row)]; }
  void set(int leaf, int row, nanobind::object object) {
    objects_[index(leaf, row)] = std::move(object);
  }

  /// A tuple of the objects of one row, one a leaf.
  nanobind::object row(int row) const;
  /// Takes such a tuple. Throws InvalidArgument when it has another size.
  void set_row(int row, nanobind::handle objects);

  /// A tuple of one leaf's objects, one a row.
  nanobind::object column(int leaf) const;
  /// Takes an iterable of as many objects as there are rows. Throws InvalidArgument for another
  /// number; changes nothing then.
  void set_column(int leaf, nanobind::handle objects);

  /// A table of copies that share nothing with these objects.
  ObjectRows deep_copied() const;

  /// What a garbage collector must know.
  int traverse(visitproc visit, void* arg) const;

 private:
  std::size_t index(int leaf, int row) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(leaves_) +
           static_cast<std::size_t>(leaf);
  }

  int leaves_ = 0;
  int rows_ = 0;
  std::vector<nanobind::object> objects_;
};

}  // namespace shoal::python
