// Tensors and storages as the few bytes that cross to another process: where in the heap the bytes
// lie, and how the tensor looks at them.
//
//   0 heap (64-bit id) | 8 block | 16 its serial | 24 start in the block | 32 bytes of the storage
//   40 dtype | 41 flags | 42 dimensions | 43 kind | 44… of a tensor: offset, sizes, strides (int64)
//   … on a device: block of the sender's mark in its stream, its serial (0: none)
//
// On a CUDA device the block is a DeviceRecord; without bytes, `start` is the device's number.
// The bytes are read by processes of the same family only, which run the same build.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

#include "objects/packed.h"
#include "tensors/torch_storage.h"

namespace shoal::python {

struct Unpacked {
  at::Tensor tensor;  // does not require a gradient yet
  bool requires_grad;
  bool parameter;
};

/// Whether pack() takes it: dense, on the CPU or a CUDA device, of no subclass with a dispatch of
/// its own, and not in the shared memory of torch itself.
bool is_plain(const at::Tensor& tensor);

/// Moves the tensor's storage into the heap, or has it cross from its device; nothing where that
/// cannot be done. Throws InvalidArgument for a non-leaf that requires a gradient.
std::optional<Packed> pack(const at::Tensor& tensor, bool parameter);
Packed pack(c10::StorageImpl& storage);

/// Whether these bytes are of a tensor on a device.
bool is_on_device(std::string_view packed);

/// Throws Error for another family's heap, and for what pack() did not write.
Unpacked unpack(std::string_view packed);
c10::intrusive_ptr<c10::StorageImpl> unpack_storage_of(std::string_view packed);

}  // namespace shoal::python
