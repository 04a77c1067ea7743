#include "shoal/vector/workers/worker_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/os/log.h"

namespace shoal::vector {
namespace {

using State = WorkerSlot::State;

// For a worker that hangs to tell its stack.
constexpr std::chrono::milliseconds kStackTimeout{1000};
// Between two looks for hangs.
constexpr std::uint64_t kHangLookNs = 10'000'000;
// For workers that are still in somebody's step when they are told to close.
constexpr std::chrono::milliseconds kBusyCloseTimeout{1000};

std::vector<WorkerSlot> make_slots(std::vector<WorkerSet::Payload> payloads) {
  std::vector<WorkerSlot> slots;
  int first_env = 0;
  for (std::size_t w = 0; w < payloads.size(); ++w) {
    if (payloads[w].num_envs == 0) continue;
    WorkerSlot slot;
    slot.scene = {.worker = static_cast<int>(w),
                  .name = fmt::format("worker {}", w),
                  .first_env = first_env,
                  .num_envs = payloads[w].num_envs};
    slot.payload = std::move(payloads[w].bytes);
    slots.push_back(std::move(slot));
    first_env += payloads[w].num_envs;
  }
  if (slots.empty()) throw InvalidArgument("a vector environment needs at least one environment");
  return slots;
}

void say_that_it_was_early(process::DeathCertificate& certificate) {
  certificate.cause = certificate.headline() + " before its environments were built";
}

[[noreturn]] void throw_early_death(process::DeathCertificate certificate) {
  if (certificate.report) throw process::RemoteError(certificate.worker, *certificate.report);
  if (certificate.cause.empty()) say_that_it_was_early(certificate);
  throw process::WorkerDied(std::move(certificate));
}

}  // namespace

process::ErrorReport report_in(std::span<const std::byte> bytes) {
  try {
    if (auto report = process::ErrorReport::decode(bytes)) return *std::move(report);
  } catch (const Error&) {  // damaged
  }
  process::ErrorReport lost;
  lost.type = "Error";
  lost.message = "its report was lost";
  return lost;
}

WorkerSet::WorkerSet(std::shared_ptr<WorkerPool> pool, std::vector<Payload> payloads,
                     const Options& options, CallState& state, WorkerEngine& engine, bool owns_pool)
    : pool_(std::move(pool)),
      owns_pool_(owns_pool),
      session_(pool_->new_session()),
      options_(options),
      state_(state),
      engine_(engine),
      slots_(make_slots(std::move(payloads))),
      health_(slots_.size()),
      board_(slots_.back().end_env(), static_cast<int>(slots_.size())),
      faults_(options.faults, slots_.back().end_env(), state, health_),
      requests_(*this),
      recycling_(*this),
      asked_pool_(pool_) {
  if (pool_->closed()) throw InvalidState("the worker pool is closed; make a new one");
}

// --- starting

void WorkerSet::open() {
  exits_seen_ = pool_->exits();
  for (WorkerSlot& slot : slots_) {
    settle_in(slot, pool_->enter(slot.scene.worker, session_));
    send_open(slot, slot.incarnation);
  }
  receive_hellos(os::deadline_after(options_.faults.start_timeout));
  for (const WorkerSlot& slot : slots_) {
    check_same_spaces(spaces(), slot.hello, slot.scene.first_env);
    health_.change(index_of(slot), [&](WorkerHealth& health) {
      health.first_env = slot.scene.first_env;
      health.num_envs = slot.scene.num_envs;
      health.pid = slot.scene.pid;
      board_.set_worker(index_of(slot), health);
    });
  }
}

void WorkerSet::attach_all() {
  for (int worker = 0; worker < size(); ++worker) attach(worker);
}

// It is there from now on.
void WorkerSet::settle_in(WorkerSlot& slot, WorkerPool::Entry entry) {
  slot.incarnation = entry.incarnation;
  slot.door = std::move(entry.door);
  slot.scene.pid = pool_->pid(slot.incarnation);
  slot.memory_bytes = 0;
  slot.answered = slot.asked;  // what the one before was asked, nobody answers
}

bool WorkerSet::send(int worker, const PoolMessage& message, os::Deadline deadline) {
  const bool sent = pool_->send(slot(worker).incarnation, message, -1, deadline);
  if (sent) engine_.ring(worker);
  return sent;
}

// Asks a worker to build this session's environments; one of rounds does so by itself.
void WorkerSet::send_open(const WorkerSlot& slot, Incarnation incarnation) {
  if (pool_->rounds()) return;
  pool_->send(incarnation, {.kind = PoolKind::kOpen,
                            .session = session_,
                            .first = slot.scene.first_env,
                            .count = slot.scene.num_envs,
                            .bytes = slot.payload});
}

void WorkerSet::attach(int worker, std::vector<std::byte> handed) {
  WorkerSlot& slot = slot_at(worker);
  slot.state = State::kUp;
  if (pool_->rounds()) pool_->place(slot.incarnation);
  const std::uint64_t sequence = engine_.prepare(worker);
  pool_->send(slot.incarnation,
              {.kind = PoolKind::kAttach,
               .session = session_,
               .first = worker,
               .flag = options_.faults.on_fault != OnFault::kRaise,
               .sequence = sequence,
               .bytes = std::move(handed)},
              engine_.segment_fd());
}

// A worker that fails at once is reported at once, also while the hello of an earlier one is waited
// for.
void WorkerSet::receive_hellos(os::Deadline deadline) {
  std::vector<int> missing(slots_.size());
  std::iota(missing.begin(), missing.end(), 0);
  while (!missing.empty()) {
    const os::Deadline until = std::min(deadline, os::deadline_after(Patience::kSlice));
    const bool came = receive_hello(missing.front(), until);
    if (came) missing.erase(missing.begin());
    if (came) continue;
    std::erase_if(missing, [&](int worker) { return receive_hello(worker, os::Clock::now()); });
    check_interrupt();
    if (!missing.empty() && os::Clock::now() >= deadline) throw_late_start(slot(missing.front()));
  }
}

bool WorkerSet::receive_hello(int worker, os::Deadline until) {
  WorkerSlot& from = slot_at(worker);
  // Looked at first: what it sent before its end is still taken.
  const bool ended = pool_->dead(from.incarnation);
  while (auto message =
             pool_->receive(session_, from.incarnation, ended ? os::Clock::now() : until)) {
    if (message->kind == PoolKind::kHello) {
      take_hello(from, *message);
      return true;
    }
    if (message->kind != PoolKind::kFailed) continue;
    throw process::RemoteError(from.scene.name, report_in(message->bytes));
  }
  if (auto report = pool_->report(from.incarnation)) {
    throw process::RemoteError(from.scene.name, *std::move(report));
  }
  if (ended) throw_early_death(pool_->death(from.incarnation).certificate);
  if (pool_->closed()) throw InvalidState("the worker pool of these environments is closed");
  return false;
}

void WorkerSet::take_hello(WorkerSlot& slot, const PoolMessage& message) {
  if (message.count != slot.scene.num_envs) {
    throw Error(fmt::format("{} made {} environments; it was asked for {}", slot.scene.name,
                            message.count, slot.scene.num_envs));
  }
  slot.can_rebuild = message.flag;
  slot.hello = decode_hello(message.bytes);
}

// The worker is of no more use, to any session: it is busy with what does not end.
void WorkerSet::throw_late_start(const WorkerSlot& late) {
  const auto limit = options_.faults.start_timeout;
  KillReason reason = KillReason::hung_start(late.scene.describe(), limit);
  reason.stack = pool_->stack(late.incarnation, kStackTimeout);
  const std::string text = account_of_late_start(
      fmt::format("{} did not send its hello in time", late.scene.describe()), limit, reason.stack);
  pool_->end(late.incarnation, session_, std::move(reason));
  throw TimedOut(text);
}

// --- asking

PoolMessage WorkerSet::await_message(int worker, os::Deadline deadline, const char* waiting_for,
                                     const std::function<bool(const PoolMessage&)>& wanted) {
  const WorkerSlot& from = slot(worker);
  for (;;) {
    // Looked at first: what it sent before its end is still taken.
    const bool ended = pool_->dead(from.incarnation);
    const os::Deadline until =
        ended ? os::Clock::now() : std::min(deadline, os::deadline_after(Patience::kSlice));
    if (auto message = pool_->receive(session_, from.incarnation, until)) {
      if (wanted(*message)) return *std::move(message);
      engine_.keep(worker, *std::move(message));
      continue;
    }
    if (ended) throw process::WorkerDied(pool_->death(from.incarnation).certificate);
    if (pool_->closed()) throw InvalidState("the worker pool of these environments is closed");
    check_interrupt();
    if (os::Clock::now() >= deadline) {
      throw TimedOut(
          fmt::format("{} did not send its {} in time", from.scene.describe(), waiting_for));
    }
  }
}

void WorkerSet::tell(int worker, std::span<const std::byte> message) {
  send(worker,
       {.kind = PoolKind::kTell, .session = session_, .bytes = {message.begin(), message.end()}});
}

const Hello& WorkerSet::hello(int worker) const {
  if (worker < 0 || worker >= size()) {
    throw InvalidArgument(fmt::format("there is no worker {}; there are {}", worker, size()));
  }
  return slot(worker).hello;
}

int WorkerSet::pid(int worker) const {
  return pool_ && slot(worker).sits() ? pool_->pid(slot(worker).incarnation) : 0;
}

std::uint64_t WorkerSet::restarts(int worker) const {
  return pool_ ? pool_->restarts(slot(worker).scene.worker) : 0;
}

bool WorkerSet::serves_others(int worker) const {
  const std::uint32_t serving =
      slot(worker).door->words().serving.load(std::memory_order_relaxed);  // relaxed: a hint
  return serving != 0 && serving != session_;
}

std::vector<WorkerHealth> WorkerSet::health() const {
  std::vector<WorkerHealth> workers = health_.copy();
  const std::shared_ptr<WorkerPool> pool = asked_pool_.lock();
  for (std::size_t w = 0; w < workers.size(); ++w) {
    WorkerHealth& worker = workers[w];
    if (!pool || pool->closed() || worker.state == WorkerState::kClosed) {
      worker.state = WorkerState::kClosed;
      worker.pid = 0;
      continue;
    }
    if (worker.state == WorkerState::kRestarting || worker.state == WorkerState::kDropped) continue;
    worker.rss_bytes = rss_of(worker.pid);
    if (worker.state == WorkerState::kStarting) continue;
    const WorkerEngine::Work work = engine_.mark_of(static_cast<int>(w));
    if (work.since_ns == 0) continue;
    if (worker.state == WorkerState::kIdle) worker.state = WorkerState::kStepping;
    worker.env = work.env;
    const std::uint64_t now_ns = os::coarse_now_ns();
    worker.since = std::chrono::nanoseconds(now_ns > work.since_ns ? now_ns - work.since_ns : 0);
  }
  return workers;
}

// --- watching

bool WorkerSet::watch() {
  look_for_hangs();
  recycling_.weigh();
  return look_for_deaths();
}

bool WorkerSet::poll() {
  if (pool_->closed()) {
    state_.fail("their worker pool was closed");
    throw InvalidState("the worker pool of these environments was closed; make new ones to go on");
  }
  bool changed = watch();
  if (unsettled_ > 0) changed = poll_slots() || changed;
  return recycling_.poll() || changed;
}

void WorkerSet::set_state(WorkerSlot& slot, State state) {
  const auto unsettled = [](State s) { return s == State::kAway || s == State::kOpening; };
  unsettled_ += static_cast<int>(unsettled(state)) - static_cast<int>(unsettled(slot.state));
  slot.state = state;
  health_.change(index_of(slot), [&](WorkerHealth& health) {
    health.state = state == State::kUp        ? WorkerState::kIdle
                   : state == State::kAway    ? WorkerState::kRestarting
                   : state == State::kOpening ? WorkerState::kStarting
                                              : WorkerState::kDropped;
    if (state == State::kOpening) {
      ++health.restarts;
      board_.count_restart();
    }
    health.pid = slot.sits() ? slot.scene.pid : 0;
    board_.set_worker(index_of(slot), health);
  });
}

void WorkerSet::tell_of_move(const WorkerSlot& slot) {
  health_.change(index_of(slot), [&](WorkerHealth& health) {
    health.pid = slot.scene.pid;
    health.recycles = slot.recycles;
    board_.set_worker(index_of(slot), health);
  });
}

void WorkerSet::look_for_hangs() {
  const FaultPolicy& policy = options_.faults;
  if (policy.step_timeout.count() <= 0 && policy.reset_timeout.count() <= 0) return;
  const std::uint64_t now_ns = os::coarse_now_ns();
  if (now_ns < hangs_seen_ns_ + kHangLookNs) return;
  hangs_seen_ns_ = now_ns;
  for (int worker = 0; worker < size(); ++worker) {
    const WorkerSlot& at = slot(worker);
    if (!at.is_up()) continue;
    const auto work = engine_.work_of(worker, now_ns);
    if (!work) continue;
    const auto limit = work->in_reset ? policy.reset_timeout : policy.step_timeout;
    const auto limit_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(limit).count());
    if (limit_ns == 0 || now_ns < work->since_ns + limit_ns) continue;
    health_.change(worker, [&](WorkerHealth& health) {
      health.state = WorkerState::kHung;
      board_.set_worker(worker, health);
    });
    KillReason reason =
        KillReason::hang(work->env, at.scene.first_env, at.scene.num_envs, work->in_reset, limit);
    reason.stack = pool_->stack(at.incarnation, kStackTimeout);
    end(worker, std::move(reason));
  }
}

// Handles the deaths since the last look, but for those whose turn has not come.
bool WorkerSet::look_for_deaths() {
  const std::uint64_t exits = pool_->exits();
  if (exits == exits_seen_) return false;
  bool any = false;
  bool all = true;
  for (int worker = 0; worker < size(); ++worker) {
    const WorkerSlot& at = slot(worker);
    if (!at.is_up() || !pool_->dead(at.incarnation)) continue;
    if (!engine_.may_lose(worker)) {
      all = false;
      continue;
    }
    handle_death(worker, pool_->death(at.incarnation));
    any = true;
  }
  if (all) exits_seen_ = exits;
  return any;
}

void WorkerSet::end(int worker, KillReason reason) {
  const Incarnation incarnation = slot(worker).incarnation;
  pool_->end(incarnation, session_, reason);
  PoolDeath death = pool_->death(incarnation);
  if (!death.reason) {  // it ended by itself while it was asked for its stack
    death.reason = std::move(reason);
    death.session = session_;
  }
  handle_death(worker, std::move(death));
}

void WorkerSet::fail(int worker, process::ErrorReport report) {
  const Incarnation incarnation = slot(worker).incarnation;
  pool_->end(incarnation, session_,
             {.kind = FaultKind::kException,
              .env = report.env_index,
              .message = fmt::format("{}: {}", report.type, report.message),
              .stack = {}});
  PoolDeath death = pool_->death(incarnation);
  death.reason.reset();
  death.certificate.report = std::move(report);
  handle_death(worker, std::move(death));
}

void WorkerSet::handle_death(int worker, PoolDeath death) {
  const WorkerSlot& at = slot(worker);
  death.certificate.first_env = at.scene.first_env;
  death.certificate.num_envs = at.scene.num_envs;
  if (death.reason && death.session != session_) {
    death.reason->env = -1;
    death.reason->message =
        fmt::format("another vector environment of the pool: {}", death.reason->message);
  }
  const int env = at.is_up() ? engine_.mark_of(worker).env : -1;
  if (!at.is_up()) say_that_it_was_early(death.certificate);
  lose(worker, faults_.account(worker, at.scene, std::move(death.certificate), env,
                               death.reason ? &*death.reason : nullptr));
}

// A worker's environments are gone: it died, or could not build them.
void WorkerSet::lose(int worker, FaultRecord record) {
  WorkerSlot& at = slot_at(worker);
  for (PoolMessage& info : pool_->take_all(session_, at.incarnation, PoolKind::kInfo)) {
    engine_.keep(worker, std::move(info));  // of steps that it ended
  }
  faults_.admit(worker, std::move(record));
  engine_.lose(worker);
  pool_->leave(at.incarnation, session_);
  if (options_.faults.on_fault == OnFault::kRestart) {
    at.restart_at = faults_.ledger().due(at.scene.first_env);
    set_state(at, State::kAway);
    return;
  }
  recycling_.forget(at);
  set_state(at, State::kGone);
  engine_.drop(worker);
}

// Nothing of this session is in that worker any more.
void WorkerSet::dismiss_if_all_are_dropped(int worker) {
  WorkerSlot& at = slot_at(worker);
  for (int row = at.scene.first_env; row < at.end_env(); ++row) {
    if (!faults_.ledger().dropped(row)) return;
  }
  recycling_.forget(at);
  set_state(at, State::kGone);
  if (owns_pool_) {
    pool_->dismiss(at.incarnation);
    engine_.ring(worker);
  } else {
    send(worker, {.kind = PoolKind::kClose, .session = session_, .bytes = {}});
    pool_->leave(at.incarnation, session_);
  }
}

// --- restarting

// Goes on with all that is away or opening as far as that takes no waiting.
bool WorkerSet::poll_slots() {
  bool any = false;
  for (int worker = 0; unsettled_ > 0 && worker < size(); ++worker) {
    if (slot(worker).state == State::kAway && may_restart(slot(worker))) {
      any = restart(worker) || any;
    }
    if (slot(worker).state == State::kOpening) any = poll_opening(worker) || any;
  }
  return any;
}

// Asked for during a back-off, too: a fresh zygote preloads meanwhile.
bool WorkerSet::may_restart(const WorkerSlot& at) const {
  const bool can =
      at.move || !pool_->dead(at.incarnation) || pool_->can_enter_younger(at.incarnation);
  return can && os::Clock::now() >= at.restart_at;
}

// Opens the session again, in a new process where the old one is gone: in its successor where it
// has one. Orders wait.
bool WorkerSet::restart(int worker) {
  WorkerSlot& at = slot_at(worker);
  if (at.move && pool_->dead(at.move->to.incarnation)) recycling_.forget(at);
  at.start_deadline = os::deadline_after(options_.faults.start_timeout);
  if (at.move) {
    const bool built = at.move->step != WorkerSlot::Move::Step::kOpening;
    settle_in(at, recycling_.take_successor(at));
    set_state(at, State::kOpening);
    if (built) mark_ready(at);
    return true;
  }
  try {
    settle_in(at, pool_->dead(at.incarnation) ? pool_->enter_younger(at.incarnation, session_)
                                              : pool_->enter(at.scene.worker, session_));
  } catch (const InvalidState&) {
    throw;
  } catch (const Error&) {
    lose(worker, account_of_failed_start(at.scene));
    return true;
  }
  send_open(at, at.incarnation);
  set_state(at, State::kOpening);
  return true;
}

// Its environments are built, and take orders.
void WorkerSet::mark_ready(WorkerSlot& slot) {
  set_state(slot, State::kUp);
  exits_seen_.reset();  // it may have ended since its hello, when it was not looked at
  attach(index_of(slot));
  engine_.come_back(index_of(slot));
}

bool WorkerSet::poll_opening(int worker) {
  WorkerSlot& at = slot_at(worker);
  // Looked at first: what it said before its end is still taken.
  const bool ended = pool_->dead(at.incarnation);
  std::optional<process::ErrorReport> failure;
  while (!failure) {
    const auto message = pool_->receive(session_, at.incarnation, os::Clock::now());
    if (!message) break;
    if (message->kind == PoolKind::kFailed) failure = report_in(message->bytes);
    if (message->kind != PoolKind::kHello) continue;
    try {
      take_hello(at, *message);
      check_same_spaces(spaces(), at.hello, at.scene.first_env);
    } catch (const Error& error) {  // no restart would change that
      state_.fail(
          fmt::format("the replacement of {} failed: {}", at.scene.describe(), error.what()));
      throw;
    }
    mark_ready(at);
    return true;
  }
  // Environments that could not be built are a fault of their worker's, which may live on.
  if (!failure && ended) failure = pool_->death(at.incarnation).certificate.report;
  if (failure) {
    lose(worker, account_of_failed_start(at.scene, "could not build its environments",
                                         *std::move(failure)));
    return true;
  }
  if (ended) {
    handle_death(worker, pool_->death(at.incarnation));
    return true;
  }
  if (os::Clock::now() < at.start_deadline) return false;
  const auto limit = options_.faults.start_timeout;
  KillReason reason = KillReason::hung_start("the replacement of " + at.scene.describe(), limit);
  reason.stack = pool_->stack(at.incarnation, kStackTimeout);
  FaultRecord record = account_of_hung_start(at.scene, limit, reason.stack);
  pool_->end(at.incarnation, session_, std::move(reason));
  lose(worker, std::move(record));
  return true;
}

// --- closing

void WorkerSet::close(std::chrono::milliseconds timeout) noexcept {
  if (!pool_) return;
  const os::Deadline deadline = os::deadline_after(timeout);
  const os::Deadline busy_deadline = os::deadline_after(std::min(timeout, kBusyCloseTimeout));
  const bool has_error = state_.failed();
  std::vector<Farewell> farewells;
  for (int worker = 0; worker < size(); ++worker) {
    const bool busy = slot(worker).asked != slot(worker).answered ||
                      (slot(worker).is_up() && engine_.is_busy(worker));
    farewells.push_back({.until = busy ? busy_deadline : deadline,
                         .tells = timeout.count() > 0 && !busy && !has_error &&
                                  !pool_->dead(slot(worker).incarnation)});
  }
  state_.close();
  for (int worker = 0; worker < size(); ++worker) {
    health_.change(worker, [](WorkerHealth& health) { health.state = WorkerState::kClosed; });
  }
  const std::shared_ptr<WorkerPool> pool = std::exchange(pool_, nullptr);
  if (!maker_.is_this()) return;  // the workers are not its own
  board_.end();
  if (!pool->closed()) close_session(*pool, farewells);
  if (owns_pool_) {
    pool->close_within(std::chrono::ceil<std::chrono::milliseconds>(os::time_left(deadline)));
  }
}

void WorkerSet::close_session(WorkerPool& pool, std::span<const Farewell> farewells) noexcept {
  try {
    for (const WorkerSlot& slot : slots_) {
      const auto worker = static_cast<std::size_t>(index_of(slot));
      const os::Deadline until = farewells[worker].until;
      PoolMessage close{.kind = PoolKind::kClose, .session = session_, .bytes = {}};
      if (slot.move) pool.send(slot.move->to.incarnation, close, -1, until);
      close.flag = true;
      if (!slot.sits()) continue;
      pool.send(slot.incarnation, close, -1, until);
      engine_.ring(static_cast<int>(worker));
    }
    for (const WorkerSlot& slot : slots_) {
      if (slot.sits())
        await_closed(pool, slot, farewells[static_cast<std::size_t>(index_of(slot))]);
    }
    recycling_.close(pool,
                     std::min(farewells.front().until, os::deadline_after(kBusyCloseTimeout)));
  } catch (const std::exception&) {
    // A channel that broke: the worker is on its way out, and the environments with it.
  }
  pool.forget(session_);
}

// What takes too long is given up, and after an interrupt all that is left.
void WorkerSet::await_closed(WorkerPool& pool, const WorkerSlot& slot, const Farewell& farewell) {
  const Patience patience{.deadline = farewell.until, .check = options_.interrupt_check};
  for (;;) {
    // Looked at first: what it sent before its end is still taken.
    const bool ended = pool.dead(slot.incarnation);
    const os::Deadline until = ended ? os::Clock::now() : closing_.wait_until(patience);
    const auto message = pool.receive(session_, slot.incarnation, until);
    if (message && message->kind == PoolKind::kClosed) {
      for (process::ErrorReport& report : decode_reports(message->bytes)) {
        closing_.add(slot.scene.name, std::move(report));
      }
      return;
    }
    if (message) continue;
    if (ended && !farewell.tells) return;
    if (ended) {
      process::DeathCertificate certificate = pool.death(slot.incarnation).certificate;
      certificate.first_env = slot.scene.first_env;
      certificate.num_envs = slot.scene.num_envs;
      certificate.cause = certificate.headline() + " before its environments were closed";
      os::log(os::LogLevel::kWarning, "vector", "{}", certificate.describe());
      return;
    }
    if (closing_.goes_on(patience)) continue;
    if (farewell.tells && !closing_.interrupted()) {
      os::log(os::LogLevel::kWarning, "vector",
              "{} is killed: its environments did not close in time", slot.scene.describe());
    }
    pool.give_up(slot.incarnation);
    return;
  }
}

}  // namespace shoal::vector
