#include "fiber_launcher.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "shoal/env/plugin.h"
#include "shoal/os/error.h"
#include "shoal/process/codec.h"
#include "shoal/process/error_report.h"
#include "shoal/process/identity/welcome.h"
#include "shoal/process/identity/worker_setup.h"
#include "shoal/vector/native/native_stepper.h"
#include "shoal/vector/sync/control_block.h"
#include "shoal/vector/worker_program/native_worker.h"
#include "shoal/vector/worker_program/pool_worker.h"
#include "shoal/vector/workers/pool_door.h"
#include "shoal/vector/workers/pool_messages.h"

namespace shoal::fuzz {
namespace {

using process::Channel;

os::Fd copy_of(int fd) { return os::Fd(::dup(fd)); }

/// Instead of waiting it calls `let_others_run`, and looks again, for as long as that returns true.
class Cooperative final : public Channel::Carrier {
 public:
  Cooperative(Channel channel, std::function<bool()> let_others_run)
      : channel_(std::move(channel)), let_others_run_(std::move(let_others_run)) {}

  os::SendOutcome send(std::span<const std::byte> bytes, std::span<const int> fds,
                       os::Deadline) override {
    for (;;) {
      const os::SendOutcome outcome = channel_.send(bytes, fds, os::Clock::now());
      if (outcome != os::SendOutcome::kTimedOut || !let_others_run_()) return outcome;
    }
  }
  os::RecvOutcome recv(os::Message& message, os::Deadline) override {
    for (;;) {
      const os::RecvOutcome outcome = channel_.recv(message, os::Clock::now());
      if (outcome != os::RecvOutcome::kTimedOut || !let_others_run_()) return outcome;
    }
  }
  bool hung_up() const override { return channel_.hung_up(); }
  void shutdown() noexcept override { channel_.shutdown(); }

 private:
  Channel channel_;
  const std::function<bool()> let_others_run_;
};

}  // namespace

class FiberLauncher::Worker final : public process::WorkerProcess {
 public:
  Worker(FiberLauncher& launcher, Fiber& fiber, process::WorkerSpec spec,
         std::function<void()> on_exit)
      : launcher_(launcher), fiber_(fiber), spec_(std::move(spec)), on_exit_(std::move(on_exit)) {
    auto [ours, theirs] = Channel::pair();
    channel_ = Channel(std::make_unique<Tapped>(*this, std::move(ours)));
    context_.name = spec_.name;
    context_.index = spec_.index;
    context_.first_env = spec_.first_env;
    context_.num_envs = spec_.num_envs;
    context_.payload = std::exchange(spec_.payload, {});
    context_.channel = Channel(std::make_unique<Cooperative>(std::move(theirs), [this] {
      fiber_.pause();
      return true;
    }));
    fiber_.give([this] { live(); });
  }
  ~Worker() override {
    channel_.shutdown();
    for (int tries = 0; !status_ && tries < 4; ++tries) {
      if (door_) door_->words().mail.fetch_add(1);
      run();
    }
    SHOAL_CHECK(status_, "a worker ends when its channel is shut");
    launcher_.forget(this);
  }

  void run() {
    // A worker that is rung for nothing looks around.
    if (door_) door_->ring();
    if (rounds_) rounds_->doorbell().ring();
    fiber_.resume();
  }
  void say(std::span<const std::byte> bytes) {
    static_cast<void>(context_.channel.send(bytes, {}, os::Clock::now()));
  }
  os::Mapping shared() const {
    return os::Mapping::map(os::Memfd::open(copy_of(sent_.get())), "what a worker shares");
  }

  int pid() const noexcept override { return ::getpid(); }
  const process::WorkerSpec& spec() const noexcept override { return spec_; }
  Channel& channel() noexcept override { return channel_; }
  std::optional<process::ExitStatus> exit_status() const override { return status_; }
  std::optional<process::ExitStatus> join(std::chrono::milliseconds) override {
    if (!status_) run();
    return status_;
  }
  void kill(int) noexcept override {}
  std::vector<std::string> log_tail() const override { return {}; }

 private:
  /// The parent's end, which sees what memory it sends.
  class Tapped final : public Channel::Carrier {
   public:
    Tapped(Worker& worker, Channel channel)
        : worker_(worker), inner_(std::move(channel), [this] { return worker_.run_once(); }) {}

    os::SendOutcome send(std::span<const std::byte> bytes, std::span<const int> fds,
                         os::Deadline deadline) override {
      if (fds.size() == 1) worker_.see(bytes, fds[0]);
      worker_.has_run_ = false;
      return inner_.send(bytes, fds, deadline);
    }
    os::RecvOutcome recv(os::Message& message, os::Deadline deadline) override {
      worker_.has_run_ = false;
      return inner_.recv(message, deadline);
    }
    bool hung_up() const override { return inner_.hung_up(); }
    void shutdown() noexcept override { inner_.shutdown(); }

   private:
    Worker& worker_;
    Cooperative inner_;
  };

  bool run_once() {
    if (std::exchange(has_run_, true)) return false;
    run();
    return true;
  }

  void see(std::span<const std::byte> bytes, int fd) {
    const vector::PoolMessage message = vector::PoolMessage::decode(bytes);
    if (message.kind == vector::PoolKind::kJoin) {
      has_rounds_ = message.flag;
      door_ = vector::PoolDoor::attach(shm::Arena::attach(copy_of(fd)));
      // With one CPU nobody spins.
      const_cast<vector::DoorHeader&>(door_->header()).cpus = 1;
    } else if (has_rounds_) {
      rounds_ = vector::ControlBlock::attach(shm::Arena::attach(copy_of(fd)));
    }
    sent_ = copy_of(fd);
  }

  void live() {
    int code = 1;
    try {
      code = work();
    } catch (...) {
      static_cast<void>(
          context_.channel.send(process::ErrorReport::from_current_exception().encode()));
    }
    context_.channel.close();
    status_ = process::ExitStatus{.code = code};
    on_exit_();
  }

  /// As vector::native_pool_entry(), but it pauses where that parks.
  int work() {
    const auto identity = process::receive_welcome(context_);
    if (!identity) return 0;
    process::become(identity);
    process::ByteReader payload(context_.payload);
    const auto gpu = process::WorkerSetup::read(payload).carry_out();
    for (auto plugins = payload.number<std::uint32_t>(); plugins > 0; --plugins) {
      env::load_plugin(payload.text());
    }
    const std::vector<std::byte> own = payload.bytes();
    const auto open = [&own](std::span<const std::byte> session, int, int count) {
      return vector::PoolWorkerHooks::Opened{
          std::make_unique<vector::NativeStepper>(
              vector::native_pool_batch(session.empty() ? std::span(own) : session, count)),
          {},
          {}};
    };
    // First it parks for its first message, where its channel pauses.
    const auto before_park = [this, has_joined = false]() mutable {
      if (std::exchange(has_joined, true)) fiber_.pause();
    };
    vector::run_pool_worker(
        context_.channel, *identity,
        {.open = open, .describe_opening = {}, .before_park = before_park, .after_park = {}});
    return 0;
  }

  FiberLauncher& launcher_;
  Fiber& fiber_;
  process::WorkerSpec spec_;
  const std::function<void()> on_exit_;
  Channel channel_;
  process::WorkerContext context_;  // the fiber's
  bool has_run_ = false;            // in the call of its parent that is under way
  bool has_rounds_ = false;
  std::optional<vector::PoolDoor> door_;
  std::optional<vector::ControlBlock> rounds_;
  os::Fd sent_;
  std::optional<process::ExitStatus> status_;
};

FiberLauncher::FiberLauncher() = default;
FiberLauncher::~FiberLauncher() = default;

std::vector<std::unique_ptr<process::WorkerProcess>> FiberLauncher::start(
    std::vector<process::WorkerSpec> specs, std::function<void(int index)> on_exit,
    const Greet& greet) {
  std::vector<std::unique_ptr<process::WorkerProcess>> all;
  for (process::WorkerSpec& spec : specs) {
    const std::size_t at = all.size();
    SHOAL_CHECK(at < kMostWorkers && workers_[at] == nullptr, "there are a few workers at a time");
    auto worker = std::make_unique<Worker>(*this, fibers_[at], std::move(spec),
                                           [on_exit, at] { on_exit(static_cast<int>(at)); });
    workers_[at] = worker.get();
    all.push_back(std::move(worker));
    if (greet) greet(*all.back());
  }
  return all;
}

void FiberLauncher::run_workers() {
  for (Worker* const worker : workers_) {
    if (worker != nullptr) worker->run();
  }
}

void FiberLauncher::say(std::size_t worker, std::span<const std::byte> bytes) {
  if (workers_[worker] != nullptr) workers_[worker]->say(bytes);
}

os::Mapping FiberLauncher::shared_with(std::size_t worker) { return workers_[worker]->shared(); }

void FiberLauncher::forget(const Worker* worker) {
  for (Worker*& one : workers_) {
    if (one == worker) one = nullptr;
  }
}

}  // namespace shoal::fuzz
