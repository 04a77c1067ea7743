#include <mutex>
#include <utility>

#include "shoal/process/launchers.h"
#include "shoal/process/worker_handle.h"
#include "shoal/process/zygote_client.h"

namespace shoal::process {
namespace {

/// What lives as long as the launcher or one of its workers does. The zygote goes before the
/// supervisor.
struct ZygoteGroup {
  std::shared_ptr<Supervisor> supervisor;
  std::shared_ptr<ZygoteClient> zygote;
};

class ZygoteLauncher final : public Launcher {
 public:
  explicit ZygoteLauncher(LaunchOptions options)
      : options_(std::move(options)),
        environment_(clean_environment(current_environment(), options_.threads, options_.hide_gpu,
                                       options_.environment)),
        supervisor_(std::make_shared<Supervisor>(options_.relay_output)) {
    start_zygote();
  }

  ~ZygoteLauncher() override {
    if (!owner_.is_this_process()) {
      static_cast<void>(new std::shared_ptr(std::move(group_)));
      static_cast<void>(new std::shared_ptr(std::move(supervisor_)));
    }
  }

  std::vector<std::unique_ptr<WorkerProcess>> start(std::vector<WorkerSpec> specs,
                                                    std::function<void(int)> on_exit) override {
    owner_.require("this launcher");
    const std::lock_guard lock(mutex_);
    const os::Deadline deadline = os::deadline_after(options_.start_timeout);
    if (!group_->zygote->usable()) start_zygote();
    std::vector<PendingWorker> pending;
    std::vector<std::unique_ptr<WorkerProcess>> handles;
    for (WorkerSpec& spec : specs) {
      handles.push_back(
          prepare(std::move(spec), static_cast<int>(handles.size()), on_exit, pending));
    }
    try {
      group_->zygote->wait_ready(deadline);
    } catch (...) {
      for (const PendingWorker& worker : pending) {
        worker.record->set_failed(std::current_exception());
      }
      throw;
    }
    group_->zygote->start_workers(pending, deadline);
    for (const PendingWorker& worker : pending) {
      if (!worker.record->wait_running(deadline)) {
        throw TimedOut(worker.start.name + " was not forked in time (start_timeout)");
      }
    }
    return handles;
  }

  StartMethod method() const noexcept override { return StartMethod::kForkserver; }

  int zygote_pid() const noexcept override {
    const std::lock_guard lock(mutex_);
    return group_->zygote->pid();
  }

 private:
  void start_zygote() {
    auto group = std::make_shared<ZygoteGroup>();
    group->supervisor = supervisor_;
    group->zygote = std::make_shared<ZygoteClient>(supervisor_);
    group->zygote->launch(options_, environment_);
    group_ = std::move(group);
  }

  std::unique_ptr<WorkerProcess> prepare(WorkerSpec spec, int position,
                                         const std::function<void(int)>& on_exit,
                                         std::vector<PendingWorker>& pending) const {
    PendingWorker worker;
    worker.start = {.index = spec.index,
                    .first_env = spec.first_env,
                    .num_envs = spec.num_envs,
                    .name = spec.name,
                    .entry = spec.entry,
                    .payload = std::exchange(spec.payload, {})};
    worker.record = std::make_shared<WorkerRecord>(std::move(spec), position, on_exit);
    auto [ours, theirs] = os::SeqPacket::pair();
    worker.channel = std::move(theirs);
    worker.output = OutputPipe::create();
    worker.errors = OutputPipe::create();
    auto handle = std::make_unique<WorkerHandle>(group_, worker.record, std::move(ours));
    pending.push_back(std::move(worker));
    return handle;
  }

  const Owner owner_;
  const LaunchOptions options_;
  const Environment environment_;
  std::shared_ptr<Supervisor> supervisor_;
  mutable std::mutex mutex_;
  std::shared_ptr<ZygoteGroup> group_;
};

}  // namespace

std::unique_ptr<Launcher> make_zygote_launcher(LaunchOptions options) {
  return std::make_unique<ZygoteLauncher>(std::move(options));
}

}  // namespace shoal::process
