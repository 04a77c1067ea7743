// Asynchronous environments in this process: stepped by the caller while it waits in recv(), and by
// threads where there are several workers.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "shoal/os/process/making_process.h"
#include "shoal/sync/doorbell.h"
#include "shoal/vector/async/async_vector_env.h"
#include "shoal/vector/async/async_worker.h"
#include "shoal/vector/step/stepper.h"

namespace shoal::vector {

/// With one stepper there is no thread at all, and orders wait until recv(). With several, each has
/// a worker with a thread of its own; the caller takes orders of any worker while it waits, and wakes
/// nobody for orders that it obeys sooner than a thread starts.
///
/// After a failure of an environment, which recv() or wait() throws as it was thrown, every call
/// but close() throws InvalidState. An interrupt (Stepper::is_interrupt()) is thrown at once, and
/// they go on with a reset of all.
///
/// Threads: as VectorEnv; a worker's environments belong to who holds its lock.
/// Fork: the threads do not exist in the child; a copy there lets go of them without joining.
/// Processes, death: of this one, with which everything of it ends.
class AsyncLocalVectorEnv final : public AsyncVectorEnv {
 public:
  /// Throws InvalidArgument when the steppers' spaces differ, and for options that do not fit.
  AsyncLocalVectorEnv(std::vector<std::unique_ptr<Stepper>> steppers, const Options& options);
  ~AsyncLocalVectorEnv() override;
  EnvBoard& board() noexcept override { return board_; }
  std::vector<WorkerHealth> health() const override { return board_.now(VectorEnv::health()); }

  AsyncLocalVectorEnv(const AsyncLocalVectorEnv&) = delete;
  AsyncLocalVectorEnv& operator=(const AsyncLocalVectorEnv&) = delete;

  std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                 std::optional<std::chrono::nanoseconds> timeout = {}) override;
  void request_async(std::span<const std::vector<std::byte>> messages) override;
  std::vector<std::vector<std::byte>> request_wait(
      std::optional<std::chrono::nanoseconds> timeout = {}) override;
  void close() noexcept override;

  /// For the face that put it there. Not after close().
  Stepper& stepper(int worker);
  bool is_closed() const noexcept { return workers_.empty(); }

 private:
  struct alignas(128) LocalWorker {
    std::unique_ptr<AsyncWorker> worker;
    sync::Doorbell door;
    std::mutex mutex;  // held by who steps
    std::thread thread;
    bool has_work = false;  // the caller's: orders were sent since it was rung last
  };
  /// What an environment threw, and infos without room in their block.
  struct Brought {
    int row;
    std::uint32_t sequence;
    std::vector<std::byte> bytes;
    std::exception_ptr failure;
    bool is_interrupt = false;
  };

  void wake(int worker) override;
  void tell(int worker, std::span<const std::byte> message) override;
  void all_sent() override;
  sync::WaitOutcome await(sync::Gather& gather, os::Deadline deadline) override;
  std::optional<std::vector<std::byte>> take_info(int row, std::uint32_t sequence,
                                                  bool may_come) override;
  void on_failure(int row, std::span<const std::byte> report) override;

  AsyncWorkerHooks hooks_of(std::size_t worker);
  Brought take_failure();
  void throw_interrupt();
  int serve_any(int most);
  void thread_main(LocalWorker& local);
  void stop() noexcept;

  EnvBoard board_;
  std::vector<std::unique_ptr<LocalWorker>> workers_;
  std::size_t next_worker_ = 0;  // where the caller looks first
  const os::MakingProcess maker_;
  std::atomic<bool> quit_{false};
  double order_ns_ = 0;  // of one order, smoothed; 0: not known yet
  int unstarted_ = 0;    // orders sent since the last ring

  std::vector<std::vector<std::byte>> asked_;  // by request_async(), by worker
  std::atomic<bool> has_interrupt_{false};     // among what was brought
  std::mutex brought_mutex_;
  std::vector<Brought> brought_;
};

}  // namespace shoal::vector
