// NumPy arrays as the few bytes that cross to another process: where in the heap their elements
// lie, or the elements themselves when they are few.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string_view>

#include "objects/packed.h"
#include "shoal/ipc/heap/block.h"

namespace shoal::python {

/// None for an array of Python objects, or of what NumPy keeps elsewhere. Elements that lie in the
/// heap stay where they are; others are copied, from kInlineArrayBytes on into a new block. Throws
/// OutOfMemory. Needs the GIL; a long copy gives it back.
std::optional<Packed> pack_array(nanobind::handle array);

/// A fresh array for elements that came inline, else one over the block. `dtype` is used when the
/// array's is not one of NumPy's plain native ones. Throws Error for another family's heap, and
/// InvalidArgument for what pack_array() did not write.
nanobind::object unpack_array(std::string_view packed, nanobind::handle dtype);

/// Whether unpack_array() needs the dtype.
bool needs_dtype(nanobind::handle array);

/// Whether the elements lie in the heap.
bool is_shared_array(nanobind::handle array);

void bind_packed_arrays(nanobind::module_& module);

}  // namespace shoal::python
