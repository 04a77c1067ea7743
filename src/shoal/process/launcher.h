// Starts worker processes and watches them until they have ended.
//
// One Launcher serves any number of groups of workers with one start method. Whatever the method, a
// worker begins the same way. It has one end of a channel to its parent, and a payload that says
// what to do; and it dies when its parent dies, however the parent dies.
//
// Threads: any may call start(). A WorkerProcess belongs to one thread at a time, but any may call
// kill(). A supervisor thread (C++ alone, in poll(), with all signals blocked) drains the workers'
// stdout and stderr and collects their exit status.
// Processes: these objects are the parent's.
// Death: of a worker: exit_status() is set and on_exit is called. Of the zygote: all its workers
// die with it, and the next ready() or start() makes a fresh one. Of the parent: all that it
// started dies.
// Fork: copies of these objects in a forked child do nothing, and never touch the workers.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/os/fd.h"
#include "shoal/process/channel.h"
#include "shoal/process/entry.h"
#include "shoal/process/start_method.h"

namespace shoal::process {

struct ZygoteEnd;
class Zygotes;

/// How a worker process ended.
struct ExitStatus {
  int code = 0;       // exit code, when signal == 0
  int signal = 0;     // the signal that killed it, or 0
  bool known = true;  // false: it is gone, and the one process that could collect its status died
  /// Where it is not known: the end of the zygote that it died with; one object for all workers
  /// that died with it.
  std::shared_ptr<const ZygoteEnd> zygote = {};
  /// What it ended with: "exit code 1", "signal 9 (SIGKILL)", "its zygote (pid 7), which …"
  std::string describe() const;
  bool operator==(const ExitStatus&) const = default;
};

/// How a zygote ended, and all its workers with it: one cause, however many they are.
struct ZygoteEnd {
  int pid = -1;
  int sub_zygote = -1;  // the pid of its sub-zygote that ended first; -1: the zygote itself did
  ExitStatus status;    // of the sub-zygote, or of the zygote
};

/// What every worker of a launcher has in common. The zygote imports `preload` once, in a clean
/// environment.
struct LaunchOptions {
  StartMethod method = StartMethod::kAuto;
  std::vector<std::string> interpreter;  // argv of a fresh zygote or spawned worker
  std::vector<std::string> preload;      // Python modules, or plug-ins of a native zygote
  std::vector<std::pair<std::string, std::string>>
      environment;       // set on top of the cleaned parent's environment
  int threads = 1;       // OMP, MKL, OpenBLAS, NumExpr; 0: as inherited
  bool hide_gpu = true;  // CUDA_VISIBLE_DEVICES="" and kin, verified
  std::chrono::milliseconds start_timeout{60'000};  // for the preload, and for each start()
  bool allow_unsafe_fork = false;                   // kFork in spite of fork_hazards()
  bool ahead = false;                // forkserver: the zygote gets preload and bootstrap by begin()
  std::vector<std::byte> bootstrap;  // for the started program's own use: sys.path, argv, …
  std::shared_ptr<const ForkHooks>
      fork_hooks;  // kFork: what surrounds the fork, and the child's entries
  bool relay_output =
      true;  // workers' lines go to this process's stdout and stderr, tagged, as they come
  /// kForkserver, kSpawn: workers are processes like any other of this program. They stay in its
  /// session, keep its stdout and stderr and the default SIGINT, what they start is their own
  /// affair, and when their parent dies they have kParentGrace to notice it.
  bool plain = false;
  /// kForkserver: what counts the idle zygotes of this process, and ends those that are too many;
  /// nullptr: this launcher's zygote stays until the launcher goes.
  std::shared_ptr<Zygotes> zygotes = {};
  /// Called in the supervisor thread with the pid of every worker that has ended, before its
  /// exit_status() is there: to give back what it held of memory that it shared. Must be quick and
  /// must not throw.
  std::function<void(int pid)> on_worker_end = {};
};

/// One worker to start.
struct WorkerSpec {
  std::string name;   // "worker 3": tags its log lines and its errors
  std::string entry;  // what the started process runs, a name in its EntryTable: "python", …
  std::vector<std::byte> payload;  // handed to the entry unchanged
  int index = -1;                  // for errors, as the rest; -1: unknown
  int first_env = -1;              // its environments are [first_env, first_env + num_envs)
  int num_envs = 0;
};

/// A running or ended worker; a resource. Destroying it kills the process if it still runs.
/// Threads, processes, death, fork: see the top of this file.
class WorkerProcess {
 public:
  virtual ~WorkerProcess() = default;

  virtual int pid() const noexcept = 0;
  virtual const std::string& name() const noexcept { return spec().name; }

  /// What it was started with; the payload is gone.
  virtual const WorkerSpec& spec() const noexcept = 0;

  /// The parent's end of the control channel.
  virtual Channel& channel() noexcept = 0;

  /// Nothing until the process has ended and all that it wrote is in log_tail(); never blocks.
  virtual std::optional<ExitStatus> exit_status() const = 0;

  /// Waits until the process has ended, at most until `timeout` has passed.
  virtual std::optional<ExitStatus> join(std::chrono::milliseconds timeout) = 0;

  /// Sends `signal`; no error when the process has ended already.
  virtual void kill(int signal) noexcept = 0;

  /// The last lines (at most kLogTailLines) that it wrote to stdout or stderr, oldest first.
  virtual std::vector<std::string> log_tail() const = 0;

  static constexpr int kLogTailLines = 100;
};

/// A resource. Threads, processes, death, fork: see the top of this file.
class Launcher {
 public:
  using Greet = std::function<void(WorkerProcess& worker)>;

  /// Starts the zygote where the method has one; it preloads while the caller goes on. Throws
  /// InvalidArgument where a program is needed and `interpreter` is empty, ForkRefused where fork
  /// is asked for and known to break, SystemError when the program cannot be started.
  static std::unique_ptr<Launcher> create(LaunchOptions options);
  virtual ~Launcher() = default;

  /// Starts all of `specs` in parallel, and returns when all processes exist. It does not wait for
  /// what they do.
  /// `on_exit` is called from the supervisor thread with the position in `specs`. It must be quick
  /// and must not throw; it is not called any more once the WorkerProcess is destroyed.
  /// `greet` is called in this thread for each worker as soon as it exists, while others are still
  /// being started: to send it what it waits for first.
  /// Throws StartFailed when the zygote could not get ready (its preload failed, it died), TimedOut
  /// after start_timeout, ForkRefused, SystemError. After a throw none of the workers is left.
  virtual std::vector<std::unique_ptr<WorkerProcess>> start(
      std::vector<WorkerSpec> specs, std::function<void(int index)> on_exit = {},
      const Greet& greet = {}) = 0;

  /// Waits until `until` for start() to be able to begin at once; returns whether it is. Where
  /// start() must wait (for a zygote that preloads, or for a fresh one in place of one that died),
  /// that is under way after this call. After start_timeout this is true all the same, and start()
  /// says what went wrong.
  virtual bool ready_by(os::Deadline until);
  bool ready() { return ready_by(os::Clock::now()); }  // never waits

  /// LaunchOptions::ahead: what a zygote that was started ahead of time is to preload. Once, before
  /// start(). Throws InvalidState for every other launcher.
  virtual void begin(std::vector<std::string> preload, std::vector<std::byte> bootstrap);

  virtual StartMethod method() const noexcept = 0;  // never kAuto

  /// The zygote's process id; -1 where there is none (method, or it died). For tests and `shoal
  /// doctor`.
  virtual int zygote_pid() const noexcept = 0;
};

}  // namespace shoal::process
