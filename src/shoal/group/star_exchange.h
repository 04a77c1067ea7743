// The first ranks of several hosts, through TCP connections to rank 0.
//
// By bytes a star is as good as anything for few hosts: rank 0 receives and sends (H - 1) times as
// much as there is, where a ring would move twice as much through each.
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
class StarExchange {
 public:
  /// Borrows the watch. `others`: to rank 0; of rank 0 to the first ranks of the other hosts, in
  /// their order. `ranks`: whose they are.
  StarExchange(std::vector<os::Stream> others, std::vector<int> ranks, bool is_root, Watch& watch);

  /// As HostExchange::sum(), a host being a rank.
  void sum(std::span<float> floats, std::span<double> doubles);
  /// Everybody gets what rank 0 has.
  void broadcast(std::span<std::byte> bytes);
  /// At rank 0 what each has, its own first; elsewhere nothing.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes);

  /// Ends every operation under way.
  void shutdown() noexcept;

 private:
  void send(std::size_t to, std::span<const std::byte> bytes);
  void receive(std::size_t from, std::span<std::byte> bytes);
  template <class T>
  void add_up(std::span<T> own);

  std::vector<os::Stream> others_;
  const std::vector<int> ranks_;
  const bool is_root_;
  Watch& watch_;
  std::vector<std::vector<std::byte>> parts_;  // of rank 0: what each of the others sent
};

}  // namespace shoal::group
