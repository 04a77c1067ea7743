// A launcher whose workers are threads of this process: the same bodies, where a debugger and
// ThreadSanitizer see them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "shoal/process/launcher.h"

namespace shoal::vector::testing {

class ThreadLauncher final : public process::Launcher {
 public:
  explicit ThreadLauncher(process::EntryTable entries) : entries_(std::move(entries)) {}

  std::vector<std::unique_ptr<process::WorkerProcess>> start(std::vector<process::WorkerSpec> specs,
                                                             std::function<void(int index)> on_exit,
                                                             const Greet& greet) override;
  process::StartMethod method() const noexcept override { return process::StartMethod::kFork; }
  int zygote_pid() const noexcept override { return -1; }

 private:
  process::EntryTable entries_;
};

}  // namespace shoal::vector::testing
