#include "shoal/vector/async/async_local_vector_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "shoal/os/process/signals.h"
#include "shoal/process/self/own_thread.h"
#include "shoal/sync/spin_policy.h"

namespace shoal::vector {
namespace {

// Orders that take the caller less than this are obeyed sooner by it than a sleeping thread starts.
constexpr double kAloneBelowNs = 30'000;
// Work that the caller takes at once; then it looks at the batch again.
constexpr double kHelpNs = 15'000;

}  // namespace

AsyncLocalVectorEnv::AsyncLocalVectorEnv(std::vector<std::unique_ptr<Stepper>> steppers,
                                         const Options& options)
    : AsyncVectorEnv(options), board_(count_envs(steppers), static_cast<int>(steppers.size())) {
  board_.set_backend(steppers.size() == 1 ? "serial async" : "thread async");
  Hello spaces = common_spaces(steppers);
  std::vector<Share> shares;
  int first_env = 0;
  for (const auto& stepper : steppers) {
    shares.push_back({first_env, stepper->count()});
    first_env += stepper->count();
  }
  set_up(std::move(spaces), shares, options.autoreset_mode);
  for (std::size_t w = 0; w < steppers.size(); ++w) {
    auto local = std::make_unique<LocalWorker>();
    local->worker = std::make_unique<AsyncWorker>(
        segment(), static_cast<int>(w), shares[w].first_env, std::move(steppers[w]), hooks_of(w));
    workers_.push_back(std::move(local));
  }
  if (workers_.size() == 1) return;
  const os::BlockSignals block =
      os::BlockSignals::all();  // signals are for the program's own threads
  for (auto& local : workers_)
    local->thread = std::thread([this, &local = *local] { thread_main(local); });
}

AsyncLocalVectorEnv::~AsyncLocalVectorEnv() { close(); }

AsyncWorkerHooks AsyncLocalVectorEnv::hooks_of(std::size_t worker) {
  const auto bring = [this](Brought brought) {
    const std::lock_guard lock(brought_mutex_);
    brought_.push_back(std::move(brought));
  };
  return {.describe_exception =
              [this, bring, worker] {
                const std::exception_ptr failure = std::current_exception();
                const bool is_interrupt = workers_[worker]->worker->stepper().is_interrupt(failure);
                bring({-1, 0, {}, failure, is_interrupt});
                // relaxed: it says to look, under the lock
                if (is_interrupt) has_interrupt_.store(true, std::memory_order_relaxed);
                return process::ErrorReport::from_current_exception();
              },
          .pass = {},
          .bring_info =
              [bring](int row, std::uint32_t sequence, std::span<const std::byte> bytes) {
                bring({row, sequence, {bytes.begin(), bytes.end()}, nullptr});
              }};
}

void AsyncLocalVectorEnv::wake(int worker) {
  workers_[static_cast<std::size_t>(worker)]->has_work = true;
}

void AsyncLocalVectorEnv::tell(int worker, std::span<const std::byte> message) {
  LocalWorker& local = *workers_[static_cast<std::size_t>(worker)];
  const std::lock_guard lock(local.mutex);
  static_cast<void>(local.worker->stepper().request(message));
}

void AsyncLocalVectorEnv::all_sent() {
  if (workers_.size() == 1) return;
  const bool alone = order_ns_ > 0 && flight().count() * order_ns_ < kAloneBelowNs;
  for (auto& local : workers_) {
    if (std::exchange(local->has_work, false) && !alone) local->door.ring();
  }
}

// Obeys up to `most` orders of local workers that nobody works on; returns how many.
int AsyncLocalVectorEnv::serve_any(int most) {
  int served = 0;
  for (std::size_t i = 0; i < workers_.size() && served < most; ++i) {
    LocalWorker& local = *workers_[(next_worker_ + i) % workers_.size()];
    if (!local.worker->pending()) continue;
    const std::unique_lock lock(local.mutex, std::try_to_lock);
    if (lock) served += local.worker->serve(most - served);
  }
  next_worker_ = (next_worker_ + 1) % workers_.size();
  return served;
}

sync::WaitOutcome AsyncLocalVectorEnv::await(sync::Gather& gather, os::Deadline deadline) {
  for (;;) {
    const auto left = static_cast<int>(gather.left());
    if (left == 0) return sync::WaitOutcome::kReady;
    const std::uint64_t start_ns = os::now_ns();
    // One at a time where steps may be long, so that the batch is handed out when it is ready.
    const double worth = order_ns_ > 0 ? kHelpNs / order_ns_ : 1;
    const int served = serve_any(static_cast<int>(std::clamp<double>(worth, 1, left)));
    if (has_interrupt_.load(std::memory_order_relaxed)) throw_interrupt();  // relaxed: as above
    if (served > 0) {
      const double cost_ns = static_cast<double>(os::now_ns() - start_ns) / served;
      order_ns_ = order_ns_ == 0 ? cost_ns : order_ns_ + (cost_ns - order_ns_) / 8;
      if (os::Clock::now() >= deadline) return sync::WaitOutcome::kTimedOut;
      continue;
    }
    if (workers_.size() == 1) return sync::WaitOutcome::kTimedOut;
    return gather.park(deadline);
  }
}

void AsyncLocalVectorEnv::thread_main(LocalWorker& local) {
  const process::OwnThread own_thread;
  sync::SpinPolicy policy(sync::SpinOptions{.group_size = static_cast<int>(workers_.size()) + 1});
  while (!quit_.load(std::memory_order_relaxed)) {  // relaxed: the ring that follows orders it
    const std::uint32_t seen = local.door.generation();
    if (local.worker->pending()) {
      const std::lock_guard lock(local.mutex);
      local.worker->serve(1 << 10);
      continue;
    }
    static_cast<void>(local.door.wait(seen, policy, os::kNoDeadline));
  }
}

std::optional<std::vector<std::byte>> AsyncLocalVectorEnv::take_info(int row,
                                                                     std::uint32_t sequence, bool) {
  const std::lock_guard lock(brought_mutex_);
  const auto at = std::find_if(brought_.begin(), brought_.end(), [&](const Brought& brought) {
    return brought.row == row && brought.sequence == sequence;
  });
  // The call that was interrupted may have taken it.
  if (at == brought_.end() && state().interrupted()) return std::vector<std::byte>();
  SHOAL_CHECK(at != brought_.end(), "an info is brought before its row is ready");
  std::vector<std::byte> bytes = std::move(at->bytes);
  brought_.erase(at);
  return bytes;
}

// The first one, an interrupt before all others; none is left: a traceback that stayed here would keep
// these environments, and they it.
AsyncLocalVectorEnv::Brought AsyncLocalVectorEnv::take_failure() {
  const std::lock_guard lock(brought_mutex_);
  Brought first{};
  std::erase_if(brought_, [&](Brought& brought) {
    if (brought.failure == nullptr) return false;
    if (first.failure == nullptr || (brought.is_interrupt && !first.is_interrupt))
      first = std::move(brought);
    return true;
  });
  has_interrupt_.store(false, std::memory_order_relaxed);  // relaxed: as above
  return first;
}

void AsyncLocalVectorEnv::throw_interrupt() {
  const Brought brought = take_failure();
  interrupt();
  if (brought.failure) std::rethrow_exception(brought.failure);
}

void AsyncLocalVectorEnv::on_failure(int, std::span<const std::byte>) {
  const Brought brought = take_failure();
  if (brought.is_interrupt)
    interrupt();
  else if (state().interrupted())
    return;
  else
    state().fail("an environment failed");
  SHOAL_CHECK(brought.failure, "a failure comes with its exception");
  std::rethrow_exception(brought.failure);
}

Stepper& AsyncLocalVectorEnv::stepper(int worker) {
  if (worker < 0 || static_cast<std::size_t>(worker) >= workers_.size()) {
    throw InvalidArgument(
        fmt::format("there is no worker {}; there are {}", worker, workers_.size()));
  }
  return workers_[static_cast<std::size_t>(worker)]->worker->stepper();
}

std::vector<std::byte> AsyncLocalVectorEnv::request(int worker, std::span<const std::byte> message,
                                                    std::optional<std::chrono::nanoseconds>) {
  state().require_idle("request");
  Stepper& asked = stepper(worker);
  const std::lock_guard lock(workers_[static_cast<std::size_t>(worker)]->mutex);
  return asked.request(message);
}

void AsyncLocalVectorEnv::request_async(std::span<const std::vector<std::byte>> messages) {
  state().begin_request();
  asked_.assign(messages.begin(), messages.end());
}

std::vector<std::vector<std::byte>> AsyncLocalVectorEnv::request_wait(
    std::optional<std::chrono::nanoseconds>) {
  state().require_pending_request();
  state().finish();
  std::vector<std::vector<std::byte>> answers(workers_.size());
  for (std::size_t w = 0; w < asked_.size(); ++w) {
    if (!asked_[w].empty()) answers[w] = request(static_cast<int>(w), asked_[w]);
  }
  return answers;
}

void AsyncLocalVectorEnv::stop() noexcept {
  if (workers_.empty() || !workers_[0]->thread.joinable()) return;
  if (!maker_.is_this()) {
    os::abandon(std::move(workers_));
    workers_.clear();
    return;
  }
  quit_.store(true, std::memory_order_relaxed);  // relaxed: the ring orders it
  for (auto& local : workers_) local->door.ring();
  for (auto& local : workers_) local->thread.join();
}

void AsyncLocalVectorEnv::close() noexcept {
  if (state().closed()) return;
  state().close();
  board_.end();
  stop();
  workers_.clear();
}

}  // namespace shoal::vector
