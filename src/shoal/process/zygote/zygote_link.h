// The launcher's side of one zygote process's control socket (wire.h).
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "shoal/os/socket/socket.h"
#include "shoal/process/boot/wire.h"
#include "shoal/process/supervise/supervisor.h"
#include "shoal/process/worker_died.h"
#include "shoal/process/zygote/channel_multiplexer.h"

namespace shoal::process {

class ZygoteLink;

/// A worker on its way to a zygote.
struct PendingWorker {
  ZygoteLink* link = nullptr;
  std::shared_ptr<WorkerRecord> record;
  std::shared_ptr<ChannelPeer> peer;
  wire::Start start;
};

/// A zygote or a sub-zygote, seen from its launcher; a resource of ZygoteGroup, which outlives
/// the workers' handles.
///
/// Threads: as marked below.
/// Processes: the launcher's.
/// Death: of the zygote: its group calls fail() and finish_all().
class ZygoteLink {
 public:
  /// Called in the loop, to tell its group.
  struct Events {
    std::function<void()> broken;  // a message of the zygote made no sense: it is to be killed
    std::function<void()> worker_gone;
  };
  ZygoteLink(Supervisor& supervisor, ChannelMultiplexer& multiplexer, os::SeqPacket control,
             Events events)
      : supervisor_(supervisor),
        multiplexer_(multiplexer),
        control_(std::move(control)),
        events_(std::move(events)) {}

  const std::shared_ptr<ChannelLine>& line() const noexcept { return line_; }

  // From any thread.
  bool usable() const;                  // starting or ready
  bool decided_by(os::Deadline until);  // whether it is ready or has failed
  /// False at the deadline. Throws StartFailed when it cannot get ready.
  bool wait_ready(os::Deadline deadline);

  // From the launcher's thread.
  void send_setup(wire::Setup setup, const os::SeqPacket& up);
  /// Asks for a sub-zygote, which `sub_zygote` is to be the link of; `control` is the other end of
  /// its socket.
  void send_sub_zygote(std::uint64_t request, ZygoteLink& sub_zygote, const os::SeqPacket& control,
                       os::Deadline deadline);
  /// Asks for a worker, after expect(); its record says what becomes of it. Throws TimedOut and
  /// SystemError, and then it was not asked for.
  void start_worker(const PendingWorker& worker, os::Deadline deadline);

  // In the loop.
  void watch();
  void expect(const PendingWorker& worker);
  /// For a worker that was expected and will not be asked for.
  void give_up(const PendingWorker& worker, const std::exception_ptr& error);
  void on_control();
  /// No more workers come from it, and those that do not run yet have failed. The first reason
  /// counts. `end`: the end of the zygote.
  void fail(const std::string& why, std::shared_ptr<const ZygoteEnd> end = {});
  std::vector<pid_t> running() const;
  /// How many run or are expected.
  std::size_t num_workers() const noexcept { return requests_.size(); }
  /// Of a zygote: the sub-zygote whose end ended it, where that was the cause.
  const std::optional<wire::Exited>& ended_sub_zygote() const noexcept { return ended_sub_zygote_; }
  /// Its workers have died with the zygote, and nobody collected their status.
  void finish_all(const std::shared_ptr<const ZygoteEnd>& end);
  void detach();

 private:
  enum class State { kStarting, kReady, kFailed };
  struct Request {
    std::shared_ptr<WorkerRecord> record;
    std::shared_ptr<ChannelPeer> peer;
  };
  using Requests = std::unordered_map<std::uint64_t, Request>;

  void on_message(const os::Message& message);
  void on_start_failed(std::uint64_t request, ByteReader& reader);
  void finish(Requests::iterator found, ExitStatus status);
  void abandon(Requests::iterator found, const std::exception_ptr& error);
  void queue_signal(std::uint64_t request, int signal);
  void send_signals();
  StartFailed failure() const;

  Supervisor& supervisor_;
  ChannelMultiplexer& multiplexer_;
  os::SeqPacket control_;
  const Events events_;
  const std::shared_ptr<ChannelLine> line_ = std::make_shared<ChannelLine>();
  Requests requests_;                                           // the loop's
  std::unordered_map<std::uint64_t, ZygoteLink*> sub_zygotes_;  // the loop's: not ready yet
  std::deque<std::pair<std::uint64_t, int>> signals_;           // the loop's: not sent yet
  std::optional<wire::Exited> ended_sub_zygote_;                // the loop's
  bool is_open_ = false;                                        // the loop's
  mutable std::mutex mutex_;                                    // guards the rest
  std::condition_variable changed_;
  State state_ = State::kStarting;
  std::string why_;                       // it failed
  std::shared_ptr<const ZygoteEnd> end_;  // of the zygote
};

}  // namespace shoal::process
