// Pickles of trees of builtins, tensors and arrays, written without asking Python about each part.
#pragma once

#include <nanobind/nanobind.h>

namespace shoal::python {

/// A tree as a pickle, or None; the blocks that it names are appended to `blocks`, also in the
/// latter case.
nanobind::object pickle_tree(nanobind::handle object, nanobind::list blocks);

/// ipc.pickle_tree(obj, blocks) and ipc.add_packer(type, packer, module, name).
///
/// pickle_tree() returns a pickle of protocol 5 that any unpickler reads, or None when something in
/// the tree is of another type than None, bool, int (64 bits), float, str, bytes, tuple, list, dict
/// and those with a packer, exactly; or when the tree is deep or large. A list, dict or packed
/// object that is in the tree twice is one object again.
void bind_tree_pickle(nanobind::module_& module);

}  // namespace shoal::python
