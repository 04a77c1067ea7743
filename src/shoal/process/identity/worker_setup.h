// How a native worker prepares its own process before it builds anything.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shoal/process/codec.h"
#include "shoal/process/identity/gpu_lease.h"

namespace shoal::process {

/// Travels in a worker's payload; a value.
struct WorkerSetup {
  /// The worker leases one of these GPUs, named as in CUDA_VISIBLE_DEVICES; empty: none.
  std::vector<std::string> gpus;
  /// Whether the worker may start processes of its own.
  bool nested = true;

  void write(ByteWriter& payload) const;
  static WorkerSetup read(ByteReader& payload);

  /// To be called in the worker, while it has one thread. From here on CUDA_VISIBLE_DEVICES shows
  /// the leased GPU alone; the caller keeps the lease for as long as it uses the GPU. Without
  /// `nested` the kernel refuses new processes.
  [[nodiscard]] std::optional<GpuLease> carry_out() const;
};

}  // namespace shoal::process
