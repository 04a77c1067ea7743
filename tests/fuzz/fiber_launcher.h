// A launcher whose workers are fibers of this thread. A worker runs when its parent looks for a message of its, or is
// told to, until it waits itself. So nobody ever waits: what has not come by then does not come.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fiber.h"
#include "shoal/os/memory/mapping.h"
#include "shoal/process/launcher.h"

namespace shoal::fuzz {

/// A resource. Its workers are of vector environments (vector/worker_program), kMostWorkers at a time, and gone before it goes.
///
/// Threads: one.
class FiberLauncher final : public process::Launcher {
 public:
  static constexpr std::size_t kMostWorkers = 2;

  FiberLauncher();
  ~FiberLauncher() override;

  std::vector<std::unique_ptr<process::WorkerProcess>> start(std::vector<process::WorkerSpec> specs,
                                                             std::function<void(int index)> on_exit,
                                                             const Greet& greet) override;
  process::StartMethod method() const noexcept override { return process::StartMethod::kFork; }
  int zygote_pid() const noexcept override { return -1; }

  /// Each does what there is to do for it.
  void run_workers();
  /// Sends a message in the name of a worker that runs.
  void say(std::size_t worker, std::span<const std::byte> bytes);
  /// Of the descriptor that was sent to a worker last: the memory that it shares with its parent.
  os::Mapping shared_with(std::size_t worker);

 private:
  class Worker;
  void forget(const Worker* worker);

  std::array<Fiber, kMostWorkers> fibers_;
  std::array<Worker*, kMostWorkers> workers_{};
};

}  // namespace shoal::fuzz
