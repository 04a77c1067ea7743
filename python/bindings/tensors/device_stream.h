// The stream on which torch queues work.
#pragma once

#include "shoal/shm/cuda/device.h"

namespace shoal::python {

/// To be called before current_stream(). Needs the GIL.
void find_streams();

/// The current stream of this thread on a CUDA device; the default stream of a torch without CUDA,
/// and when the process ends. Any thread, with or without the GIL.
shm::cuda::abi::Stream current_stream(int device) noexcept;

}  // namespace shoal::python
