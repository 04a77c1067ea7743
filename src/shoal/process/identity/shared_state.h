// The state that the workers of one group share with each other and with their parent: counters and
// named values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/os/fd.h"
#include "shoal/process/identity/shared_values.h"
#include "shoal/shm/arena.h"
#include "shoal/shm/counters.h"

namespace shoal::process {

/// A segment with a table of counters and one of values; a resource.
///
/// Threads, processes: any.
/// Death: on any line; counters and values stay whole (shm::Counters, SharedValues).
/// Fork: the child has the same segment.
class SharedState {
 public:
  static constexpr std::size_t kCounters = 256;
  static constexpr std::size_t kValueBytes = 64 * 1024;

  /// Throws InvalidArgument for 0 `value_bytes`, SystemError when memory is short.
  static std::shared_ptr<SharedState> create(std::size_t value_bytes = kValueBytes);
  /// Maps what another process made, and closes the descriptor. Throws Error when it is
  /// something else.
  static std::shared_ptr<SharedState> attach(os::Fd fd);

  /// The counter of this name, made when it is asked for first. Throws InvalidArgument for a name
  /// that is empty or longer than 55 bytes, and when there are kCounters others.
  shm::Counter counter(std::string_view name);
  std::vector<std::pair<std::string, std::int64_t>> counters() const;
  const SharedValues& values() const noexcept { return values_; }

  /// To send to another process; -1 where it was attached, and after close_fd().
  int fd() const noexcept { return arena_.fd(); }
  void close_fd() noexcept { arena_.close_fd(); }

 private:
  SharedState(shm::Arena arena, shm::Counters counters, SharedValues values) noexcept
      : arena_(std::move(arena)), counters_(counters), values_(values) {}

  shm::Arena arena_;
  shm::Counters counters_;
  SharedValues values_;
};

}  // namespace shoal::process
