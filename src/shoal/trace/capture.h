// Listens to the recorders of processes, this one's or others', and keeps what they record.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/os/fd.h"
#include "shoal/os/memory/mapping.h"
#include "shoal/os/memory/memfd.h"
#include "shoal/trace/event.h"
#include "shoal/trace/recorder.h"

namespace shoal::trace {

/// What was recorded of a process; a value.
struct CapturedProcess {
  pid_t pid = 0;
  std::uint64_t born = 0;
  std::string name;                              // what it called itself, or its command
  std::map<std::uint32_t, std::string> threads;  // their names, as the kernel has them
  std::vector<Event> events;                     // in the order in which they ended, nearly
  std::uint64_t lost = 0;                        // overwritten before they were read
};

/// A resource. One listens to a process at a time.
///
/// Threads: one at a time.
/// Processes: writes a word of each recorder it listens to, and reads the rest.
/// Death: of a process that is listened to: what it recorded is kept. Of this one: the recorders go
/// off by themselves within kLease.
class Capture {
 public:
  static constexpr std::chrono::milliseconds kLease{1000};
  /// Of all processes together: then poll() says that there is no room.
  static constexpr std::size_t kMaxEvents = std::size_t{8} << 20;

  Capture() = default;
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Listens to the recorder of this descriptor from now on. False where it does already, and for a
  /// recorder that another process has from a fork. Throws Error for what is no recorder, or one of
  /// another version; InvalidState where somebody else listens.
  bool add(os::Fd fd);

  /// Takes what has been recorded, and goes on listening; to be called every few milliseconds. False:
  /// there are kMaxEvents, and no more are kept.
  bool poll();

  /// Listens no longer, and takes the rest. Once.
  void stop();

  std::size_t listeners() const noexcept { return sources_.size(); }
  /// After stop().
  std::span<const CapturedProcess> processes() const noexcept { return processes_; }

 private:
  /// One moment on both clocks.
  struct Moment {
    std::uint64_t ticks = 0;
    std::uint64_t ns = 0;
    static Moment now() noexcept;
  };
  struct Source {
    os::Memfd memfd;
    os::Mapping mapping;
    std::pair<std::uint64_t, std::uint64_t> file;  // device and inode
    RecorderHeader* header = nullptr;
    sync::EventRing ring;
    std::uint64_t read = 0;  // the next record
    std::size_t process = 0;
  };

  void drain(Source& source, bool last);
  void turn_ticks_into_ns() noexcept;
  void keep(CapturedProcess& process, const Event& event);

  std::vector<Source> sources_;
  std::vector<CapturedProcess> processes_;
  std::size_t kept_ = 0;
  const Moment begin_ = Moment::now();
};

}  // namespace shoal::trace
