// The WorkerProcess that launchers give out.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "shoal/process/launcher.h"
#include "shoal/process/supervise/supervisor.h"
#include "shoal/process/supervise/worker_record.h"

namespace shoal::process {

/// Remembers which process made an object: in another one, the object is a forked child's copy. A
/// value.
/// Threads: any.
/// Processes, death: it names the process that made it, and ends with it.
class Owner {
 public:
  Owner() noexcept;
  bool is_this_process() const noexcept;
  /// Throws InvalidState naming `what` in a forked child.
  void require(const std::string& what) const;

 private:
  pid_t pid_;
};

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
  const Owner owner_;
  std::shared_ptr<void> keep_alive_;
  std::shared_ptr<WorkerRecord> record_;
  Channel channel_;
};

}  // namespace shoal::process
