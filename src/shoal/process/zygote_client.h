// The launcher's side of a zygote.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "shoal/os/pidfd.h"
#include "shoal/os/socket.h"
#include "shoal/process/environment.h"
#include "shoal/process/launcher.h"
#include "shoal/process/supervisor.h"
#include "shoal/process/wire.h"
#include "shoal/process/worker_died.h"

namespace shoal::process {

/// A worker on its way to the zygote: its record and the descriptors that it is given.
struct PendingWorker {
  std::shared_ptr<WorkerRecord> record;
  wire::Start start;
  os::SeqPacket channel;  // the worker's end
  OutputPipe output;
  OutputPipe errors;
};

/// One zygote process, from its start to its end; a resource, made by std::make_shared.
///
/// Threads: start_workers() and stop() from one thread at a time, pid(), usable() and wait_ready()
/// from any; the private functions run in the supervisor's loop. Death: of the zygote: its workers
/// die with it, their records end with an unknown status, requests under way fail with StartFailed,
/// and usable() is false from then on.
class ZygoteClient : public std::enable_shared_from_this<ZygoteClient> {
 public:
  explicit ZygoteClient(std::shared_ptr<Supervisor> supervisor)
      : supervisor_(std::move(supervisor)) {}
  ~ZygoteClient();

  /// Starts the program; returns at once, while it preloads. Throws SystemError.
  void launch(const LaunchOptions& options, const Environment& environment);

  bool usable() const;  // starting or ready
  int pid() const;      // -1 when it has ended

  /// Throws StartFailed when it cannot get ready, TimedOut (and kills it) at the deadline.
  void wait_ready(os::Deadline deadline);

  /// Asks for all of them; their records tell what becomes of each.
  void start_workers(std::span<PendingWorker> workers, os::Deadline deadline);

  /// Ends the zygote, and with it the workers that still run. Idempotent.
  void stop() noexcept;

 private:
  enum class State { kStarting, kReady, kFailed, kEnded };

  void spawn(const LaunchOptions& options, const Environment& environment);
  void on_control();
  void on_message(os::Message message);
  void on_started(std::uint64_t request, ByteReader& reader, os::Message& message);
  void on_ended();
  void detach();
  void set_state(State state, std::string why);
  void give_up(std::span<PendingWorker> unsent, std::uint64_t first_request,
               const std::exception_ptr& error);
  void send_start(PendingWorker& worker, std::uint64_t request, WorkerRecord* previous,
                  os::Deadline deadline);
  StartFailed failure() const;

  const std::shared_ptr<Supervisor> supervisor_;
  LogTail tail_{WorkerProcess::kLogTailLines};
  os::SeqPacket control_;
  os::PidFd pidfd_;
  std::string preload_;                                                        // for messages
  OutputReaders readers_;                                                      // the loop's
  std::unordered_map<std::uint64_t, std::shared_ptr<WorkerRecord>> requests_;  // the loop's
  std::uint64_t next_request_ = 1;
  bool stopped_ = false;
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  State state_ = State::kStarting;
  std::string why_;  // it failed or ended
  int pid_ = -1;
};

}  // namespace shoal::process
