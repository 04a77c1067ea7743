// The started side of the control protocol (wire.h): a zygote, or one spawned worker.
#pragma once

#include <string>
#include <vector>

#include "shoal/os/fd.h"
#include "shoal/os/socket.h"
#include "shoal/process/entry.h"
#include "shoal/process/error_report.h"
#include "shoal/process/wire.h"

namespace shoal::process {

/// This process, started by a launcher; a resource.
///
///   Program program = Program::attach();
///   … do what program.setup() says: search paths, preload …
///   return program.run(hooks);          // or program.fail(report) when that was not possible
///
/// Threads: none but the caller's may exist in a zygote; run() checks it.
/// Death: of the parent: this process is killed by the kernel; and run() returns when the control
/// socket closes. Of this process: the kernel kills its workers.
class Program {
 public:
  /// Takes over descriptor 3, ignores SIGINT, ties this process to its parent and reads the setup.
  /// Throws Error when descriptor 3 is no control socket: the program was not started by a
  /// launcher.
  static Program attach();

  const wire::Setup& setup() const noexcept { return setup_; }

  /// Zygote: forks workers until the parent closes the control socket; the workers that still live
  /// are then killed. Returns the exit code. Spawned worker: becomes it and does not return. What
  /// stands against serving (other threads, a GPU in use) is told as by fail().
  int run(const ForkHooks& hooks);

  /// Tells the parent why this program cannot serve, through the control socket or, for a spawned
  /// worker, through its channel. Returns the exit code.
  int fail(const ErrorReport& report) noexcept;

 private:
  Program(os::SeqPacket control, wire::Setup setup, std::vector<os::Fd> fds);

  bool tell(const ErrorReport& report);  // whether the parent got it
  int serve(const ForkHooks& hooks);
  [[noreturn]] void run_single(const ForkHooks& hooks);

  os::SeqPacket control_;
  wire::Setup setup_;
  std::vector<os::Fd> fds_;  // that came with the setup
};

/// What stands against a process's being a zygote or a worker: other threads (zygote), a GPU in use
/// (hide_gpu). Empty when nothing does.
std::string unfitness(const wire::Setup& setup);

}  // namespace shoal::process
