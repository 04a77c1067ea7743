// Whether this process uses a GPU. A worker that must not use one checks itself.
#pragma once

#include <optional>
#include <string>

namespace shoal::process {

/// Whether the CUDA driver is loaded and initialised in this process. Initialises nothing.
bool cuda_initialised();

/// What shows that this process uses a GPU: an initialised CUDA driver that sees a device, or an
/// open compute device (/dev/nvidia*, /dev/kfd). Nothing when it uses none.
std::optional<std::string> gpu_in_use();

}  // namespace shoal::process
