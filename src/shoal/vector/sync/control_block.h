// The shared segment of a ProcessVectorEnv: control words, rows, and room for the workers' infos.
//
//   offset from the arena's base
//        0   ControlHeader                      written once, before any worker sees it
//      128   sync::Doorbell                     parent -> all workers: look at your command
//      256   sync::Gather                       workers -> parent: done
//      384   WorkerCell [num_workers]           384 bytes each
//        …   rows        (page)                 vector/step/rows.h
//        …   infos       (page)                 info_bytes of each worker
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shoal/shm/arena.h"
#include "shoal/sync/doorbell.h"
#include "shoal/sync/gather.h"
#include "shoal/vector/step/autoreset.h"

namespace shoal::vector {

enum class Command : std::uint8_t { kNone, kReset, kStep };

inline constexpr std::uint32_t kControlVersion = 3;

/// What a worker has to say of a command beyond its rows.
enum class WorkerFailure : std::uint32_t {
  kNone = 0,
  kWorker = 1,        // the command failed; FAULTS is on the channel
  kEnvironments = 2,  // some environments failed, the others are done; likewise
};

struct ControlHeader {
  char magic[8];  // "SHOALVEC"
  std::uint32_t version;
  std::uint32_t num_workers;
  std::uint32_t num_envs;
  std::uint32_t autoreset_mode;
  std::uint32_t cpus;  // that the parent may use: a pinned worker sees only its own
  std::uint32_t obs_sets;
  std::uint64_t rows_offset;
  std::uint64_t info_offset;
  std::uint64_t info_bytes;  // of each worker
};
static_assert(sizeof(ControlHeader) == 56);

/// One worker's words.
///
/// The command is the truth and the doorbell only the hint to look at it: a worker obeys a command
/// whose sequence it has not obeyed yet, however many rings it slept through or saw too early.
///
/// Memory ordering: `command` is release by the parent, acquire by the worker: actions, seeds and
/// masks are visible ([command]). `done` is release by the worker before it arrives at the gather,
/// acquire by the parent when it looks for deaths ([done]). The rest is relaxed and ordered by
/// these two.
///
/// Death: a worker whose `done` is not the sequence has not arrived at the gather; so the parent
/// may arrive for it.
struct WorkerCell {
  /// Larger than any info that fits: the info travels over the channel.
  static constexpr std::uint64_t kInfoOnChannel = UINT64_MAX;

  // Written by the parent, before the command where it is not the command itself.
  alignas(128) std::atomic<std::uint64_t> command;  // sequence << 8 | set of obs << 4 | Command
  std::atomic<std::uint32_t> has_orders;            // 1: some row's order is not RowOrder::kObey
  std::atomic<std::uint32_t> hold_resets;           // Stepper::hold_resets()

  // Written by the worker.
  alignas(128) std::atomic<std::uint64_t> done;  // sequence of the last command obeyed
  std::atomic<std::uint64_t> info_bytes;         // 0, the bytes in its info area, or kInfoOnChannel
  std::atomic<std::uint32_t> failed;             // WorkerFailure
  std::atomic<std::int32_t> env_now;             // EnvMarker's words
  std::atomic<std::uint64_t> env_since;

  // Written by the worker, for stats().
  alignas(128) std::atomic<std::uint64_t> steps;
  std::atomic<std::uint64_t> resets;
  std::atomic<std::uint64_t> requests;
  std::atomic<std::uint64_t> busy_ns;
  std::atomic<std::uint64_t> parks;

  static constexpr int kMaxObsSets = 16;

  /// `obs_set`: the observations go there (rows.h).
  static constexpr std::uint64_t pack(std::uint64_t sequence, Command command,
                                      int obs_set = 0) noexcept {
    return sequence << 8 | static_cast<std::uint64_t>(obs_set) << 4 |
           static_cast<std::uint64_t>(command);
  }
  static constexpr std::uint64_t sequence_of(std::uint64_t word) noexcept { return word >> 8; }
  static constexpr Command command_of(std::uint64_t word) noexcept {
    return static_cast<Command>(word & 0xf);
  }
  static constexpr int obs_set_of(std::uint64_t word) noexcept {
    return static_cast<int>(word >> 4 & 0xf);
  }
};
static_assert(sizeof(WorkerCell) == 384 && std::atomic<std::uint64_t>::is_always_lock_free);

/// The segment as one process sees it; a resource.
/// Threads: any; who may write what, the drawing and the structs say.
/// Processes: the parent makes it; each worker attaches it, and maps it at its own address.
/// Death: of a worker: a command that is not done in its cell has not arrived, so the parent
/// arrives for it.
class ControlBlock {
 public:
  ControlBlock() = default;

  /// Throws SystemError when memory is short, InvalidArgument for more workers than the gather can
  /// count.
  static ControlBlock create(int num_workers, int num_envs, AutoresetMode mode, int obs_sets,
                             std::size_t rows_bytes, std::size_t info_bytes);
  /// Throws Error when `arena` holds something else or another version.
  static ControlBlock attach(shm::Arena arena);

  /// For who only looks on: a copy of the header where an arena with this `data` is one of ours, and
  /// the offset of the cells.
  static std::optional<ControlHeader> header_in(std::span<const std::byte> data) noexcept;
  static std::size_t cells_at(const ControlHeader& header) noexcept;

  const ControlHeader& header() const noexcept { return header_; }
  sync::Doorbell& doorbell() const noexcept { return *doorbell_; }
  sync::Gather& gather() const noexcept { return *gather_; }
  WorkerCell& cell(int worker) const noexcept { return cells_[worker]; }
  std::byte* rows() const noexcept { return arena_.base() + header_.rows_offset; }
  std::span<std::byte> info(int worker) const noexcept;

  int fd() const noexcept { return arena_.fd(); }
  void close_fd() noexcept { arena_.close_fd(); }

 private:
  ControlBlock(shm::Arena arena, const ControlHeader& header);

  shm::Arena arena_;
  ControlHeader header_{};  // a copy: what was checked stays so
  sync::Doorbell* doorbell_ = nullptr;
  sync::Gather* gather_ = nullptr;
  WorkerCell* cells_ = nullptr;
};

}  // namespace shoal::vector
