// The segment that a server shares with all its clients: the doorbell that tells it of work, and
// its statistics.
//
//   offset  bytes  field
//        0    128  work     rung for every row that is ready, and for all else that the executor
//                           is to see
//      128      4  magic    "SHAL"
//      132      4  version  kServerSegmentVersion
//      136      4  models
//      140      4  clients  connected now: how many may want a CPU
//      144      8  started  os::now_ns() of the server's start
//      152    104  zero
//      256      …  ModelStatistics of each model
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/serve/statistics.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/doorbell.h"

namespace shoal::serve {

inline constexpr std::uint32_t kServerSegmentVersion = 2;

struct ServerSegmentHeader {
  sync::Doorbell work;
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t models;
  std::atomic<std::uint32_t> clients;
  std::uint64_t started_ns;
  std::uint32_t pid;
  char zero[100];
};
static_assert(sizeof(ServerSegmentHeader) == 256);

/// The segment, mapped; a resource.
///
/// Threads, processes: any may read and ring; the server sets the clients, its executor the
/// statistics.
/// Memory ordering: of the doorbell; counters order nothing.
/// Death: of the server: the counters stay as they are for whoever has the segment mapped.
class ServerSegment {
 public:
  ServerSegment() = default;
  /// Throws InvalidArgument for a name that is empty, too long or there twice.
  static ServerSegment create(std::span<const std::string> models);
  /// Throws Error when the segment is something else.
  static ServerSegment attach(os::Fd fd);

  sync::Doorbell& work() const noexcept { return header_->work; }
  /// Relaxed: a hint for those who would spin.
  std::uint32_t clients() const noexcept {
    return header_->clients.load(std::memory_order_relaxed);
  }
  void set_clients(std::uint32_t n) const noexcept {
    header_->clients.store(n, std::memory_order_relaxed);
  }
  std::span<ModelStatistics> models() const noexcept { return models_; }
  std::uint64_t started_ns() const noexcept { return header_->started_ns; }
  /// Of the process that made it: the server's.
  pid_t pid() const noexcept { return static_cast<pid_t>(header_->pid); }
  int fd() const noexcept { return arena_.fd(); }
  explicit operator bool() const noexcept { return header_ != nullptr; }

 private:
  shm::Arena arena_;
  ServerSegmentHeader* header_ = nullptr;
  std::span<ModelStatistics> models_;
};

}  // namespace shoal::serve
