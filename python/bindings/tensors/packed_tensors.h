// Tensors and storages as the few bytes that cross to another process: where in the heap the bytes
// lie, and how the tensor looks at them.
//
//   0 heap (64-bit id) | 8 block | 16 its serial | 24 start in the block | 32 bytes of the storage
//   40 dtype | 41 flags | 42 dimensions | 43 kind | 44… of a tensor: offset, sizes, strides (int64)
//   … on a device: block of the sender's mark in its stream, its serial (0: none)
//
// On a CUDA device the block is a DeviceRecord; without bytes, `start` is the device's number.
// The bytes are read by processes of the same family only, which run the same build.
//
// Threads: with the GIL, which may be given away.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string_view>

#include "objects/packed.h"

namespace shoal::python {

/// A Tensor or Parameter, whose storage moves into the heap, or crosses from its device. Nothing for
/// one that is more than a dense view of a storage, and where the storage can do neither, or is in
/// shared memory of torch. Throws TypeError for other objects.
std::optional<Packed> pack_tensor(nanobind::handle tensor);

/// The same; nothing, too, for what needs a look, a warning or an error: _reduce_tensor() of
/// shoal.ipc.tensors has it.
std::optional<Packed> pack_plain_tensor(nanobind::handle tensor);

/// An untyped storage on the CPU. Nothing where it cannot move into the heap.
std::optional<Packed> pack_storage(nanobind::handle storage);

/// Throw Error for another family's heap, and for what the above did not write.
nanobind::object unpack_tensor(std::string_view packed);
nanobind::object unpack_storage(std::string_view packed);

}  // namespace shoal::python
