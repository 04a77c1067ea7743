#include "shoal/process/identity/worker_setup.h"

#include <cstdint>
#include <cstdlib>

#include "shoal/os/process/no_new_processes.h"

namespace shoal::process {

void WorkerSetup::write(ByteWriter& payload) const {
  payload.number(static_cast<std::uint32_t>(gpus.size()));
  for (const std::string& gpu : gpus) payload.text(gpu);
  payload.number(static_cast<std::uint8_t>(nested));
}

WorkerSetup WorkerSetup::read(ByteReader& payload) {
  WorkerSetup setup;
  for (auto gpus = payload.number<std::uint32_t>(); gpus > 0; --gpus) {
    setup.gpus.push_back(payload.text());
  }
  setup.nested = payload.number<std::uint8_t>() != 0;
  return setup;
}

std::optional<GpuLease> WorkerSetup::carry_out() const {
  std::optional<GpuLease> lease;
  if (!gpus.empty()) {
    lease.emplace(GpuLease::take(gpus));
    ::setenv("CUDA_VISIBLE_DEVICES", lease->device().c_str(), 1);
  }
  if (!nested) os::forbid_new_processes();
  return lease;
}

}  // namespace shoal::process
