// What an object counts, for those who look at this machine from outside: `shoal stat`.
//
// A board is a segment of its own whose memfd is called kBoardName. The process that made it keeps
// the descriptor, so that any process of the user finds it in /proc/PID/fd and reads it: no file, no
// name to register, nothing to clean up, and no word between the two.
//
//   offset from the arena's base
//        0    8  magic       "SHOALBRD"
//        8    4  version     kBoardVersion
//       12    4  pid         of the process that made it
//       16    8  born        when that process started, as field 22 of /proc/PID/stat has it: a
//                            later process with its number is another one
//       24    8  started_ns  os::now_ns() of the board
//       32    4  ended       1: the object is no more, and others still hold the memory
//       36    4  zero
//       40   24  kind        zero-terminated, cut to fit, as the next
//       64   64  title
//      128    …  Counters, shm/counters.h
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/os/fd.h"
#include "shoal/shm/arena.h"
#include "shoal/shm/counters.h"

namespace shoal::shm {

inline constexpr const char* kBoardName = "shoal board";
inline constexpr std::uint32_t kBoardVersion = 1;

/// A board as it reads now; a value.
struct BoardReading {
  pid_t pid = 0;
  std::uint64_t born = 0;
  std::uint64_t started_ns = 0;
  bool ended = false;
  std::string kind, title;
  std::vector<std::pair<std::string, std::int64_t>> counters;
};

/// A resource. Counters are made with it; the rest of the program only stores to them.
///
/// Threads, processes: one sets texts, any set counters, any read.
/// Memory ordering: relaxed; a board orders nothing, and a reader may see some counters of one
/// moment and some of the next.
/// Death: the kernel frees it with the last process that has it; until then it reads as it was.
/// Fork: the child shares it, and its copy of the object does not end it.
class Board {
 public:
  /// Where there is no memory or descriptor for one it counts all the same, unseen: what it is for
  /// goes on. `names` are those of the counters, of at most CounterSlot::kMaxNameBytes.
  Board(std::string_view kind, std::span<const std::string> names);
  ~Board();
  Board(Board&& other) noexcept;
  Board& operator=(Board&&) = delete;

  Counter operator[](std::size_t index) const noexcept { return counters_[index]; }
  std::size_t size() const noexcept { return counters_.size(); }
  void set_kind(std::string_view kind) noexcept;
  void set_title(std::string_view title) noexcept;
  /// What it is for is no more. Nothing in a forked copy. The destructor does it, too.
  void end() noexcept;
  /// Of another process, say. Maps it for reading only. Throws Error for what is no board, or one of
  /// another version.
  static BoardReading read(os::Fd fd);

  /// -1: it is unseen.
  int fd() const noexcept { return arena_ ? arena_.fd() : -1; }

 private:
  struct Header;

  std::span<std::byte> memory_for(std::size_t counters);

  Arena arena_;
  std::vector<CounterSlot> unseen_;  // the memory where there is no arena
  Header* header_ = nullptr;
  Counters counters_;
};

/// Field 22 of /proc/PID/stat; 0 when there is no such process. A zombie has one, too.
std::uint64_t start_of_process(pid_t pid) noexcept;

}  // namespace shoal::shm
