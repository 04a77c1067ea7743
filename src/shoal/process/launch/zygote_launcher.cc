#include <algorithm>
#include <csignal>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/process/making_process.h"
#include "shoal/process/launch/launchers.h"
#include "shoal/process/supervise/worker_handle.h"
#include "shoal/process/zygote/zygote_group.h"

namespace shoal::process {
namespace {

class ZygoteLauncher final : public Launcher {
 public:
  explicit ZygoteLauncher(LaunchOptions options)
      : options_(std::move(options)),
        environment_(clean_environment(current_environment(), options_.threads, options_.hide_gpu,
                                       options_.environment)),
        supervisor_(std::make_shared<Supervisor>(options_.relay_output, options_.on_worker_end)) {
    start_zygote();
  }

  void begin(std::vector<std::string> preload, std::vector<std::byte> bootstrap) override {
    maker_.require("this launcher");
    const std::lock_guard lock(mutex_);
    if (!options_.ahead) return Launcher::begin({}, {});
    options_.ahead = false;
    options_.preload = std::move(preload);
    options_.bootstrap = std::move(bootstrap);
    group_->begin(options_);
  }

  ~ZygoteLauncher() override {
    if (!maker_.is_this()) {
      static_cast<void>(new std::shared_ptr(std::move(group_)));
      os::abandon(std::move(supervisor_));
    }
  }

  std::vector<std::unique_ptr<WorkerProcess>> start(std::vector<WorkerSpec> specs,
                                                    std::function<void(int)> on_exit,
                                                    const Greet& greet) override {
    maker_.require("this launcher");
    const std::lock_guard lock(mutex_);
    const os::Deadline deadline = os::deadline_after(options_.start_timeout);
    if (options_.ahead) {
      throw InvalidState("this launcher was started ahead of time and has not begun: call begin()");
    }
    // Waits for the zygote, unless ready_by() has done so.
    const auto due = std::exchange(due_, std::nullopt);
    if (!due && !group_->usable()) start_zygote();
    const Hold hold = hold_zygote();
    group_->wait_ready(std::min(deadline, due.value_or(deadline)));
    std::vector<PendingWorker> pending = prepare(std::move(specs), on_exit, deadline);
    std::vector<std::unique_ptr<WorkerProcess>> handles;
    for (const PendingWorker& worker : pending) {
      handles.push_back(std::make_unique<WorkerHandle>(
          group_, worker.record, Channel(std::make_unique<MultiplexedCarrier>(worker.peer))));
    }
    try {
      request(pending, handles, greet, deadline);
    } catch (...) {
      for (const auto& handle : handles) handle->kill(SIGKILL);  // all at once, not one by one
      throw;
    }
    return handles;
  }

  bool ready_by(os::Deadline until) override {
    maker_.require("this launcher");
    const std::lock_guard lock(mutex_);
    if (options_.ahead) return true;
    if (!group_->usable()) {
      if (due_) return true;
      try {
        start_zygote();
      } catch (const Error&) {
        return true;  // start() tries again, and says why
      }
    }
    group_->touch();
    if (!due_) due_ = os::deadline_after(options_.start_timeout);
    if (!group_->decided_by(std::min(until, *due_))) return os::Clock::now() >= *due_;
    if (group_->usable()) due_.reset();
    return true;
  }

  StartMethod method() const noexcept override { return StartMethod::kForkserver; }

  int zygote_pid() const noexcept override {
    const std::lock_guard lock(mutex_);
    return group_->pid();
  }

 private:
  struct Release {
    void operator()(ZygoteGroup* group) const noexcept { group->release(); }
  };
  using Hold = std::unique_ptr<ZygoteGroup, Release>;

  /// Until the workers that are being started are known to their zygote.
  Hold hold_zygote() {
    while (!group_->hold()) start_zygote();  // it was idle, and ends
    return Hold(group_.get());
  }

  void start_zygote() {
    auto group = std::make_shared<ZygoteGroup>(supervisor_, options_.zygotes);
    group->launch(options_, environment_);
    if (!options_.ahead) group->begin(options_);
    group_ = std::move(group);
  }

  std::vector<PendingWorker> prepare(std::vector<WorkerSpec> specs,
                                     const std::function<void(int)>& on_exit,
                                     os::Deadline deadline) {
    const auto reserved = group_->reserve(specs.size(), deadline);
    std::vector<PendingWorker> pending;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      WorkerSpec& spec = specs[i];
      PendingWorker worker{
          .link = reserved[i].link, .record = {}, .peer = reserved[i].peer, .start = {}};
      worker.start = {.index = spec.index,
                      .first_env = spec.first_env,
                      .num_envs = spec.num_envs,
                      .slot = worker.peer->slot(),
                      .name = spec.name,
                      .entry = spec.entry,
                      .payload = std::exchange(spec.payload, {})};
      worker.record = std::make_shared<WorkerRecord>(std::move(spec), static_cast<int>(i), on_exit);
      pending.push_back(std::move(worker));
    }
    supervisor_->loop().call([&] {
      for (const PendingWorker& worker : pending) worker.link->expect(worker);
    });
    return pending;
  }

  using Handles = std::vector<std::unique_ptr<WorkerProcess>>;

  /// Asks for all of them, greets each as soon as it exists, and waits until all exist.
  void request(std::span<const PendingWorker> pending, const Handles& handles, const Greet& greet,
               os::Deadline deadline) {
    std::size_t running = 0;
    const auto greet_next = [&](os::Deadline until) {
      if (!pending[running].record->wait_running(until)) return false;
      if (greet) greet(*handles[running]);
      ++running;
      return true;
    };
    std::size_t asked = 0;
    try {
      while (asked < pending.size()) {
        pending[asked].link->start_worker(pending[asked], deadline);
        ++asked;
        while (running < asked && greet_next(os::Clock::now())) continue;
      }
    } catch (...) {
      give_up(pending.subspan(asked), std::current_exception());
      throw;
    }
    while (running < pending.size()) {
      if (greet_next(deadline)) continue;
      throw TimedOut(pending[running].start.name + " was not forked in time (start_timeout)");
    }
  }

  void give_up(std::span<const PendingWorker> pending, const std::exception_ptr& error) {
    supervisor_->loop().call([&] {
      for (const PendingWorker& worker : pending) worker.link->give_up(worker, error);
    });
  }

  const os::MakingProcess maker_;
  LaunchOptions options_;  // changed by begin() alone
  const Environment environment_;
  std::shared_ptr<Supervisor> supervisor_;
  mutable std::mutex mutex_;
  std::optional<os::Deadline> due_;     // of a zygote that ready_by() waits for
  std::shared_ptr<ZygoteGroup> group_;  // goes before the supervisor
};

}  // namespace

std::unique_ptr<Launcher> make_zygote_launcher(LaunchOptions options) {
  return std::make_unique<ZygoteLauncher>(std::move(options));
}

}  // namespace shoal::process
