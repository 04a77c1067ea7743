// A block that a message names.
#pragma once

#include <cstdint>

#include "shoal/ipc/heap/block.h"
#include "shoal/os/error.h"

namespace shoal::python {

/// Throws Error when the message is of another family, or nobody held the block any more.
inline ipc::Block acquire_block(std::uint64_t heap, ipc::Offset block, std::uint64_t serial) {
  if (!ipc::Heap::exists() || ipc::Heap::here()->id() != heap) {
    throw Error(
        "the message names memory of another family of processes than this one: start this process "
        "with shoal.multiprocessing in the one that sends, or send what has no tensors or arrays");
  }
  return ipc::Block::acquire(block, serial);
}

}  // namespace shoal::python
