// The first ranks of several hosts, through TCP connections.
//
// What is small goes by rank 0, and comes back: one round trip. Large sums are shared out between
// all hosts: each is sent one share of the elements by all others, adds it, and sends them the sum.
// So each sends and receives 2 (H - 1) / H times what there is, both at once, where rank 0 would
// receive it H - 1 times and send it as often. A ring moves as much in 2 (H - 1) steps, one after
// the other; here there are two. Both ways add in the one order of pairwise_sum.h.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "shoal/group/watch.h"
#include "shoal/os/socket/stream.h"

namespace shoal::group {

/// A resource.
///
/// Threads: one at a time; shutdown() from any.
/// Processes: the first rank of each host. All do the same operations in the same order, with the
/// same sizes but for gather().
/// Death: of another rank: its loss is thrown from the operation that waits for it.
class NetworkExchange {
 public:
  /// Bytes of a sum from which it is shared out.
  static constexpr std::size_t kSharedFrom = std::size_t{16} * 1024;

  /// Borrows the watch. `streams`: by host, to all others, or, of all but host 0, to host 0 alone;
  /// `index`: which host this is; `ranks`: the first of each; `full`: all are connected to all.
  NetworkExchange(std::vector<os::Stream> streams, std::vector<int> ranks, std::size_t index,
                  bool full, Watch& watch);

  /// As HostExchange::sum(), a host being a rank.
  void sum(std::span<float> floats, std::span<double> doubles);
  /// Everybody gets what host 0 has.
  void broadcast(std::span<std::byte> bytes);
  /// At host 0 what each has, by host; elsewhere nothing.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes);
  /// Everybody gets what each has into `of_hosts`, where its own is already.
  void gather_for_all(std::span<const std::span<std::byte>> of_hosts);

  /// Ends every operation under way.
  void shutdown() noexcept;

 private:
  /// What goes to one host, and what comes from it.
  struct Traffic {
    std::vector<std::span<const std::byte>> out;
    std::vector<std::span<std::byte>> in;
  };

  std::size_t hosts() const noexcept { return streams_.size(); }
  void send(std::size_t to, std::span<const std::byte> bytes);
  void receive(std::size_t from, std::span<std::byte> bytes);
  /// All of it, in both directions at once; by host, nothing for this one.
  void exchange(std::vector<Traffic> traffic);
  /// Whether some of it went or came.
  bool move_some(std::size_t host, Traffic& traffic);
  template <class T>
  void add_up(std::span<T> own);
  void share_out(std::span<float> floats, std::span<double> doubles);
  template <class T>
  std::span<T> share(std::span<T> all, std::size_t host) const noexcept;

  std::vector<os::Stream> streams_;
  const std::vector<int> ranks_;
  const std::size_t index_;
  const bool full_;
  Watch& watch_;
  std::vector<std::vector<std::byte>> parts_;  // by host: what it sent to be added
};

}  // namespace shoal::group
