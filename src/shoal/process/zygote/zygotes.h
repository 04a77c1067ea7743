// The zygotes of all launchers of a process: which exist, and how long an idle one stays.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "shoal/os/clock.h"

namespace shoal::process {

/// Shared by launchers (LaunchOptions::zygotes), so that their idle zygotes, of some 20 MiB each,
/// stay few. A zygote is idle when it has no worker and no start is under way. When its launcher is
/// to start a worker after the zygote has ended, it makes a fresh one. A resource.
///
/// Threads: any.
/// Processes: the launchers' own.
/// Death: of a zygote: its ZygoteGroup removes it.
/// Fork: a child must make its own; a lock of this one may be held for ever there.
class Zygotes {
 public:
  struct Limits {
    /// How many idle ones stay; of more than that, those end that have been idle longest. One that
    /// has had no worker yet does not count.
    int idle = 4;
    /// One that has been idle for so long ends.
    std::chrono::milliseconds idle_time{120'000};
  };

  /// How a zygote is used. A value.
  struct Use {
    std::size_t workers = 0;
    bool has_had_workers = false;
    std::optional<os::Deadline> idle_since = {};  // nothing: it is not idle
  };

  struct Entry {
    int pid = -1;
    std::vector<std::string> preload;
    os::Deadline started{};
    Use use = {};
  };

  explicit Zygotes(Limits limits) : limits_(limits) {}

  Limits limits() const;
  /// Applies to those that are idle now, too.
  void set_limits(Limits limits);

  /// Those that exist, in the order in which they were started.
  std::vector<Entry> list() const;

  // For ZygoteGroup.

  /// Asks a zygote's owner to look at its use again, and where `end` is true to end the zygote if
  /// it is still idle. Called from any thread, with a lock held: it must hand the work on.
  using Review = std::function<void(bool end)>;
  std::uint64_t add(Entry entry, Review review);
  void set_preload(std::uint64_t id, std::vector<std::string> preload);
  void update(std::uint64_t id, const Use& use);
  /// After this its Review is not called any more.
  void remove(std::uint64_t id);

 private:
  struct Member {
    Entry entry;
    Review review;
    bool asked_to_end = false;
  };
  void end_the_longest_idle();

  mutable std::mutex mutex_;  // guards the rest
  Limits limits_;
  std::map<std::uint64_t, Member> members_;
  std::uint64_t next_id_ = 1;
};

}  // namespace shoal::process
