// Which of several sets of observation arrays the next result goes to, so that a caller may keep a
// result without a copy of it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

namespace shoal::vector {

/// Sets are lent and come back when the last copy of the lease is gone. A set that is lent is never
/// handed out by advance().
///
/// Threads: one calls; leases may be dropped in any.
/// Processes, death: the caller's own, and ends with it.
/// Memory ordering: what the holder of a lease read of the set it has read before advance() hands
/// the set out (release when a lease is dropped, acquire where the set is found free, [lent]).
class ObsSets {
 public:
  explicit ObsSets(int count = 1);

  int current() const noexcept { return current_; }

  /// The set for the next result: the current one unless that is lent.
  int advance() noexcept;

  /// Lends the current set. Empty when no other would be left for the next result.
  std::shared_ptr<const void> lease();

 private:
  bool is_free(int set) const noexcept;
  int first_free() const noexcept;

  std::vector<std::shared_ptr<std::atomic<int>>> leases_;  // how many of each set are held
  int current_ = 0;
};

}  // namespace shoal::vector
