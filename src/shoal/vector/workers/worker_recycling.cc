#include "shoal/vector/workers/worker_recycling.h"

#include <algorithm>
#include <utility>

#include "shoal/os/log.h"
#include "shoal/os/memory/memory_use.h"
#include "shoal/vector/workers/worker_set.h"

namespace shoal::vector {
namespace {

using Step = WorkerSlot::Move::Step;

// Between two looks at the workers' memory, which take some microseconds each.
constexpr std::uint64_t kLookNs = 20'000'000;
// Before another successor is tried where one has failed.
constexpr std::chrono::milliseconds kRetry{5000};

void warn_of_hand_over(const WorkerSlot& slot, const std::string& why) {
  os::log(os::LogLevel::kWarning, "vector", "{} did not hand its random generators over: {}",
          slot.scene.describe(), why);
}

}  // namespace

void WorkerRecycling::weigh() {
  const std::uint64_t hard_limit = set_.options().memory_hard_limit;
  if (set_.options().memory_limit == 0 && hard_limit == 0) return;
  const std::uint64_t now_ns = os::coarse_now_ns();
  if (now_ns < weighed_ns_ + kLookNs) return;
  weighed_ns_ = now_ns;
  weighed_ = true;
  for (int worker = 0; worker < set_.size(); ++worker) {
    WorkerSlot& slot = set_.slot_at(worker);
    if (!slot.is_up()) continue;
    const int pid = set_.pid(worker);
    slot.memory_bytes = pid > 0 ? os::memory_use(pid).own_bytes : 0;
    if (hard_limit == 0 || slot.memory_bytes <= hard_limit || !set_.engine().may_lose(worker)) {
      continue;
    }
    const int env = set_.engine().mark_of(worker).env;
    set_.end(worker,
             KillReason::over_limit(slot.scene.describe(), slot.memory_bytes, hard_limit, env));
  }
  set_.pool().tidy();
}

bool WorkerRecycling::poll() {
  const std::uint64_t limit = set_.options().memory_limit;
  if (limit == 0) return false;
  std::erase_if(leaving_, [this](const Leaving& old) {
    return has_left(set_.pool(), old, os::Clock::now());
  });
  const bool looks = std::exchange(weighed_, false);
  if (!looks && moving_ == 0) return false;
  bool any = false;
  for (int worker = 0; worker < set_.size(); ++worker) {
    WorkerSlot& slot = set_.slot_at(worker);
    if (!slot.is_up()) continue;
    if (looks && !slot.move && (slot.memory_bytes > limit || other_session_moves(slot)) &&
        os::Clock::now() >= slot.move_retry && set_.pool().can_enter_younger(slot.incarnation)) {
      begin(slot);
    }
    if (slot.move && slot.move->step == Step::kOpening) poll_opening(slot);
    if (slot.move && slot.move->step == Step::kDraining) poll_draining(slot);
    if (slot.move && slot.move->step == Step::kHanding) any = poll_handing(slot) || any;
  }
  return any;
}

bool WorkerRecycling::other_session_moves(const WorkerSlot& slot) const {
  if (set_.pool().rounds()) return false;
  const Incarnation newest = set_.pool().newest(slot.scene.worker);
  return newest != slot.incarnation && !set_.pool().dead(newest);
}

void WorkerRecycling::begin(WorkerSlot& slot) {
  try {
    WorkerPool::Entry to = set_.pool().enter_younger(slot.incarnation, set_.session());
    set_.send_open(slot, to.incarnation);
    slot.move =
        WorkerSlot::Move{.to = std::move(to),
                         .step = Step::kOpening,
                         .deadline = os::deadline_after(set_.options().faults.start_timeout),
                         .sequence = 0};
    ++moving_;
  } catch (const InvalidState&) {
    throw;
  } catch (const Error& error) {
    warn(slot, error.what());
  }
}

void WorkerRecycling::warn(WorkerSlot& slot, const char* why) {
  os::log(os::LogLevel::kWarning, "vector",
          "{} is over its memory_limit, but its successor failed: {}", slot.scene.describe(), why);
  slot.move_retry = os::deadline_after(kRetry);
}

// Its environments stay where they are; another successor is tried later.
void WorkerRecycling::drop(WorkerSlot& slot, const char* why) {
  warn(slot, why);
  const bool drains = slot.move->step != Step::kOpening;
  forget(slot);
  if (drains) set_.engine().end_drain(set_.index_of(slot));
}

void WorkerRecycling::forget(WorkerSlot& slot) {
  if (!slot.move) return;
  const Incarnation successor = slot.move->to.incarnation;
  set_.pool().send(successor, {.kind = PoolKind::kClose, .session = set_.session(), .bytes = {}});
  set_.pool().leave(successor, set_.session());
  slot.move.reset();
  --moving_;
}

WorkerPool::Entry WorkerRecycling::take_successor(WorkerSlot& slot) {
  WorkerPool::Entry to = std::move(slot.move->to);
  slot.move.reset();
  --moving_;
  return to;
}

void WorkerRecycling::poll_opening(WorkerSlot& slot) {
  const Incarnation to = slot.move->to.incarnation;
  // Looked at first: what it said before its end is still taken.
  const bool ended = set_.pool().dead(to);
  while (auto message = set_.pool().receive(set_.session(), to, os::Clock::now())) {
    if (message->kind == PoolKind::kFailed) {
      const process::ErrorReport report = report_in(message->bytes);
      return drop(slot, (report.type + ": " + report.message).c_str());
    }
    if (message->kind != PoolKind::kHello) continue;
    try {
      check_same_spaces(set_.spaces(), decode_hello(message->bytes), slot.scene.first_env);
    } catch (const InvalidArgument& error) {
      return drop(slot, error.what());
    }
    slot.move->step = Step::kDraining;
    return set_.engine().begin_drain(set_.index_of(slot));
  }
  if (const auto report = set_.pool().report(to)) {
    return drop(slot, (report->type + ": " + report->message).c_str());
  }
  if (ended) return drop(slot, "it ended");
  if (os::Clock::now() < slot.move->deadline) return;
  // Of no more use to anybody: it is busy with what does not end.
  set_.pool().end(to, set_.session(),
                  KillReason::hung_start("the successor of " + slot.scene.describe(),
                                         set_.options().faults.start_timeout));
  drop(slot, "it did not build its environments in time (start_timeout)");
}

void WorkerRecycling::poll_draining(WorkerSlot& slot) {
  if (set_.pool().dead(slot.move->to.incarnation)) return drop(slot, "it ended");
  const int worker = set_.index_of(slot);
  if (!set_.engine().is_drained(worker)) return;
  const FaultPolicy& policy = set_.options().faults;
  const std::chrono::milliseconds limit =
      policy.step_timeout.count() > 0 ? policy.step_timeout : policy.start_timeout;
  slot.move->deadline = os::deadline_after(set_.engine().hand_over_wait().value_or(limit));
  slot.move->sequence = set_.next_sequence();
  slot.move->step = Step::kHanding;
  set_.send(worker, {.kind = PoolKind::kHandOver,
                     .session = set_.session(),
                     .sequence = slot.move->sequence,
                     .bytes = {}});
}

// Waits for what the old worker hands over. Its own death is a fault like any.
bool WorkerRecycling::poll_handing(WorkerSlot& slot) {
  if (set_.pool().dead(slot.move->to.incarnation)) {
    drop(slot, "it ended");
    return true;
  }
  if (!set_.engine().is_drained(set_.index_of(slot))) {  // somebody goes on all the same
    slot.move->step = Step::kDraining;
    return false;
  }
  const bool waits = set_.engine().hand_over_wait().has_value();
  if (take_handed(slot, waits ? slot.move->deadline : os::Clock::now())) return true;
  if (set_.pool().dead(slot.incarnation) || set_.serves_others(set_.index_of(slot)) ||
      os::Clock::now() < slot.move->deadline) {
    return false;
  }
  warn_of_hand_over(slot, "it does not answer");
  change_over(slot, {});
  return true;
}

bool WorkerRecycling::take_handed(WorkerSlot& slot, os::Deadline until) {
  const int worker = set_.index_of(slot);
  while (auto message = set_.pool().receive(set_.session(), slot.incarnation, until)) {
    const bool answers = message->sequence == slot.move->sequence;
    if (answers && message->kind == PoolKind::kReply) {
      change_over(slot, std::move(message->bytes));
      return true;
    }
    if (answers && message->kind == PoolKind::kRefusal) {
      warn_of_hand_over(slot, report_in(message->bytes).message);
      change_over(slot, {});
      return true;
    }
    set_.engine().keep(worker, *std::move(message));
  }
  return false;
}

// All are drained. The old worker has seen that the session is closed there before it sees an order
// that follows: its words are the new one's.
void WorkerRecycling::change_over(WorkerSlot& slot, std::vector<std::byte> handed) {
  const int worker = set_.index_of(slot);
  set_.send(worker,
            {.kind = PoolKind::kClose, .session = set_.session(), .flag = true, .bytes = {}});
  leaving_.push_back({.name = slot.scene.name,
                      .incarnation = slot.incarnation,
                      .deadline = os::deadline_after(set_.options().close_timeout)});
  set_.settle_in(slot, take_successor(slot));
  ++slot.recycles;
  const bool keeps_generators = !handed.empty();
  if (!keeps_generators) ++slot.begun_anew;
  set_.tell_of_move(slot);
  set_.attach(worker, std::move(handed));
  set_.engine().replace(worker, keeps_generators);
}

bool WorkerRecycling::hands_over() const {
  if (moving_ == 0) return false;
  for (int worker = 0; worker < set_.size(); ++worker) {
    const WorkerSlot& slot = set_.slot(worker);
    if (slot.move && slot.move->step != Step::kOpening && set_.engine().is_drained(worker)) {
      return true;
    }
  }
  return false;
}

// No call is about its environments any more, so what they raise is logged.
bool WorkerRecycling::has_left(WorkerPool& pool, const Leaving& old, os::Deadline until) {
  // Looked at first: what it said before its end is still taken.
  const bool ended = pool.dead(old.incarnation);
  bool closed = false;
  while (!closed) {
    const auto message = pool.receive(set_.session(), old.incarnation, until);
    if (!message) break;
    closed = message->kind == PoolKind::kClosed;
    if (!closed) continue;
    for (process::ErrorReport& report : decode_reports(message->bytes)) {
      os::log(os::LogLevel::kError, "vector", "the {} that was replaced, while it was closed: {}",
              old.name, process::RemoteError(old.name, std::move(report)).what());
    }
  }
  if (!closed && !ended && os::Clock::now() < old.deadline) return false;
  pool.leave(old.incarnation, set_.session());
  return true;
}

void WorkerRecycling::close(WorkerPool& pool, os::Deadline deadline) {
  for (const Leaving& old : leaving_) {
    if (!has_left(pool, old, std::min(deadline, old.deadline))) pool.give_up(old.incarnation);
  }
  leaving_.clear();
}

}  // namespace shoal::vector
