// The started side of the control protocol (wire.h) in a zygote or a sub-zygote: forks workers,
// relays what they print, kills them when asked to, and says how they ended.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/os/fd.h"
#include "shoal/os/process/signals.h"
#include "shoal/os/socket/mailbox.h"
#include "shoal/os/socket/socket.h"
#include "shoal/process/boot/wire.h"
#include "shoal/process/codec.h"
#include "shoal/process/entry.h"
#include "shoal/process/supervise/output_relay.h"
#include "shoal/process/zygote/credit_cells.h"

namespace shoal::process {

/// One process that workers are forked from; a resource.
///
/// It is the parent of its workers. It alone collects their status and signals them, so no signal
/// reaches a process that has a dead worker's number. It holds two descriptors a worker (the pipes
/// of stdout and stderr). It can have as many workers as `ulimit -n` leaves descriptors for, up to
/// CreditCells::kCount. Its sub-zygotes are its children, too.
///
/// Threads: the caller's alone.
/// Processes: the zygote's own.
/// Death: of the launcher: serve() ends its workers, with all that they have started, and returns;
/// plain workers have kParentGrace. The kernel kills a sub-zygote. Of a worker: what it has left
/// behind is killed, too (orphans.h), unless it was plain. Of this process: the kernel kills its
/// workers and sub-zygotes. Of a sub-zygote: serve() ends this process as well.
class Zygote {
 public:
  /// Of its workers, as in LaunchOptions.
  struct Kind {
    bool hide_gpu = true;
    bool plain = false;
  };
  Zygote(os::SeqPacket control, os::SeqPacket up, CreditCells cells, std::string line, Kind kind);
  ~Zygote();
  Zygote(const Zygote&) = delete;
  Zygote& operator=(const Zygote&) = delete;

  /// Says kReady and obeys until the launcher closes the control socket; returns the exit code.
  /// Throws Error when there is no room for a single worker.
  int serve(const ForkHooks& hooks);

 private:
  struct Worker {
    pid_t pid = -1;
    std::array<os::Fd, 2> output;  // read ends: of stdout, of stderr
  };

  void watch(int fd, std::uint64_t key);
  void unwatch(int fd);
  bool on_control(const ForkHooks& hooks);  // false: the launcher has closed it
  void start_worker(const ForkHooks& hooks, std::uint64_t request, const wire::Start& start);
  [[noreturn]] void run_worker(const ForkHooks& hooks, std::uint64_t request,
                               const wire::Start& start, OutputPipe output, OutputPipe errors,
                               os::Mailbox mailbox, pid_t zygote) noexcept;
  void start_sub_zygote(const ForkHooks& hooks, std::uint64_t request, ByteReader& reader,
                        os::Message message);
  [[noreturn]] void run_sub_zygote(const ForkHooks& hooks, os::SeqPacket control, CreditCells cells,
                                   std::string line, pid_t zygote) noexcept;
  pid_t fork(const ForkHooks& hooks, std::uint64_t request, const std::string& what);
  void let_go_of_parents(pid_t zygote);
  void kill_worker(std::uint64_t request, int signal);
  bool relay(std::uint64_t request, int stream);  // false: nothing is left to be read now
  void report_ended_children();
  std::vector<pid_t> orphans() const;
  void look_for_orphans(std::chrono::milliseconds grace);
  void end_orphans();
  void end_everybody() noexcept;
  int wait_limit() const;
  void drop_worker(std::uint64_t request);
  void send(std::span<const std::byte> bytes);

  os::SeqPacket control_;
  os::SeqPacket up_;
  CreditCells cells_;
  const std::string line_;
  const Kind kind_;
  const pid_t launcher_ = ::getppid();
  bool is_sub_zygote_ = false;
  std::array<char, 16> name_of_program_{};  // as ps shows it: of plain workers
  os::Fd epoll_;
  std::unique_ptr<os::SignalFd> child_ended_;
  std::map<std::uint64_t, Worker> workers_;  // by request
  std::map<pid_t, std::uint64_t> children_;  // the request that started each worker
  std::set<pid_t> sub_zygotes_;
  os::Deadline orphans_due_ = os::kNoDeadline;  // then what dead workers left behind is killed
};

}  // namespace shoal::process
