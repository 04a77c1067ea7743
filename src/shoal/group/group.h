// Processes that work as one: ranks 0 … size - 1, on one host or several, whoever started them.
//
//   auto group = Group::join(Launch::detect());
//   group->sum(gradient);              // everybody has the sum of all, the same bits
//   group->broadcast(bytes);           // everybody has what rank 0 has
//   group->gather(mine);               // rank 0 has what each has
//
// The ranks of a host exchange data through memory (1 µs for 1 KB), the hosts through TCP. All
// ranks do the same operations in the same order with the same sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/group/host_exchange.h"
#include "shoal/group/launch.h"
#include "shoal/group/member.h"
#include "shoal/group/network_exchange.h"
#include "shoal/group/peer_lost.h"
#include "shoal/group/rendezvous/rendezvous.h"
#include "shoal/group/watch.h"
#include "shoal/process/self/no_fork.h"

namespace shoal::group {

/// A resource.
///
/// Threads: one at a time; fail() from any.
/// Processes: one rank each.
/// Death: of any other rank, killed, stopped or out of reach: every operation that needs it throws
/// PeerLost, within five seconds, and so do all later ones. There is no time limit for a rank that
/// is alive: it may take as long as it wants between two operations.
/// Fork: Shoal's launchers refuse it while a group of several lives; descriptors are close-on-exec.
class Group {
 public:
  /// Waits until all ranks are there. Throws as meet().
  static std::shared_ptr<Group> join(const Launch& launch,
                                     const JoinOptions& options = JoinOptions::from_environment());
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// Takes leave: the others' operations throw PeerLost where they still need this rank.
  /// Idempotent; what comes after throws InvalidState. The destructor does it.
  void leave() noexcept;

  int rank() const noexcept { return launch_.rank; }
  int size() const noexcept { return launch_.size; }
  const Launch& launch() const noexcept { return launch_; }
  /// By rank.
  const std::vector<Member>& members() const noexcept { return members_; }
  /// Whether sums are added as add_parts() does over all ranks in line: all are on one host, or
  /// each host has the same power of two, in the order of ranks.
  bool adds_in_line() const noexcept { return adds_in_line_; }

  /// Each element becomes the sum over all ranks, in an order that depends on their number and
  /// hosts alone. Every rank has the same bits.
  void sum(std::span<float> floats, std::span<double> doubles = {});
  void sum(std::span<double> doubles) { sum({}, doubles); }
  /// Of rank 0, to all.
  void broadcast(std::span<std::byte> bytes);
  /// The same for bytes whose number only rank 0 knows.
  std::vector<std::byte> broadcast_any(std::span<const std::byte> bytes);
  /// At rank 0 what each has, by rank; elsewhere nothing.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes);
  /// What each has, one after the other by rank, on all ranks. All have as many bytes.
  std::vector<std::byte> gather_for_all(std::span<const std::byte> bytes);
  void barrier();

  /// Tells that this rank is through with the round, of which `needed` ranks are enough. No
  /// operation: it waits for nobody.
  void arrive(std::uint64_t round, int needed) noexcept;
  /// Whether enough are. True some time after, never before.
  bool enough(std::uint64_t round) const noexcept;

  /// Tells the others that this rank fails, and how: their operations throw PeerLost with that.
  void fail(const std::string& why) noexcept;

 private:
  Group(Launch launch, const JoinOptions& options);
  /// The ranks of this host.
  std::vector<int> here() const;
  void check_there() const;

  const Launch launch_;
  std::optional<process::NoFork> no_fork_;
  std::vector<Member> members_;
  std::vector<std::vector<int>> hosts_;
  bool adds_in_line_ = true;
  bool has_left_ = false;
  std::mutex network_mutex_;  // for the watch's thread, which ends what the network waits for
  bool lost_ = false;
  std::unique_ptr<Watch> watch_;              // none for a group of one
  std::unique_ptr<NetworkExchange> network_;  // of the first rank of a host where there are several
  std::unique_ptr<HostExchange> host_;        // where several ranks are on this host
};

}  // namespace shoal::group
