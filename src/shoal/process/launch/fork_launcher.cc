#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "shoal/os/process/making_process.h"
#include "shoal/process/boot/become_worker.h"
#include "shoal/process/boot/environment.h"
#include "shoal/process/launch/launchers.h"
#include "shoal/process/self/fork_hazards.h"
#include "shoal/process/supervise/parent_watch.h"
#include "shoal/process/supervise/worker_handle.h"

namespace shoal::process {
namespace {

/// Throws ForkRefused naming every cause.
void refuse_hazards(const LaunchOptions& options) {
  if (options.allow_unsafe_fork) return;
  const auto hazards = fork_hazards();
  if (hazards.empty()) return;
  throw ForkRefused(
      fmt::format("start method 'fork' is not safe in this process:\n  - {}\nUse 'auto' (or "
                  "'forkserver', 'spawn'), which start "
                  "from a fresh process, or allow_unsafe_fork to fork all the same.",
                  fmt::join(hazards, "\n  - ")));
}

class ForkLauncher final : public Launcher {
 public:
  explicit ForkLauncher(LaunchOptions options) : options_(std::move(options)) {
    if (!options_.fork_hooks) {
      throw InvalidArgument("start method 'fork' needs the entries of its children (fork_hooks)");
    }
    refuse_hazards(options_);
    supervisor_ = std::make_shared<Supervisor>(options_.relay_output, options_.on_worker_end);
  }

  ~ForkLauncher() override {
    if (!maker_.is_this()) os::abandon(std::move(supervisor_));
  }

  std::vector<std::unique_ptr<WorkerProcess>> start(std::vector<WorkerSpec> specs,
                                                    std::function<void(int)> on_exit,
                                                    const Greet& greet) override {
    maker_.require("this launcher");
    refuse_hazards(options_);
    require_descriptors(StartMethod::kFork, specs.size());
    const std::lock_guard lock(mutex_);
    std::vector<std::unique_ptr<WorkerProcess>> handles;
    for (WorkerSpec& spec : specs) {
      handles.push_back(
          start_one(std::move(spec), static_cast<int>(handles.size()), on_exit, handles));
      if (greet) greet(*handles.back());
    }
    return handles;
  }

  StartMethod method() const noexcept override { return StartMethod::kFork; }
  int zygote_pid() const noexcept override { return -1; }

 private:
  using Handles = std::vector<std::unique_ptr<WorkerProcess>>;

  std::unique_ptr<WorkerProcess> start_one(WorkerSpec spec, int position,
                                           const std::function<void(int)>& on_exit,
                                           const Handles& siblings) {
    WorkerContext context;
    context.name = spec.name;
    context.index = spec.index;
    context.first_env = spec.first_env;
    context.num_envs = spec.num_envs;
    context.hide_gpu = options_.hide_gpu;
    context.payload = std::exchange(spec.payload, {});
    auto [ours, theirs] = Channel::pair();
    context.channel = std::move(theirs);
    OutputPipe output = OutputPipe::create();
    OutputPipe errors = OutputPipe::create();
    const pid_t parent = ::getpid();

    const pid_t pid = fork_with_hooks();
    if (pid == 0) {
      for (const auto& sibling : siblings) sibling->channel().close();
      ours.close();
      output.read_end.reset();
      errors.read_end.reset();
      run_child(spec.entry, std::move(context), parent, std::move(output.write_end),
                std::move(errors.write_end));
    }
    auto record = std::make_shared<WorkerRecord>(std::move(spec), position, on_exit);
    record->set_running(pid, os::PidFd::open(pid));
    supervisor_->loop().call([&] {
      supervisor_->adopt(record, std::move(output.read_end), std::move(errors.read_end));
      supervisor_->watch_child(record);
    });
    return std::make_unique<WorkerHandle>(supervisor_, std::move(record), std::move(ours));
  }

  /// fork(), between the hooks; the child returns 0 before after_fork_child.
  pid_t fork_with_hooks() {
    std::fflush(stdout);  // or the child would write it once more
    std::fflush(stderr);
    const ForkHooks& hooks = *options_.fork_hooks;
    if (hooks.before_fork) hooks.before_fork();
    const pid_t pid = ::fork();
    const int error = errno;
    if (pid == 0) return 0;
    if (hooks.after_fork_parent) hooks.after_fork_parent();
    if (pid < 0) throw SystemError("fork a worker", error);
    return pid;
  }

  [[noreturn]] void run_child(const std::string& entry, WorkerContext context, pid_t parent,
                              os::Fd output, os::Fd errors) noexcept {
    try {
      std::signal(SIGTERM, SIG_DFL);
      redirect_output(std::move(output), std::move(errors));
      for (const auto& [name, value] : current_environment()) {
        if (is_launcher_variable(name)) ::unsetenv(name.c_str());
      }
      for (const auto& [name, value] :
           worker_settings(options_.threads, options_.hide_gpu, options_.environment)) {
        ::setenv(name.c_str(), value.c_str(), 1);
      }
      if (options_.fork_hooks->after_fork_child) options_.fork_hooks->after_fork_child();
      end_family_after_parent(parent);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s could not start: %s\n", context.name.c_str(), error.what());
      ::_exit(1);
    }
    become_worker(options_.fork_hooks->entries, entry, std::move(context));
  }

  const os::MakingProcess maker_;
  const LaunchOptions options_;
  std::shared_ptr<Supervisor> supervisor_;
  std::mutex mutex_;
};

}  // namespace

std::unique_ptr<Launcher> make_fork_launcher(LaunchOptions options) {
  return std::make_unique<ForkLauncher>(std::move(options));
}

}  // namespace shoal::process
