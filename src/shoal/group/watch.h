// Knows who of a group is still there: heartbeats along the tree, and the news of losses; and
// whether enough ranks are through with a round, which rank 0 counts.
//
// A process that ends closes its connections, which its neighbours see at once. One that was
// stopped, or whose host is gone, is silent: after kSilence it counts as lost. Each loss goes to
// all.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "shoal/group/link.h"
#include "shoal/group/member.h"
#include "shoal/group/messages.h"
#include "shoal/group/peer_lost.h"
#include "shoal/os/clock.h"
#include "shoal/os/eventfd.h"

namespace shoal::group {

/// A resource: one thread.
///
/// Threads: any may ask; fail() and the destructor from one.
/// Processes: each rank has its own.
/// Death: of a neighbour: a loss, within kSilence + kHeartbeat. Of this process: the neighbours see
/// its connections end.
/// Fork: refused by Shoal's launchers while it lives; a child has no thread.
class Watch {
 public:
  static constexpr std::chrono::milliseconds kHeartbeat{500};
  static constexpr std::chrono::milliseconds kSilence{3'500};

  /// Takes over the tree of connections. `on_loss` is called once, from any thread, when a rank is
  /// lost. One that has taken its leave is lost once somebody still needs it.
  Watch(int rank, std::vector<Member> members, std::optional<Neighbour> parent,
        std::vector<Neighbour> children, std::function<void()> on_loss);
  /// Takes leave of the neighbours.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Throws PeerLost once any rank is lost, or one of `needed` has left: for who waits for these.
  void check(std::span<const int> needed) {
    if (changed_.load(std::memory_order_acquire)) look_for_losses(needed);
  }
  /// The same, for who has found a connection closed: waits a while for the reason.
  [[noreturn]] void throw_why(int rank);

  /// Tells that this rank is through with the round.
  void arrive(const Round& round) noexcept;
  /// Whether enough ranks are, as far as is known here.
  bool enough(std::uint64_t round) const noexcept {
    return enough_.load(std::memory_order_relaxed) > round;  // nothing else is read by it
  }

  /// Tells the others that this rank fails, and how.
  void fail(const std::string& why) noexcept;

 private:
  struct Peer {
    int rank;
    Link link;
    os::Clock::time_point heard;
    bool gone = false;  // written by the thread, under sending_
  };

  void run();
  void hear(Peer& peer, os::Clock::time_point now);
  /// What one message says.
  void take(Peer& peer, std::span<const std::byte> message);
  /// Nothing is sent to it, or heard from it, any more.
  void drop(Peer& peer);
  void beat();
  void look_for_silence(os::Clock::time_point now);
  void count(const Round& round);
  /// `from`: who told, if anybody did; it goes to all others.
  void lose(const Loss& loss, const Peer* from);
  void take_leave(int rank, const Peer* from);
  void send_to_others(std::span<const std::byte> message, const Peer* except);
  void look_for_losses(std::span<const int> needed);
  void check_rank(int rank) const;

  const int rank_;
  const bool is_root_;
  const std::vector<Member> members_;
  const std::function<void()> on_loss_;
  std::mutex sending_;
  std::vector<Peer> peers_;
  mutable std::mutex mutex_;
  std::optional<Loss> loss_;  // the first
  os::Clock::time_point lost_at_{};
  std::vector<bool> has_left_;             // by rank
  Round round_;                            // of rank 0: the one that is counted,
  std::uint32_t arrived_ = 0;              // and how many are through with it
  std::atomic<std::uint64_t> enough_ = 0;  // after the last round with enough
  std::atomic<bool> changed_ = false;
  std::atomic<bool> ending_ = false;
  os::EventFd wake_;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace shoal::group
