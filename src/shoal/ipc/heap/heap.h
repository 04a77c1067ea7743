// The memory that a family of processes shares, in blocks that are counted for each holder.
//
// A family is the process that first needs a heap and all that are started from it. The heap is one
// sealed memfd: no name, one descriptor a process, mapped once at any address; blocks are named by
// offsets. A block lives while somebody holds it: a process (one reference a process, which counts
// privately how often), or another block (a message holds what is named in it; a queue's block
// holds the messages that nobody took yet), which gives back what it holds when it is freed itself.
//
// Threads: any.
// Processes: any of the family, at the same time.
// Invariants: the memory of a block is allocated before the block is handed out. Too little memory
// is an exception then, never a SIGBUS later.
// Memory ordering: who learns of a block through the heap (by take(), or by acquire() after a lock
// of its own) sees what was written into the block before.
// Death: the next process that locks the heap finishes or undoes what the dead one was changing;
// sweep() gives back what it held. A process that is stopped within a call stops the others' calls.
// Fork (by libc's fork(), from any code): the child has a slot of its own and holds what its parent
// held, before fork() returns in either.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "shoal/ipc/heap/blocks.h"
#include "shoal/ipc/heap/heap_segment.h"
#include "shoal/ipc/heap/held_table.h"
#include "shoal/ipc/heap/process_slot.h"
#include "shoal/ipc/heap/process_slots.h"
#include "shoal/ipc/heap/references.h"

namespace shoal::ipc {

struct HeapOptions {
  std::uint64_t bytes = 0;  // of address space; 0: four times the machine's memory
};

/// What a block is for.
enum class BlockKind : std::uint8_t { kData = 0, kMessage = 1, kQueue = 2, kSync = 3 };
inline constexpr std::size_t kBlockKinds = 4;

/// A word of the heap (8-byte aligned offset) that changes together with a reference.
struct Write {
  Offset place = 0;
  std::uint64_t value = 0;
};

struct HeapStats {
  std::uint64_t bytes = 0;         // of address space
  std::uint64_t blocks = 0;        // that somebody holds
  std::uint64_t block_bytes = 0;   // as they were asked for
  std::uint64_t references = 0;    // of processes and of blocks
  std::uint64_t used_bytes = 0;    // of memory: blocks, their headers, slabs
  std::uint64_t cached_bytes = 0;  // of memory that is free for the next blocks
  std::uint64_t processes = 0;     // slots in use
  std::uint64_t held_here = 0;     // blocks that this process holds
};

/// Who holds how much. A block with several holders counts for each of them.
struct HolderStats {
  struct Process {
    ProcessSlot slot;
    pid_t pid = 0;
    std::uint64_t blocks = 0;
    std::uint64_t bytes = 0;
  };
  struct Kind {
    std::uint64_t blocks = 0;      // of this kind
    std::uint64_t bytes = 0;       // of them
    std::uint64_t references = 0;  // that they hold themselves
  };
  std::vector<Process> processes;
  std::array<Kind, kBlockKinds> kinds;  // by BlockKind
};

/// A resource; at most one a process. Its contract is at the top of this file.
class Heap {
 public:
  /// At most so many words can change together with a reference.
  static constexpr std::size_t kMaxWrites = 24;

  /// This process's heap, made now. Throws InvalidState when there is one; SystemError naming sizes
  /// and limits.
  static std::shared_ptr<Heap> create(HeapOptions options = {});

  /// Attaches the heap that another process of the family made; takes over the descriptor. Returns
  /// here() when that is the same heap. Throws Error when it is no heap of this version, and
  /// InvalidState when this process has another one.
  static std::shared_ptr<Heap> attach(os::Fd fd);

  /// This process's heap, made when there is none yet.
  static std::shared_ptr<Heap> here();
  static bool exists() noexcept;

  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// To hand to a child; valid as long as the heap.
  int fd() const noexcept { return segment_.memfd().fd(); }
  /// A random number that is the same in all processes of the family: a handle of another family
  /// has another one.
  std::uint64_t id() const noexcept { return segment_.header().id; }

  ProcessSlot self() const noexcept { return self_; }
  /// Whether that process still runs; asks the kernel (some microseconds).
  bool alive(ProcessSlot slot) const noexcept { return slots_.alive(slot); }
  /// Who is in the slot of that index now; nobody when it is free.
  ProcessSlot slot_at(std::uint32_t index) const noexcept { return slots_.at(index); }
  /// The id of the process that has this slot; 0 when another one, or nobody, has it by now.
  pid_t pid_of(ProcessSlot slot) const noexcept { return slots_.process(slot).pid; }

  /// Gives back what dead processes held; returns how many there were. attach() does so, and
  /// allocate() before it fails for want of memory.
  std::size_t sweep();

  /// sweep() for the one process `pid`, for who has learned that it ended. Does nothing where there
  /// is no heap, or where the process was not of the family.
  static void process_ended(pid_t pid) noexcept;

  /// A block of uninitialised bytes, 64-byte aligned, that this process holds once. Throws
  /// OutOfMemory.
  Offset allocate(std::size_t bytes, BlockKind kind = BlockKind::kData);

  /// Holds a block once more. `serial` (of serial_of(), 0: any) tells a freed block from its
  /// successor. Throws Error when there is no such block, OutOfMemory.
  void acquire(Offset block, std::uint64_t serial = 0);
  void release(Offset block) noexcept;

  /// The block `holder` holds these blocks, too, until it is freed itself. This process must hold
  /// all of them.
  void hold(Offset holder, std::span<const Offset> blocks);

  /// Moves one of this process's references to the block `holder`, and changes these words, in one
  /// transaction. A block can be given to one holder at a time. Throws InvalidState when it is
  /// given already, OutOfMemory.
  void give(Offset block, Offset holder, std::span<const Write> writes = {});

  /// Makes a block that was given to `holder` a reference of this process, and changes these words,
  /// in one transaction. Throws InvalidState when it was not given.
  void take(Offset block, Offset holder, std::span<const Write> writes = {});

  /// Whether `block` is one of this kind that was given to `holder`, who has it still. For offsets that anybody may have
  /// written: no bytes of a block are taken for what the heap knows.
  bool is_given(Offset block, Offset holder, BlockKind kind) const noexcept;

  /// Changes these words: all, or none.
  void write(std::span<const Write> writes) noexcept;

  std::byte* base() const noexcept { return segment_.base(); }
  std::byte* at(Offset block) const noexcept { return segment_.base() + block; }
  std::size_t size_of(Offset block) const noexcept;      // bytes that were asked for
  std::uint64_t serial_of(Offset block) const noexcept;  // of the block's allocation
  bool contains(const void* address) const noexcept;     // within the heap's address space
  Offset offset_of(const void* payload) const noexcept;  // of an address that at() gave

  /// Whether anybody still holds the block that had this serial.
  bool lives(Offset block, std::uint64_t serial) const noexcept;

  /// Whether this process holds the block once and nobody else holds it. If so, nobody but the
  /// caller can come to hold it, and the caller sees what the last other holder did before its
  /// release.
  bool is_sole_holder(Offset block) noexcept;

  /// The block of this process that this address lies in; 0 when there is none. An address at the
  /// start of a block costs a look-up, one within a block a walk over all that this process holds.
  Offset held_around(const void* address) noexcept;

  HeapStats stats() const;

  /// Walks all blocks, as check() does.
  HolderStats holders() const;

  /// Walks all of the heap, locked, and returns the contradictions it finds; an empty list when all
  /// is well. Takes milliseconds for 10,000 blocks.
  std::vector<std::string> check() const;

 private:
  friend struct HeapFork;

  explicit Heap(HeapSegment segment);
  static std::shared_ptr<Heap> install(HeapSegment segment);

  std::uint64_t self_place() const noexcept { return slots_.place(self_.index); }
  Holder self_holder() const noexcept { return Holder::process(self_place()); }
  void require_usable() const;

  bool allocate_from_free(const BlockSpec& spec, Offset& payload);
  bool allocate_from_new(const BlockSpec& spec, Offset& payload);
  void acquire_pages(const BlockSpec& spec, PageRun& run);
  void give_back_pending(std::uint64_t first_page) noexcept;
  [[noreturn]] void throw_out_of_memory(const BlockSpec& spec, const std::string& why) const;
  void look_at_memory(const BlockSpec& spec);
  void purge(std::uint64_t keep_pages, bool must) noexcept;
  void finish_dying() noexcept;
  bool sweep_slot(ProcessSlot slot);

  HeapSegment segment_;
  Blocks blocks_;
  References references_;
  ProcessSlots slots_;
  ProcessSlot self_;
  bool lost_ = false;  // a child whose parent died while it was being born

  // Locks in this order; then the heap's.
  std::mutex pages_mutex_;    // who gets pages or gives them back: one at a time
  mutable std::mutex mutex_;  // held_
  HeldTable held_;
  std::uint64_t budget_bytes_ = 0;  // that may be allocated before the next look; pages_mutex_
  std::uint64_t cache_pages_;
};

}  // namespace shoal::ipc
