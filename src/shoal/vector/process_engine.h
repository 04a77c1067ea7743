// The parent's side of a ProcessVectorEnv: starting, commanding, waiting, and what a death leads
// to.
//
// Invariants: a call that begins ends with every row written, by its worker or as a fault, or with
// an exception; a seat has at most one command under way; a seat that owes a fault is given no
// command until its rows ended as one.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/process/launcher.h"
#include "shoal/vector/call_state.h"
#include "shoal/vector/control_block.h"
#include "shoal/vector/rows.h"
#include "shoal/vector/vector_env.h"
#include "shoal/vector/worker_seat.h"

namespace shoal::vector {

/// Threads: the caller's; the launcher's supervisor thread touches only the count of exits.
class ProcessEngine {
 public:
  ProcessEngine(std::shared_ptr<process::Launcher> launcher,
                std::vector<process::WorkerSpec> workers, const Options& options);
  ~ProcessEngine() { close(); }

  ProcessEngine(const ProcessEngine&) = delete;
  ProcessEngine& operator=(const ProcessEngine&) = delete;

  void reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                   std::span<const std::uint8_t> mask);
  void step_async();
  Batch wait(std::optional<std::chrono::nanoseconds> timeout);
  std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                 std::optional<std::chrono::nanoseconds> timeout);
  std::span<const std::byte> info(int worker) const;
  Stats stats() const;
  void close() noexcept;

  const Rows& rows() const noexcept { return rows_; }
  const Hello& spaces() const noexcept { return spaces_; }
  std::span<const WorkerSeat> seats() const noexcept { return seats_; }
  /// Throws InvalidArgument when there is no such worker.
  const WorkerSeat& seat(int worker) const;

 private:
  using Starts = std::vector<std::unique_ptr<process::WorkerProcess>>;

  // Starting.
  Starts launch(std::vector<process::WorkerSpec> specs);
  void receive_hellos();
  void attach(WorkerSeat& seat);
  void make_segment();
  void throw_if_one_died_starting();
  Patience patience_for_start() const;

  // Deaths.
  void look_for_deaths();
  void handle_death(WorkerSeat& seat, process::DeathCertificate certificate);
  void count_restart(const process::DeathCertificate& certificate);
  void replace(WorkerSeat& seat);
  void seat_replacements();
  void end_rows_as_fault(WorkerSeat& seat);

  // Commanding and waiting.
  void post(Command command);
  void give(WorkerSeat& seat, Command command);
  bool busy(const WorkerSeat& seat) const;
  void wait_for_workers(const Patience& patience);
  bool settle_dead_workers();
  [[noreturn]] void throw_timed_out();
  Batch collect();
  void collect_seat(WorkerSeat& seat, CallState::Call call);
  void collect_failure(WorkerSeat& seat);

  std::shared_ptr<process::Launcher> launcher_;
  Options options_;
  const int owner_pid_;
  std::shared_ptr<std::atomic<std::uint64_t>>
      exits_;  // workers that ended, counted by the supervisor thread
  std::uint64_t exits_seen_ = 0;
  std::vector<WorkerSeat> seats_;
  Hello spaces_;
  ControlBlock control_;
  Rows rows_;
  CallState state_;
  const std::vector<int> cpus_;  // of the workers, by index; empty: wherever the kernel puts them
  std::uint64_t sequence_ = 0;
  bool rows_have_faults_ = false;
  std::deque<os::Clock::time_point> recent_restarts_;

  std::uint64_t steps_ = 0;
  std::uint64_t resets_ = 0;
  std::uint64_t wait_ns_ = 0;
  std::uint64_t parks_ = 0;
};

}  // namespace shoal::vector
