// How samples of one Gymnasium space travel between Python objects and shared rows, worked out
// once.
//
//   CopyPlan plan(env.observation_space);
//   plan.store(observation, rows.obs, i);    // environment's return value -> row i of every leaf
//   nb::object action = plan.load(rows.actions, i);
//
// Leaves without an array of fixed size (Text, custom spaces, …) go into ObjectRows as they are.
// Whoever has such leaves (objects() says it) hands the table in as well; without it, samples of
// them are refused.
//
// A NumPy array of the leaf's own dtype and shape, the usual case, is one memcpy. Anything else
// that NumPy can read goes through np.asarray(value); a conversion that would change a value (0.5
// into uint8, 300 into uint8) is refused, float64 into float32 is not.
//
// Threads: a plan is not changed by its use; all calls need the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/shm/tensor.h"
#include "vector/object_rows.h"

namespace shoal::python {

class CopyPlan {
 public:
  CopyPlan() = default;

  /// Throws InvalidArgument for what is no Gymnasium space (spaces.h).
  explicit CopyPlan(nanobind::handle space);

  /// The number of leaves without arrays.
  int objects() const noexcept { return objects_; }

  /// Writes one sample into row `row`, its objects into row `object_row` of their own table. Throws
  /// InvalidArgument naming the leaf, what came and what the space says.
  void store(PyObject* sample, std::span<const shm::TensorView> leaves, std::int64_t row,
             ObjectRows* objects = nullptr, int object_row = 0) const {
    store_node(root_, sample, leaves, row, objects, object_row);
  }

  /// Row `row` as an object of its own: a NumPy scalar of the space's dtype where the shape is (),
  /// else a fresh array; dict and tuple of these.
  nanobind::object load(std::span<const shm::TensorView> leaves, std::int64_t row,
                        const ObjectRows* objects = nullptr, int object_row = 0) const {
    return load_node(root_, leaves, row, objects, object_row);
  }

  /// Writes a batch, one sample a row: arrays, or whatever NumPy makes arrays of; a dict or tuple
  /// of batches for Dict and Tuple; any iterable of samples where there are no arrays. Throws
  /// InvalidArgument for a wrong count, shape or value; TypeError for what is no batch at all.
  void store_batch(PyObject* batch, std::span<const shm::TensorView> leaves,
                   ObjectRows* objects = nullptr) const {
    store_batch_node(root_, batch, leaves, objects);
  }

  /// Whether `batch` is arrays of the rows' own dtypes and shapes: storing it changes no type.
  bool fits_batch(PyObject* batch, std::int64_t rows) const {
    return fits_batch_node(root_, batch, rows);
  }

  /// All rows in fresh arrays, and tuples of objects.
  nanobind::object load_batch(std::span<const shm::TensorView> leaves,
                              const ObjectRows* objects = nullptr) const;

  /// All rows as arrays over the rows themselves, which `owner` keeps alive, and tuples of objects.
  nanobind::object view_batch(std::span<const shm::TensorView> leaves, nanobind::handle owner,
                              const ObjectRows* objects = nullptr) const;

 private:
  enum class Kind : std::uint8_t { kLeaf, kObject, kDict, kTuple };

  struct Node {
    Kind kind = Kind::kLeaf;
    int leaf = 0;  // index among the leaves of its kind, depth first
    std::string path;
    shm::TensorSpec spec;
    int type = 0;  // NumPy's
    std::size_t bytes = 0;
    nanobind::object dtype;
    std::vector<nanobind::object> keys;
    std::vector<Node> children;
    std::int64_t first_scalar = 0;          // Discrete:
    std::vector<nanobind::object> scalars;  // its values as NumPy scalars, where they are few
  };

  Node make_node(nanobind::handle space, const std::string& path, int& leaves);
  static void add_scalars(Node& node, nanobind::handle space);
  static bool fits(const Node& node, PyObject* value, std::int64_t rows);
  static bool fits_batch_node(const Node& node, PyObject* batch, std::int64_t rows);

  static void store_node(const Node& node, PyObject* sample,
                         std::span<const shm::TensorView> leaves, std::int64_t row,
                         ObjectRows* objects, int object_row);
  static nanobind::object load_node(const Node& node, std::span<const shm::TensorView> leaves,
                                    std::int64_t row, const ObjectRows* objects, int object_row);
  static void store_batch_node(const Node& node, PyObject* batch,
                               std::span<const shm::TensorView> leaves, ObjectRows* objects);
  static void store_object_column(const Node& node, PyObject* batch, ObjectRows* objects);
  static void convert(const Node& node, PyObject* value, std::int64_t rows, std::byte* out);
  static nanobind::object child_of(const Node& node, std::size_t i, PyObject* sample);

  template <class MakeLeaf>
  static nanobind::object assemble(const Node& node, const MakeLeaf& make_leaf);

  Node root_;
  int objects_ = 0;
};

}  // namespace shoal::python
