// What the workers of a vector environment are asked beyond steps and resets, one of them or all.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/vector/workers/pool_messages.h"

namespace shoal::vector {

class WorkerSet;

/// The calls are VectorEnv's. A worker that is away is waited for.
///
/// Threads: the caller's.
/// Death of a worker that was asked: WorkerDied is thrown when the others have answered, and the
/// policy has begun its work.
/// Processes: the caller's.
class WorkerRequests {
 public:
  explicit WorkerRequests(WorkerSet& set) : set_(set) {}

  std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                 std::optional<std::chrono::nanoseconds> timeout);
  void request_async(std::span<const std::vector<std::byte>> messages);
  std::vector<std::vector<std::byte>> request_wait(std::optional<std::chrono::nanoseconds> timeout);

 private:
  struct Asked {
    int worker;
    std::uint64_t sequence;
    std::optional<PoolMessage> answer;  // with kind 0: there is none to be had
  };

  std::uint64_t ask(int worker, std::span<const std::byte> message, os::Deadline deadline);
  void await_up(int worker, os::Deadline deadline);
  PoolMessage await_answer(int worker, std::uint64_t sequence, os::Deadline deadline);
  std::vector<std::byte> take_answer(int worker, PoolMessage answer);

  WorkerSet& set_;
  std::vector<Asked> asked_;  // by request_async()
};

}  // namespace shoal::vector
