#include "shoal/vector/testing/thread_launcher.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "shoal/process/error_report.h"

namespace shoal::vector::testing {
namespace {

class ThreadWorker final : public process::WorkerProcess {
 public:
  ThreadWorker(process::WorkerSpec spec, process::Entry entry, std::function<void()> on_exit)
      : spec_(std::move(spec)), on_exit_(std::move(on_exit)) {
    auto [ours, theirs] = process::Channel::pair();
    channel_ = std::move(ours);
    process::WorkerContext context{.name = spec_.name,
                                   .index = spec_.index,
                                   .first_env = spec_.first_env,
                                   .num_envs = spec_.num_envs,
                                   .payload = std::exchange(spec_.payload, {}),
                                   .channel = std::move(theirs)};
    thread_ = std::thread([this, entry = std::move(entry), context = std::move(context)]() mutable {
      run(entry, context);
    });
  }

  // Unlike a process, a thread cannot be killed: it has to come to its end.
  ~ThreadWorker() override {
    channel_.shutdown();
    thread_.join();
  }

  int pid() const noexcept override { return ::getpid(); }
  const process::WorkerSpec& spec() const noexcept override { return spec_; }
  process::Channel& channel() noexcept override { return channel_; }
  std::optional<process::ExitStatus> exit_status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  std::optional<process::ExitStatus> join(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, timeout, [this] { return status_.has_value(); });
    return status_;
  }
  void kill(int) noexcept override {}
  std::vector<std::string> log_tail() const override { return {}; }

 private:
  void run(const process::Entry& entry, process::WorkerContext& context) {
    int code = 1;
    try {
      code = entry(context);
    } catch (...) {
      static_cast<void>(
          context.channel.send(process::ErrorReport::from_current_exception().encode()));
    }
    context.channel.close();
    {
      const std::lock_guard lock(mutex_);
      status_ = process::ExitStatus{.code = code};
    }
    ended_.notify_all();
    on_exit_();
  }

  process::WorkerSpec spec_;
  std::function<void()> on_exit_;
  process::Channel channel_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<process::ExitStatus> status_;
  std::thread thread_;
};

}  // namespace

std::vector<std::unique_ptr<process::WorkerProcess>> ThreadLauncher::start(
    std::vector<process::WorkerSpec> specs, std::function<void(int index)> on_exit,
    const Greet& greet) {
  std::vector<std::unique_ptr<process::WorkerProcess>> workers;
  for (process::WorkerSpec& spec : specs) {
    const int position = static_cast<int>(workers.size());
    process::Entry entry = entries_.at(spec.entry);
    workers.push_back(std::make_unique<ThreadWorker>(std::move(spec), std::move(entry),
                                                     [on_exit, position] { on_exit(position); }));
    if (greet) greet(*workers.back());
  }
  return workers;
}

}  // namespace shoal::vector::testing
