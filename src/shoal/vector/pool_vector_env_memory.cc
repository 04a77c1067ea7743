// PoolVectorEnv: workers whose memory has grown, and how their environments move to others.
//
// A worker over the limit gets a younger life beside it, in which this session builds its
// environments while the old one goes on. When they stand, those in the old one rest as their
// episodes end; when all rest, it hands their generators over, and the session leaves it. Each
// session of a shared pool moves by itself.
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/os/log.h"
#include "shoal/vector/messages.h"
#include "shoal/vector/pool_vector_env.h"

namespace shoal::vector {
namespace {

// Between two looks at the workers' memory, which take some microseconds each.
constexpr std::uint64_t kLookNs = 20'000'000;
// Before another move is tried where one has failed.
constexpr std::chrono::milliseconds kRetry{5000};

}  // namespace

void PoolVectorEnv::look_at_memory() {
  const std::uint64_t limit = options().memory_limit;
  const std::uint64_t hard_limit = options().memory_hard_limit;
  if (limit == 0 && hard_limit == 0) return;
  const std::uint64_t now_ns = os::coarse_now_ns();
  if (now_ns < memory_seen_ns_ + kLookNs) return;
  memory_seen_ns_ = now_ns;
  for (Part& at : parts_) {
    if (at.state != Part::State::kUp) continue;
    const int pid = pool_->pid(at.life);
    const std::uint64_t bytes = pid > 0 ? os::memory_use(pid).own_bytes : 0;
    if (hard_limit > 0 && bytes > hard_limit) {
      end_hog(at, bytes);
    } else if (limit > 0 && !at.move && os::Clock::now() >= at.move_retry &&
               (bytes > limit || other_life_waits(at)) && pool_->can_enter_younger(at.life)) {
      begin_move(at);
    }
  }
  if (limit > 0) pool_->tidy();
}

// Another session of the pool has begun to move.
bool PoolVectorEnv::other_life_waits(const Part& at) const {
  const PoolLife newest = pool_->newest(at.scene.worker);
  return newest != at.life && !pool_->dead(newest);
}

void PoolVectorEnv::end_hog(Part& at, std::uint64_t bytes) {
  const int worker = index_of(at);
  const int env = EnvMarker::blamed(
      segment().cell(worker).env_now.load(std::memory_order_acquire));  // [marker]
  pool_->end(at.life, session_,
             KillReason::hog(at.scene.describe(), bytes, options().memory_hard_limit, env));
  handle_death(worker, pool_->death(at.life));
}

void PoolVectorEnv::begin_move(Part& at) {
  try {
    WorkerPool::Entry to = pool_->enter_younger(at.life, session_);
    send_open(at, to.life);
    at.move = Move{.to = std::move(to),
                   .step = Move::Step::kOpening,
                   .deadline = os::deadline_after(options().faults.start_timeout),
                   .sequence = 0};
    ++moving_;
  } catch (const InvalidState&) {
    throw;
  } catch (const Error& error) {
    warn_of_move(at, error.what());
  }
}

void PoolVectorEnv::warn_of_move(Part& at, const char* why) {
  os::log(os::LogLevel::kWarning, "{} is over its memory_limit, but its successor failed: {}",
          at.scene.describe(), why);
  at.move_retry = os::deadline_after(kRetry);
}

// Its environments stay where they are; another move is tried later.
void PoolVectorEnv::drop_move(Part& at, const char* why) {
  warn_of_move(at, why);
  const bool rest = at.move->step != Move::Step::kOpening;
  forget_move(at);
  if (rest) end_rest(index_of(at));
}

void PoolVectorEnv::forget_move(Part& at) {
  if (!at.move) return;
  pool_->send(at.move->to.life, {.kind = PoolKind::kClose, .session = session_, .bytes = {}});
  pool_->leave(at.move->to.life, session_);
  at.move.reset();
  --moving_;
}

// Goes on with every move as far as that takes no waiting; true when one is over.
bool PoolVectorEnv::tend_moves() {
  bool any = false;
  for (Part& at : parts_) {
    if (!at.move || at.state != Part::State::kUp) continue;
    if (at.move->step == Move::Step::kOpening) tend_move_opening(at);
    if (at.move && at.move->step == Move::Step::kDraining) tend_move_draining(at);
    if (at.move && at.move->step == Move::Step::kHanding) any = tend_move_handing(at) || any;
  }
  wake_all();
  return any;
}

void PoolVectorEnv::tend_move_opening(Part& at) {
  const PoolLife to = at.move->to.life;
  const bool ended =
      pool_->dead(to);  // looked at first: what it said before its end is still taken
  while (auto message = pool_->receive(session_, to, os::Clock::now())) {
    if (message->kind == PoolKind::kFailed) {
      const process::ErrorReport report = report_in(message->bytes);
      return drop_move(at, (report.type + ": " + report.message).c_str());
    }
    if (message->kind != PoolKind::kHello) continue;
    try {
      check_same_spaces(spaces(), decode_hello(message->bytes).hello, at.scene.first_env);
    } catch (const InvalidArgument& error) {
      return drop_move(at, error.what());
    }
    at.move->step = Move::Step::kDraining;
    return begin_rest(index_of(at));
  }
  if (ended) return drop_move(at, "it ended");
  if (os::Clock::now() < at.move->deadline) return;
  // Of no more use to anybody: it is busy with what does not end.
  pool_->end(to, session_,
             KillReason::hung_start("the successor of " + at.scene.describe(),
                                    options().faults.start_timeout));
  drop_move(at, "it did not build its environments in time (start_timeout)");
}

void PoolVectorEnv::tend_move_draining(Part& at) {
  if (pool_->dead(at.move->to.life)) return drop_move(at, "it ended");
  if (!all_rest(index_of(at))) return;
  const FaultPolicy& policy = options().faults;
  at.move->sequence = ++sequence_;
  at.move->deadline = os::deadline_after(policy.step_timeout.count() > 0 ? policy.step_timeout
                                                                         : policy.start_timeout);
  at.move->step = Move::Step::kHanding;
  pool_->send(at.life, {.kind = PoolKind::kHandOver,
                        .session = session_,
                        .sequence = at.move->sequence,
                        .bytes = {}});
}

// Waits for what the old worker hands over. Its own death is a fault like any.
bool PoolVectorEnv::tend_move_handing(Part& at) {
  if (pool_->dead(at.move->to.life)) {
    drop_move(at, "it ended");
    return true;
  }
  if (!all_rest(index_of(at))) {  // somebody goes on all the same
    at.move->step = Move::Step::kDraining;
    return false;
  }
  while (auto message = pool_->receive(session_, at.life, os::Clock::now())) {
    if (message->kind == PoolKind::kInfo) keep_info(*std::move(message));
    if (message->sequence != at.move->sequence) continue;
    if (message->kind == PoolKind::kReply) {
      change_over(at, std::move(message->bytes));
      return true;
    }
    if (message->kind != PoolKind::kRefusal) continue;
    const process::ErrorReport report = report_in(message->bytes);
    warn_of_hand_over(at, report.message);
    change_over(at, {});
    return true;
  }
  const std::uint32_t serving =
      at.door->words().serving.load(std::memory_order_relaxed);  // relaxed: a hint
  const bool elsewhere = serving != 0 && serving != session_;    // that one may take its time
  if (elsewhere || os::Clock::now() < at.move->deadline) return false;
  warn_of_hand_over(at, "it does not answer");
  change_over(at, {});
  return true;
}

void PoolVectorEnv::warn_of_hand_over(const Part& at, const std::string& why) {
  os::log(os::LogLevel::kWarning, "{} did not hand its random generators over: {}",
          at.scene.describe(), why);
}

// Everybody rests. The old worker has seen that the session is closed there before it sees an order
// that follows: its inbox is the new one's.
void PoolVectorEnv::change_over(Part& at, std::vector<std::byte> handed) {
  const int worker = index_of(at);
  pool_->send(at.life, {.kind = PoolKind::kClose, .session = session_, .bytes = {}});
  pool_->leave(at.life, session_);
  settle_in(at, std::move(at.move->to));
  at.move.reset();
  --moving_;
  ++at.recycles;
  health_.change(worker, [&](WorkerHealth& health) {
    health.pid = at.scene.pid;
    health.recycles = at.recycles;
  });
  const bool keep = !handed.empty();
  if (!keep) ++at.begun_anew;
  attach(worker, std::move(handed));
  replace(worker, keep);
}

// Whether orders wait for a worker that is about to be replaced.
bool PoolVectorEnv::hands_over() const {
  for (const Part& at : parts_) {
    if (at.move && at.move->step != Move::Step::kOpening && all_rest(index_of(at))) return true;
  }
  return false;
}

}  // namespace shoal::vector
