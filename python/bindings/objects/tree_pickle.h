// Pickles of trees of builtins, tensors and arrays, written without asking Python about each part.
#pragma once

#include <nanobind/nanobind.h>

namespace shoal::python {

/// A tree as a pickle, or None; the blocks that it names are appended to `blocks`, also in the
/// latter case.
nanobind::object pickle_tree(nanobind::handle object, nanobind::list blocks);

/// ipc.pickle_tree(obj, blocks), which returns a pickle of protocol 5 that any unpickler reads, or
/// None for what is no is_packable_tree(). A list, dict or packed object that is in the tree twice
/// is one object again.
void bind_tree_pickle(nanobind::module_& module);

}  // namespace shoal::python
