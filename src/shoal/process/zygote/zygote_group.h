// A zygote and its sub-zygotes, as their launcher holds them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/os/process/pidfd.h"
#include "shoal/os/socket/socket.h"
#include "shoal/process/boot/environment.h"
#include "shoal/process/launcher.h"
#include "shoal/process/supervise/supervisor.h"
#include "shoal/process/zygote/channel_multiplexer.h"
#include "shoal/process/zygote/zygote_link.h"
#include "shoal/process/zygote/zygotes.h"

namespace shoal::process {

/// From the start of a zygote to its end; a resource. It needs a handful of descriptors, and two
/// for each sub-zygote, that is for each 256 workers beyond the first 256 (fewer where `ulimit -n`
/// leaves a zygote fewer).
///
/// Threads: usable(), pid(), release() and touch() from any, the rest from one at a time; the
/// private functions that begin with on_ run in the supervisor's loop.
/// Processes: the launcher's.
/// Death: of the zygote or of a sub-zygote: all its workers die, their records end with one
/// ZygoteEnd once all of them are gone, requests under way fail with StartFailed, and usable() is
/// false from then on.
class ZygoteGroup {
 public:
  /// `zygotes`: see LaunchOptions; may be null.
  ZygoteGroup(std::shared_ptr<Supervisor> supervisor, std::shared_ptr<Zygotes> zygotes)
      : supervisor_(std::move(supervisor)),
        zygotes_(std::move(zygotes)),
        multiplexer_(supervisor_->loop()) {}
  ~ZygoteGroup() { stop(); }
  ZygoteGroup(const ZygoteGroup&) = delete;
  ZygoteGroup& operator=(const ZygoteGroup&) = delete;

  /// Starts the program, which waits for begin(). Throws SystemError.
  void launch(const LaunchOptions& options, const Environment& environment);

  /// Tells the program what to preload; returns at once, while it does. To be called once, after
  /// launch().
  void begin(const LaunchOptions& options);

  /// False once it has failed or ended, or ends because it was idle.
  bool usable() const;
  /// Whether it is ready or has failed, by `until`. After begin().
  bool decided_by(os::Deadline until) { return links_.front()->decided_by(until); }
  int pid() const;  // -1 when it has ended

  /// Throws StartFailed when it cannot get ready, TimedOut (and kills it) at the deadline.
  void wait_ready(os::Deadline deadline);

  /// Room for one worker in a zygote.
  struct Reservation {
    ZygoteLink* link;
    std::shared_ptr<ChannelPeer> peer;
  };
  /// After wait_ready(): room for `count` workers, spread over the zygotes; makes sub-zygotes where
  /// these have too little. Throws StartFailed, TimedOut, SystemError.
  std::vector<Reservation> reserve(std::size_t count, os::Deadline deadline);

  /// Keeps it from ending because it is idle, until release(). False where it does so already:
  /// another one is needed.
  bool hold();
  void release() noexcept;
  /// Its idle time begins now.
  void touch();

  /// Ends the zygote, and with it the workers that still run. Idempotent.
  void stop() noexcept;

 private:
  void spawn(const LaunchOptions& options, const Environment& environment);
  void add_sub_zygote(os::Deadline deadline);
  static void await_sub_zygote(ZygoteLink& sub_zygote, os::Deadline deadline);
  std::size_t free_slots() const;
  ZygoteLink::Events link_events();
  void look_at_use(bool end);
  void wait_for_idle_time(os::Deadline due);
  void on_ended();
  void await_workers();
  void on_all_gone();

  const std::shared_ptr<Supervisor> supervisor_;
  const std::shared_ptr<Zygotes> zygotes_;
  std::uint64_t id_ = 0;                      // there
  std::chrono::milliseconds unused_time_{};   // how long one without a worker stays at least
  os::Deadline timer_due_ = os::kNoDeadline;  // the loop's: of the next look at the idle time
  ChannelMultiplexer multiplexer_;
  LogTail tail_{WorkerProcess::kLogTailLines};
  os::PidFd pidfd_;
  std::optional<os::SeqPacket> up_;                 // what the zygote is given by begin()
  std::string preload_;                             // for messages
  OutputReaders readers_;                           // the loop's
  std::vector<std::unique_ptr<ZygoteLink>> links_;  // the first is the zygote; changed in the loop
  std::vector<pid_t> dying_;                        // the loop's: workers of a zygote that ended
  os::PidFd last_;                                  // the loop's: of the one that is awaited
  std::shared_ptr<const ZygoteEnd> end_;            // the loop's: of the zygote
  std::uint64_t next_request_ = 1;
  bool stopped_ = false;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);  // for the loop's timer
  mutable std::mutex mutex_;                                                // guards the rest
  int pid_ = -1;
  int holds_ = 0;
  bool ends_idle_ = false;
  Zygotes::Use use_;
};

}  // namespace shoal::process
