// A worker's place in a ProcessVectorEnv: who sits there now, and what is still to be done for it.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/process/launcher.h"
#include "shoal/process/worker_died.h"
#include "shoal/vector/control_block.h"
#include "shoal/vector/fault_account.h"
#include "shoal/vector/fault_record.h"
#include "shoal/vector/stepper.h"

namespace shoal::vector {

/// How long the caller is willing to wait, and what it looks at meanwhile.
struct Patience {
  /// Longest wait without a look at deaths and interrupts.
  static constexpr std::chrono::milliseconds kSlice{50};
  /// Between looks at seats that are being filled.
  static constexpr std::chrono::milliseconds kShortSlice{5};
  static constexpr std::chrono::milliseconds kShortestSlice{1};

  os::Deadline deadline = os::kNoDeadline;
  std::function<void()> check;  // may be empty; what it throws ends the wait

  os::Deadline slice_end() const { return std::min(deadline, os::deadline_after(kSlice)); }
};

/// Threads: the caller's.
class WorkerSeat {
 public:
  explicit WorkerSeat(process::WorkerSpec spec) : cell(spec.index), spec_(std::move(spec)) {}

  const process::WorkerSpec& spec() const noexcept { return spec_; }
  int index() const noexcept { return spec_.index; }
  int first_env() const noexcept { return spec_.first_env; }
  int num_envs() const noexcept { return spec_.num_envs; }
  const Hello& hello() const noexcept { return hello_; }
  process::WorkerProcess& process() const noexcept { return *process_; }
  std::uint64_t restarts() const noexcept { return restarts_; }

  /// Somebody new sits here, who has not said hello.
  void occupy(std::unique_ptr<process::WorkerProcess> process);
  void occupy_again(std::unique_ptr<process::WorkerProcess> process);
  void vacate() noexcept { process_.reset(); }
  std::unique_ptr<process::WorkerProcess> release_process() noexcept { return std::move(process_); }
  bool occupied() const noexcept { return process_ != nullptr; }
  bool attached() const noexcept { return occupied() && attached_; }
  bool dead() const { return !occupied() || process_->exit_status().has_value(); }

  /// Waits for the hello. Throws TimedOut, process::RemoteError, process::WorkerDied, Error for a
  /// hello that does not fit the spec.
  void receive_hello(const Patience& patience);
  /// The same, until `until`; false when it has not come.
  bool take_hello(os::Deadline until);
  /// Sends the segment. A worker that is gone shows later, as any death does.
  void attach(const ControlBlock& control, std::uint64_t sequence,
              std::span<const std::byte> handed = {});

  /// Waits while the channel is full of messages that the worker has not taken. A worker that is
  /// gone shows when its answer is waited for. Throws TimedOut.
  void send(std::span<const std::byte> message, const Patience& patience);
  /// The next message of this worker's. Throws TimedOut and process::WorkerDied.
  std::vector<std::byte> next_message(const Patience& patience, const char* waiting_for);
  /// The error report of the step of this worker that failed.
  process::ErrorReport next_report(const Patience& patience);

  std::string describe() const { return scene().describe(); }
  FaultScene scene() const;

  // What the engine keeps here from post to collect.
  Command command = Command::kNone;  // given for the call under way
  std::uint64_t posted = 0;          // sequence of the last command given, of this call or another
  bool owes_fault = false;           // it died: the rows of the next step end as a fault
  Fault fault;                       // which one, while owed
  std::optional<KillReason> killed;  // by this side, and why
  int cell = 0;                      // in the control block
  std::unique_ptr<WorkerSeat> successor;  // of a worker that is to be replaced between episodes
  bool draining = false;                  // it is ready: environments rest when their episode ends
  os::Deadline retry_at{};                // not before, where a successor has failed
  std::uint64_t recycles = 0;
  bool has_orders = false;            // some of its rows are not to obey the command
  os::Deadline start_deadline{};      // of a worker that has not said hello
  bool owes_answer = false;           // to the request under way
  std::vector<std::byte> answer;      // to the request under way
  std::exception_ptr refusal;         // or why there is none
  std::vector<std::byte> large_info;  // of the last step, where it did not fit into its area

 private:
  process::WorkerSpec spec_;
  std::unique_ptr<process::WorkerProcess> process_;
  Hello hello_;
  void accept_hello(std::span<const std::byte> message);

  bool attached_ = false;
  std::uint64_t restarts_ = 0;
};

/// Throws what became of a worker that has ended: process::RemoteError when it said why, else
/// process::WorkerDied.
[[noreturn]] void throw_death(const process::DeathCertificate& certificate);

}  // namespace shoal::vector
