// The started side of the control protocol (wire.h): a zygote, or one spawned worker.
#pragma once

#include <string>
#include <vector>

#include "shoal/os/fd.h"
#include "shoal/os/socket/socket.h"
#include "shoal/process/boot/wire.h"
#include "shoal/process/entry.h"
#include "shoal/process/error_report.h"

namespace shoal::process {

/// This process, started by a launcher; a resource.
///
///   Program program = Program::attach();
///   // here: do what program.setup() says (search paths, preload)
///   return program.run(hooks);  // or program.fail(report) when that was not possible
///
/// Threads: a zygote has the caller's alone; run() checks it.
/// Processes: the one that a launcher started.
/// Death: of the parent: the kernel kills this process, or run() returns when the control socket
/// closes. Of this process: the kernel kills its workers.
class Program {
 public:
  /// Takes over descriptor 3, ties this process to its parent, reads the setup and ignores SIGINT,
  /// which stays blocked in a plain worker until that has its handler. Throws Error when descriptor
  /// 3 is no control socket: the program was not started by a launcher.
  static Program attach();

  const wire::Setup& setup() const noexcept { return setup_; }

  /// As a zygote: forks workers until the parent closes the control socket, kills those that still
  /// live, and returns the exit code. As a spawned worker: becomes it, and does not return. Where
  /// unfitness() says something, it is told as by fail().
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

/// Why this process cannot be a zygote or a worker: it has other threads (a zygote must not), or it
/// uses a GPU (with hide_gpu it must not). Empty when it can.
std::string unfitness(const wire::Setup& setup);

}  // namespace shoal::process
