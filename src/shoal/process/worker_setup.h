// What a native worker does to itself before it builds anything.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shoal/process/codec.h"
#include "shoal/process/gpu_lease.h"

namespace shoal::process {

/// Travels in a worker's payload; a value.
struct WorkerSetup {
  /// Of these, as CUDA_VISIBLE_DEVICES names them, the worker leases one; empty: none.
  std::vector<std::string> gpus;
  /// Whether the worker may start processes of its own.
  bool nested = true;

  void write(ByteWriter& payload) const;
  static WorkerSetup read(ByteReader& payload);

  /// In the worker, while it has one thread. From here on CUDA_VISIBLE_DEVICES shows the leased GPU
  /// alone, for as long as the process lives if the caller keeps the lease for so long; and without
  /// `nested` the kernel refuses new processes.
  [[nodiscard]] std::optional<GpuLease> carry_out() const;
};

}  // namespace shoal::process
