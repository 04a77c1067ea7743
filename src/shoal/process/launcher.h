// Starts worker processes and watches them until they have ended.
//
// One Launcher serves one group of workers with one start method. Whatever the method, a worker begins the same way: it
// holds one end of a SOCK_SEQPACKET channel to the parent and a payload that says what to do, and it dies when its
// parent dies, whichever way that dies.
//
// Threads: start() and stop() from one thread at a time; a supervisor thread (plain C++, blocked in poll) drains the
// workers' stdout and stderr and collects their exit codes.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/os/fd.h"
#include "shoal/os/socket.h"
#include "shoal/process/start_method.h"

namespace shoal::process {

/// How a worker process ended.
struct ExitStatus {
  int code = 0;        // exit code, when signal == 0
  int signal = 0;      // the signal that killed it, or 0
  bool known = true;   // false: it is gone, but whoever could collect its status died first
  /// "exit code 1", "killed by signal 9 (SIGKILL)", …
  std::string describe() const;
};

/// What every worker of a launcher has in common. The zygote imports `preload` once, in a clean environment.
struct LaunchOptions {
  StartMethod method = StartMethod::kAuto;
  std::vector<std::string> interpreter;                          // argv of a fresh zygote or spawned worker
  std::vector<std::string> preload;                              // module names
  std::vector<std::pair<std::string, std::string>> environment;  // set on top of the cleaned parent's environment
  int threads = 1;                                               // OMP, MKL, OpenBLAS, NumExpr
  bool hide_gpu = true;                                          // CUDA_VISIBLE_DEVICES="" and kin, verified
  std::chrono::milliseconds start_timeout{60'000};
};

/// One worker to start.
struct WorkerSpec {
  std::string name;                // "worker 3": tags its log lines and its errors
  std::string entry;               // what the started process runs: "python" or "native"
  std::vector<std::byte> payload;  // handed to the entry unchanged
};

/// A running or ended worker. Destroying it kills the process if it still runs.
class WorkerProcess {
 public:
  virtual ~WorkerProcess() = default;

  virtual int pid() const noexcept = 0;
  virtual const std::string& name() const noexcept = 0;

  /// The parent's end of the control channel.
  virtual os::SeqPacket& channel() noexcept = 0;

  /// Set once the process has ended; never blocks.
  virtual std::optional<ExitStatus> exit_status() const = 0;

  /// Waits until the process has ended, at most until `timeout` has passed.
  virtual std::optional<ExitStatus> join(std::chrono::milliseconds timeout) = 0;

  /// Sends `signal`; no error when the process has ended already.
  virtual void kill(int signal) noexcept = 0;

  /// The last lines that it wrote to stdout or stderr, oldest first.
  virtual std::vector<std::string> log_tail() const = 0;
};

class Launcher {
 public:
  /// Starts the zygote where the method has one (it preloads while the caller goes on).
  /// Throws ForkRefused where fork is asked for and known to break.
  static std::unique_ptr<Launcher> create(LaunchOptions options);
  virtual ~Launcher() = default;

  /// Starts all of `specs` in parallel and returns without waiting for what they do first.
  /// `on_exit`, called from the supervisor thread, must be quick and must not throw.
  virtual std::vector<std::unique_ptr<WorkerProcess>> start(
      std::vector<WorkerSpec> specs, std::function<void(int index)> on_exit) = 0;

  virtual StartMethod method() const noexcept = 0;  // never kAuto
};

}  // namespace shoal::process
