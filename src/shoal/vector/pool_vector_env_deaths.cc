// PoolVectorEnv: what becomes of environments that fail, hang or die with their worker.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/vector/pool_vector_env.h"

namespace shoal::vector {
namespace {

// For a hung worker to tell its stack.
constexpr std::chrono::milliseconds kStackTimeout{1000};
// Between two looks for hangs.
constexpr std::uint64_t kHangLookNs = 10'000'000;

}  // namespace

bool PoolVectorEnv::look_around() {
  if (pool_->closed()) {
    state().fail("their worker pool was closed");
    throw InvalidState("the worker pool of these environments was closed; make new ones to go on");
  }
  look_for_hangs();
  look_at_memory();
  bool changed = look_for_deaths();
  if (unsettled_ > 0 || backing_off_ > 0) changed = tend() || changed;
  if (moving_ > 0) changed = tend_moves() || changed;
  return changed;
}

void PoolVectorEnv::set_state(Part& part, Part::State state) {
  const auto unsettled = [](Part::State s) {
    return s == Part::State::kAway || s == Part::State::kOpening;
  };
  unsettled_ += static_cast<int>(unsettled(state)) - static_cast<int>(unsettled(part.state));
  part.state = state;
  health_.change(index_of(part), [&](WorkerHealth& health) {
    health.state = state == Part::State::kUp        ? WorkerState::kIdle
                   : state == Part::State::kAway    ? WorkerState::kRestarting
                   : state == Part::State::kOpening ? WorkerState::kStarting
                                                    : WorkerState::kDropped;
    if (state == Part::State::kOpening) ++health.restarts;
    const bool nobody = state == Part::State::kAway || state == Part::State::kGone;
    health.pid = nobody ? 0 : part.scene.pid;
  });
}

// Handles the deaths since the last look.
bool PoolVectorEnv::look_for_deaths() {
  const std::uint64_t exits = pool_->exits();
  if (exits == exits_seen_) return false;
  bool any = false;
  for (Part& at : parts_) {
    if (!sits(at) || !pool_->dead(at.life)) continue;
    handle_death(index_of(at), pool_->death(at.life));
    any = true;
  }
  exits_seen_ = exits;
  return any;
}

void PoolVectorEnv::handle_death(int worker, PoolDeath death) {
  Part& at = part(worker);
  process::DeathCertificate& certificate = death.certificate;
  certificate.first_env = at.scene.first_env;
  certificate.num_envs = at.scene.num_envs;
  if (death.reason && death.session != session_) {
    death.reason->env = -1;
    death.reason->message =
        fmt::format("another vector environment of the pool: {}", death.reason->message);
  }
  const KillReason* const reason = death.reason ? &*death.reason : nullptr;
  const int env = at.state == Part::State::kUp
                      ? EnvMarker::blamed(segment().cell(worker).env_now.load(
                            std::memory_order_relaxed))  // relaxed: it is dead
                      : EnvMarker::kNone;
  FaultRecord record = account_of_death(at.scene, certificate, env, reason, oom_evidence_);
  if (options().faults.on_fault == OnFault::kRaise) {
    health_.count_fault(worker, std::make_shared<const FaultRecord>(record));
    complete(certificate, record, reason);
    state().fail(fmt::format("{} died ({})", at.scene.describe(), certificate.status.describe()));
    throw process::WorkerDied(std::move(certificate));
  }
  lose_part(worker, std::move(record));
}

// A worker's environments are gone: it died, or could not build them.
void PoolVectorEnv::lose_part(int worker, FaultRecord record) {
  Part& at = part(worker);
  for (PoolMessage& info : pool_->take_all(session_, at.life, PoolKind::kInfo)) {
    keep_info(std::move(info));  // of steps that it ended
  }
  admit(std::move(record));
  for (int row = at.scene.first_env; row < at.scene.first_env + at.scene.num_envs; ++row) {
    const auto& env = flight().env(static_cast<std::size_t>(row));
    if ((env.hold & InFlight::kBackOff) != 0) --backing_off_;
  }
  lose(worker);
  pool_->leave(at.life, session_);
  if (options().faults.on_fault == OnFault::kRestart) {
    at.restart_at = ledger_.due(at.scene.first_env);
    set_state(at, Part::State::kAway);
    return;
  }
  forget_move(at);
  set_state(at, Part::State::kGone);
  for (int row = at.scene.first_env; row < at.scene.first_env + at.scene.num_envs; ++row) {
    drop(static_cast<std::size_t>(row));
  }
}

// Takes a fault down. Throws TooManyFaults.
Fault PoolVectorEnv::admit(FaultRecord record) {
  const int first_env = record.first_env;
  const int num_envs = record.num_envs;
  const std::string message = record.message;
  try {
    Fault fault = ledger_.admit(std::move(record));
    health_.count_fault(worker_of(first_env), fault);
    std::fill_n(fault_of_.begin() + first_env, num_envs, fault);
    return fault;
  } catch (const TooManyFaults& faults) {
    const std::string text = faults.what();
    state().fail(fmt::format("{} {}", text.substr(0, text.find('\n')), message));
    health_.count_fault(worker_of(first_env), faults.faults().back());
    throw;
  }
}

// Goes on with all that is away as far as that takes no waiting.
bool PoolVectorEnv::tend() {
  bool any = false;
  for (std::size_t w = 0; unsettled_ > 0 && w < parts_.size(); ++w) {
    const int worker = static_cast<int>(w);
    if (parts_[w].state == Part::State::kAway && may_restart(parts_[w])) {
      any = restart(worker) || any;
    }
    if (parts_[w].state == Part::State::kOpening) any = tend_opening(worker) || any;
  }
  if (backing_off_ > 0) end_back_offs();
  wake_all();
  return any;
}

// Asked for during a back-off, too: a fresh zygote preloads meanwhile.
bool PoolVectorEnv::may_restart(const Part& at) const {
  const bool can = at.move || !pool_->dead(at.life) || pool_->can_enter_younger(at.life);
  return can && os::Clock::now() >= at.restart_at;
}

// Opens the session again, in a new worker where the old one is gone: in its successor where it has
// one. Orders wait.
bool PoolVectorEnv::restart(int worker) {
  Part& at = part(worker);
  if (at.move && pool_->dead(at.move->to.life)) forget_move(at);
  at.start_deadline = os::deadline_after(options().faults.start_timeout);
  if (at.move) {
    const bool stands = at.move->step != Move::Step::kOpening;
    settle_in(at, std::move(at.move->to));
    at.move.reset();
    --moving_;
    set_state(at, Part::State::kOpening);
    if (stands) rise(at);
    return true;
  }
  try {
    settle_in(at, pool_->dead(at.life) ? pool_->enter_younger(at.life, session_)
                                       : pool_->enter(at.scene.worker, session_));
  } catch (const InvalidState&) {
    throw;
  } catch (const Error&) {
    lose_part(worker, account_of_failed_start(at.scene));
    return true;
  }
  send_open(at, at.life);
  set_state(at, Part::State::kOpening);
  return true;
}

// Its environments stand, and take orders.
void PoolVectorEnv::rise(Part& at) {
  set_state(at, Part::State::kUp);
  attach(index_of(at));
  come_back(index_of(at));
}

// Environments that could not be built again are a fault of their worker's, which lives on.
bool PoolVectorEnv::tend_opening(int worker) {
  Part& at = part(worker);
  while (auto message = pool_->receive(session_, at.life, os::Clock::now())) {
    if (message->kind == PoolKind::kHello) {
      take_hello(at, *message);
      try {
        check_same_spaces(spaces(), at.hello, at.scene.first_env);
      } catch (const InvalidArgument& error) {  // no restart would change that
        state().fail(
            fmt::format("the replacement of {} failed: {}", at.scene.describe(), error.what()));
        throw;
      }
      rise(at);
      return true;
    }
    if (message->kind != PoolKind::kFailed) continue;
    lose_part(worker, account_of_failed_start(at.scene, "could not build its environments",
                                              report_in(message->bytes)));
    return true;
  }
  if (os::Clock::now() < at.start_deadline) return false;
  const auto limit = options().faults.start_timeout;
  KillReason reason = KillReason::hung_start("the replacement of " + at.scene.describe(), limit);
  reason.stack = pool_->stack(at.life, kStackTimeout);
  FaultRecord record = account_of_hung_start(at.scene, limit, reason.stack);
  pool_->end(at.life, session_, std::move(reason));
  lose_part(worker, std::move(record));
  return true;
}

void PoolVectorEnv::end_back_offs() {
  const os::Deadline now = os::Clock::now();
  for (int row = 0; row < num_envs(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    if ((flight().env(at).hold & InFlight::kBackOff) == 0 || now < ledger_.due(row)) continue;
    --backing_off_;
    release(at, InFlight::kBackOff);
  }
}

void PoolVectorEnv::end_back_off(std::size_t row) {
  if ((flight().env(row).hold & InFlight::kBackOff) == 0) return;
  --backing_off_;
  release(row, InFlight::kBackOff);
}

void PoolVectorEnv::look_for_hangs() {
  const FaultPolicy& policy = options().faults;
  if (policy.step_timeout.count() <= 0 && policy.reset_timeout.count() <= 0) return;
  const std::uint64_t now_ns = os::coarse_now_ns();
  if (now_ns < hangs_seen_ns_ + kHangLookNs) return;
  hangs_seen_ns_ = now_ns;
  for (Part& at : parts_) {
    if (at.state != Part::State::kUp) continue;
    const int worker = index_of(at);
    const AsyncCell& cell = segment().cell(worker);
    const std::int32_t word = cell.env_now.load(std::memory_order_acquire);  // [marker]
    if (word == EnvMarker::kNone) {
      if (stalls(worker, now_ns)) end_hung(worker, -1, policy.step_timeout.count() <= 0);
      continue;
    }
    at.stalled_ns = 0;
    const bool in_reset = EnvMarker::in_reset(word);
    const auto limit = in_reset ? policy.reset_timeout : policy.step_timeout;
    const std::uint64_t since = cell.env_since.load(std::memory_order_relaxed);  // after [marker]
    const auto limit_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(limit).count());
    if (limit_ns == 0 || now_ns < since + limit_ns) continue;
    if (cell.env_now.load(std::memory_order_acquire) != word) continue;
    end_hung(worker, EnvMarker::blamed(word), in_reset);
  }
}

// A worker that runs nobody's code and does not take the orders that it has: it was stopped, or it
// is stuck in the kernel. Seen so twice, a deadline apart, with no order obeyed in between.
bool PoolVectorEnv::stalls(int worker, std::uint64_t now_ns) {
  Part& at = part(worker);
  const AsyncCell& cell = segment().cell(worker);
  const std::uint64_t obeyed = cell.steps.load(std::memory_order_relaxed) +  // relaxed: a hint
                               cell.resets.load(std::memory_order_relaxed);
  const std::uint32_t serving =
      at.door->words().serving.load(std::memory_order_relaxed);  // relaxed: a hint
  if (serving != 0 && serving != session_) {
    at.stalled_ns = 0;
    return false;
  }
  if (at.stalled_ns == 0 || at.stalled_at != obeyed) {
    const bool waits = overdue(worker, now_ns, now_ns).has_value();
    at.stalled_ns = waits ? now_ns : 0;
    at.stalled_at = obeyed;
    return false;
  }
  const FaultPolicy& policy = options().faults;
  const auto limit = policy.step_timeout.count() > 0 ? policy.step_timeout : policy.reset_timeout;
  const auto limit_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(limit).count());
  if (now_ns < at.stalled_ns + limit_ns) return false;
  if (overdue(worker, at.stalled_ns, now_ns)) return true;
  at.stalled_ns = 0;
  return false;
}

void PoolVectorEnv::end_hung(int worker, int env, bool in_reset) {
  Part& at = part(worker);
  health_.change(worker, [](WorkerHealth& health) { health.state = WorkerState::kHung; });
  const FaultPolicy& policy = options().faults;
  KillReason reason = KillReason::hang(env, at.scene.first_env, at.scene.num_envs, in_reset,
                                       in_reset ? policy.reset_timeout : policy.step_timeout);
  reason.stack = pool_->stack(at.life, kStackTimeout);
  pool_->end(at.life, session_, std::move(reason));
  handle_death(worker, pool_->death(at.life));
}

void PoolVectorEnv::on_failure(int row, std::span<const std::byte> bytes) {
  const int worker = worker_of(row);
  Part& at = part(worker);
  process::ErrorReport report = report_in(bytes);
  if (options().faults.on_fault == OnFault::kRaise) {
    state().fail(
        fmt::format("{} failed: {}: {}", at.scene.describe(), report.type, report.message));
    throw process::RemoteError(at.scene.name, std::move(report));
  }
  if (at.state != Part::State::kUp) return;  // it was killed for another row of the same step
  if (at.can_rebuild && report.env_index == row) {
    admit(account_of_failure(at.scene, std::move(report)));
    if (options().faults.on_fault == OnFault::kDrop) {
      drop(static_cast<std::size_t>(row));
      dismiss_if_all_are_dropped(worker);
    } else if (ledger_.due(row) > os::Clock::now()) {
      ++backing_off_;
      hold(static_cast<std::size_t>(row), InFlight::kBackOff);
    }
    return;
  }
  KillReason reason{.kind = FaultKind::kException,
                    .env = report.env_index,
                    .message = fmt::format("{}: {}", report.type, report.message),
                    .stack = {}};
  pool_->end(at.life, session_, std::move(reason));
  PoolDeath death = pool_->death(at.life);
  death.reason.reset();
  death.certificate.report = std::move(report);
  handle_death(worker, std::move(death));
}

// Nobody of this session lives in that worker any more.
void PoolVectorEnv::dismiss_if_all_are_dropped(int worker) {
  Part& at = part(worker);
  for (int row = at.scene.first_env; row < at.scene.first_env + at.scene.num_envs; ++row) {
    if (!ledger_.dropped(row)) return;
  }
  forget_move(at);
  set_state(at, Part::State::kGone);
  if (owns_pool_) {
    pool_->dismiss(at.life);
  } else {
    pool_->send(at.life, {.kind = PoolKind::kClose, .session = session_, .bytes = {}});
    pool_->leave(at.life, session_);
  }
}

}  // namespace shoal::vector
