// The spans of this process, for those who look at it from outside: `shoal trace`.
//
//   trace::Scope scope(trace::Span::kUpdate);   // until the end of the block
//
// A process that has a recorder has a memfd called kRecorderName, which any process of the user finds
// in /proc/PID/fd, as a board (shm/board.h). It is off, and costs two loads at each span, until
// somebody maps it and writes until when he listens; it goes off by itself when that has passed.
//
//   offset
//        0    8  magic     "SHOALTRC"
//        8    4  version   kRecorderVersion
//       12    4  pid       of the process
//       16    8  born      when it started (shm::start_of_process())
//       24    8  slots     of the ring
//       32   64  name      zero-terminated, cut to fit
//      128    8  until_ns  os::now_ns(): spans that end before it are recorded
//      256    8  next      of the ring
//     4096    …  the ring's slots (sync/event_ring.h), which have no memory before somebody listens
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shoal/os/clock.h"
#include "shoal/sync/event_ring.h"
#include "shoal/trace/span.h"

namespace shoal::trace {

inline constexpr const char* kRecorderName = "shoal trace";
inline constexpr std::uint32_t kRecorderVersion = 1;
inline constexpr std::size_t kRecorderHeaderBytes = 4096;
inline constexpr std::size_t kRecorderSlots = std::size_t{1} << 16;

struct RecorderHeader {
  char magic[8];
  std::uint32_t version;
  std::int32_t pid;
  std::uint64_t born;
  std::uint64_t slots;
  char name[64];
  alignas(128) std::atomic<std::uint64_t> until_ns;
  alignas(128) std::atomic<std::uint64_t> next;
};
static_assert(sizeof(RecorderHeader) == 384);

struct Recorder;

// Of the process; null before open(), and in a forked child. Set once, never freed.
extern std::atomic<Recorder*> process_recorder;

/// One of a process; open() makes it.
///
/// Threads: any.
/// Processes: each has its own. Whoever listens maps it, too, and writes `until_ns`.
/// Memory ordering: `until_ns` is relaxed: who sees it late records, or leaves out, some spans more.
/// Death: the kernel frees it with the last process that has it; a killed process loses the spans
/// that it was in.
/// Fork: the child has none before it calls open().
struct Recorder {
  RecorderHeader* header;
  sync::EventRing ring;
};

/// Makes this process's recorder where it has none. Nothing where there is no memory or descriptor
/// for one.
void open() noexcept;
/// What the process is, for who listens: "worker 3". Opens the recorder.
void open(std::string_view name) noexcept;

/// Whether somebody listens, or did a moment ago.
inline bool is_on() noexcept {
  const Recorder* recorder = process_recorder.load(std::memory_order_acquire);  // [recorder]
  // relaxed: see above
  return recorder != nullptr && recorder->header->until_ns.load(std::memory_order_relaxed) != 0;
}

/// Records a span, if somebody listens. Times are os::now_ns().
void record(Span span, std::uint64_t start_ns, std::uint64_t end_ns,
            std::uint64_t arg = 0) noexcept;

/// The same where the times have been taken anyway; to be called with little around it.
inline void note(Span span, std::uint64_t start_ns, std::uint64_t end_ns,
                 std::uint64_t arg = 0) noexcept {
  if (is_on()) [[unlikely]]
    record(span, start_ns, end_ns, arg);
}

/// A span from here to the end of the block; takes no time, and no clock, while nobody listens.
class Scope {
 public:
  explicit Scope(Span span, std::uint64_t arg = 0) noexcept
      : arg_(arg), start_ns_(is_on() ? os::now_ns() : 0), span_(span) {}
  ~Scope() {
    if (start_ns_ != 0) [[unlikely]]
      record(span_, start_ns_, os::now_ns(), arg_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const std::uint64_t arg_;
  const std::uint64_t start_ns_;
  const Span span_;
};

}  // namespace shoal::trace
