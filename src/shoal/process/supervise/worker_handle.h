// The WorkerProcess that launchers give out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shoal/os/process/making_process.h"
#include "shoal/process/launcher.h"
#include "shoal/process/supervise/supervisor.h"
#include "shoal/process/supervise/worker_record.h"

namespace shoal::process {

/// Keeps alive the supervisor, and whatever else the worker needs. A resource.
/// Threads, processes, death: as WorkerProcess (launcher.h).
/// Fork: the copy in a forked child does nothing.
class WorkerHandle final : public WorkerProcess {
 public:
  WorkerHandle(std::shared_ptr<void> keep_alive, std::shared_ptr<WorkerRecord> record,
               Channel channel)
      : keep_alive_(std::move(keep_alive)),
        record_(std::move(record)),
        channel_(std::move(channel)) {}
  ~WorkerHandle() override;

  int pid() const noexcept override { return record_->pid(); }
  const WorkerSpec& spec() const noexcept override { return record_->spec(); }
  Channel& channel() noexcept override { return channel_; }
  std::optional<ExitStatus> exit_status() const override { return record_->exit_status(); }
  std::optional<ExitStatus> join(std::chrono::milliseconds timeout) override;
  void kill(int signal) noexcept override;
  std::vector<std::string> log_tail() const override { return record_->tail().lines(); }

 private:
  const os::MakingProcess maker_;
  std::shared_ptr<void> keep_alive_;
  std::shared_ptr<WorkerRecord> record_;
  Channel channel_;
};

}  // namespace shoal::process
