// Who uses a replay, and what is done when one of them has died; all that it holds, out and in.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "shoal/collect/replay/replay.h"
#include "shoal/collect/replay/replay_change.h"
#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/os/fault_point.h"
#include "shoal/os/process/process_id.h"

namespace shoal::collect {

/// What it protects is whole at every line: a member's place is taken by its last word, and a gate
/// that is closed says that a repair has to be made again.
class Replay::Locked {
 public:
  explicit Locked(const Replay& replay) : lock_(*replay.lock_) { static_cast<void>(lock_.lock()); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  sync::RobustLock& lock_;
};

Replay::Change::Change(Replay& replay) : replay_(replay) {
  while (!replay_.gate_->try_enter(replay_.me_)) {
    const Locked locked(replay);                                       // who repairs has it
    if (replay_.gate_->is_closed()) replay_.repair_locked(kPatience);  // and has died
  }
}

void Replay::join() {
  const os::ProcessId self = os::this_process();
  const Locked locked(*this);
  std::size_t free = 0;
  while (free < kMostMembers && members_[free].pid.load(std::memory_order_relaxed) != 0) ++free;
  if (free == kMostMembers) {
    repair_locked(kPatience);
    for (free = 0; free < kMostMembers; ++free)
      if (members_[free].pid.load(std::memory_order_relaxed) == 0) break;
  }
  if (free < kMostMembers) {
    members_[free].start_time.store(self.start_time, std::memory_order_relaxed);
    members_[free].image.store(self.image, std::memory_order_relaxed);
    SHOAL_FAULT_POINT("replay.join.named");
    members_[free].pid.store(static_cast<std::uint64_t>(self.pid), std::memory_order_relaxed);
    me_ = free;
  }
  if (me_ == kNoMember)
    throw InvalidState(fmt::format("attach a replay: it has {} members, the most", kMostMembers));
}

void Replay::leave() noexcept {
  if (me_ == kNoMember || !maker_.is_this()) return;  // in a forked child the place is its parent's
  const Locked locked(*this);
  members_[me_].pid.store(0, std::memory_order_relaxed);
  me_ = kNoMember;
}

bool Replay::is_alive(std::size_t member) const noexcept {
  const Member& its = members_[member];
  return os::is_running({.pid = static_cast<pid_t>(its.pid.load(std::memory_order_relaxed)),
                         .start_time = its.start_time.load(std::memory_order_relaxed),
                         .image = its.image.load(std::memory_order_relaxed)});
}

void Replay::repair(std::chrono::milliseconds patience) {
  const Locked locked(*this);
  repair_locked(patience);
}

void Replay::repair_locked(std::chrono::milliseconds patience) {
  gate_->close();
  SHOAL_FAULT_POINT("replay.repair.closed");
  const os::Deadline until = os::deadline_after(patience);
  for (std::size_t member = 0; member < kMostMembers; ++member) {
    Member& its = members_[member];
    const auto pid = its.pid.load(std::memory_order_relaxed);
    while (gate_->is_inside(member) && pid != 0 && is_alive(member)) {
      if (os::Clock::now() > until) {
        gate_->open();
        throw InvalidState(fmt::format(
            "repair a replay: process {} changes priorities, and has not gone on for {} ms; it "
            "may be stopped",
            pid, patience.count()));
      }
      std::this_thread::yield();
    }
    if (pid == 0 || is_alive(member)) continue;
    gate_->leave(member);
    SHOAL_FAULT_POINT("replay.repair.buried");
    its.pid.store(0, std::memory_order_relaxed);
  }
  if (spec_.prioritized) tree().rebuild();
  SHOAL_FAULT_POINT("replay.repair.rebuilt");
  gate_->open();
}

std::vector<std::string> Replay::check() const {
  std::vector<std::string> wrong;
  if (gate_->is_closed()) wrong.emplace_back("the gate is closed");
  if (!spec_.prioritized) return wrong;
  const sync::SumTree weights = tree();
  if (!weights.is_consistent()) wrong.emplace_back("sums of priorities are not those of the rows");
  std::vector<std::byte> back(shape_.back);
  for (std::uint64_t c = 0; c < static_cast<std::uint64_t>(spec_.columns); ++c) {
    const sync::RingColumn rows = column(c);
    const std::uint64_t head = rows.head();
    for (std::uint64_t slot = 0; slot < shape_.rows; ++slot) {
      const auto leaf = weights.leaf(place_of(c, slot));
      if (leaf.value == 0) continue;
      const std::uint64_t row =
          head > slot ? head - 1 - (head - 1 - slot) % shape_.rows : shape_.rows * leaf.tag + slot;
      if (row >= head || row < rows.oldest() || leaf.tag != lap_of(row) % sync::SumTree::kTags) {
        wrong.push_back(
            fmt::format("column {}, place {}: a priority of a row that is not there", c, slot));
        continue;
      }
      rows.copy_back(row, back.data());
      if ((static_cast<unsigned>(back.back()) & 4U) == 0)
        wrong.push_back(fmt::format("column {}, row {}: a priority of no transition", c, row));
    }
  }
  return wrong;
}

// All that it holds

ReplayContents Replay::contents() const {
  ReplayContents all;
  if (spec_.prioritized) all.greatest = tree().greatest();
  std::size_t count = 0;
  for (std::uint64_t c = 0; c < static_cast<std::uint64_t>(spec_.columns); ++c) {
    const sync::RingColumn rows = column(c);
    const std::uint64_t head = rows.head();
    all.heads.push_back(static_cast<std::int64_t>(head));
    all.begun.push_back(rows.begun() ? 1 : 0);
    if (rows.begun()) count += std::min(head, shape_.rows - 1) + 1;
  }
  all.rows.reserve(count * (shape_.front + shape_.back));
  all.weights.reserve(spec_.prioritized ? count : 0);
  for (std::uint64_t c = 0; c < static_cast<std::uint64_t>(spec_.columns); ++c) {
    if (all.begun[c] == 0) continue;
    const sync::RingColumn rows = column(c);
    const auto head = static_cast<std::uint64_t>(all.heads[c]);
    for (std::uint64_t row = head - std::min(head, shape_.rows - 1); row <= head; ++row) {
      const std::size_t at = all.rows.size();
      all.rows.resize(at + shape_.front + shape_.back);
      rows.copy_front(row, all.rows.data() + at);
      if (row < head) rows.copy_back(row, all.rows.data() + at + shape_.front);
      const bool whole = rows.is_whole(row);  // not if a writer died while it wrote over it
      if (!whole)
        std::fill(all.rows.begin() + static_cast<std::ptrdiff_t>(at), all.rows.end(), std::byte{0});
      if (!spec_.prioritized) continue;
      const auto leaf = tree().leaf(place_of(c, row));
      const bool its = whole && row < head && leaf.tag == lap_of(row) % sync::SumTree::kTags;
      all.weights.push_back(its ? leaf.value : 0);
    }
  }
  return all;
}

void Replay::restore(const ReplayContentsView& contents) {
  const auto columns = static_cast<std::size_t>(spec_.columns);
  const std::size_t row_bytes = shape_.front + shape_.back;
  const auto kept = [&](std::size_t c) -> std::uint64_t {  // rows and the newest observation
    const auto head = static_cast<std::uint64_t>(contents.heads[c]);
    return contents.begun[c] == 0 ? 0 : std::min(head, shape_.rows - 1) + 1;
  };
  bool fits = contents.heads.size() == columns && contents.begun.size() == columns;
  std::uint64_t rows_in_all = 0;
  for (std::size_t c = 0; fits && c < columns; ++c) rows_in_all += kept(c);
  fits = fits && contents.rows.size() == rows_in_all * row_bytes;
  if (fits && rows_in_all > 0 && contents.weights.empty() == spec_.prioritized)
    throw InvalidArgument(
        spec_.prioritized
            ? "load a replay: it was kept by one without priorities: resume with prioritized = "
              "false"
            : "load a replay: it was kept by one with priorities: resume with prioritized = true");
  if (!fits || contents.weights.size() != (spec_.prioritized ? rows_in_all : 0))
    throw InvalidArgument(
        "load a replay: it was kept by one of another size, or of other observations or actions");
  std::size_t at = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    sync::RingColumn rows = column(c);
    const auto head = static_cast<std::uint64_t>(contents.heads[c]);
    rows.restore(head, contents.begun[c] != 0);
    if (spec_.prioritized)
      for (std::uint64_t slot = 0; slot < shape_.rows; ++slot)
        tree().assign(place_of(c, slot), 0, 0);
    for (std::uint64_t k = 0, count = kept(c); k < count; ++k, ++at) {
      const std::uint64_t row = head + 1 + k - count;
      const std::byte* bytes = contents.rows.data() + at * row_bytes;
      rows.restore_row(row, bytes, row < head ? bytes + shape_.front : nullptr);
      if (spec_.prioritized) tree().assign(place_of(c, row), lap_of(row), contents.weights[at]);
    }
  }
  if (spec_.prioritized) tree().restore_greatest(contents.greatest);
}

}  // namespace shoal::collect
