// PoolVectorEnv: what becomes of environments that fail, hang or die with their worker.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/vector/pool_vector_env.h"

namespace shoal::vector {
namespace {

constexpr std::chrono::milliseconds kStackTimeout{1000};

}  // namespace

bool PoolVectorEnv::look_around() {
  if (pool_->closed()) {
    state().fail("their worker pool was closed");
    throw InvalidState("the worker pool of these environments was closed; make new ones to go on");
  }
  look_for_hangs();
  const bool died = look_for_deaths();
  const bool restarted = restart_due();
  return look_for_failed_openings() || died || restarted;
}

// Handles the deaths since the last look.
bool PoolVectorEnv::look_for_deaths() {
  const std::uint64_t exits = pool_->exits();
  if (exits == exits_seen_) return false;
  bool any = false;
  for (std::size_t w = 0; w < parts_.size(); ++w) {
    Part& at = parts_[w];
    if (at.down || at.gone || !pool_->dead(at.pool_worker, at.life)) continue;
    handle_death(static_cast<int>(w), pool_->certificate(at.pool_worker, at.life));
    any = true;
  }
  exits_seen_ = exits;
  return any;
}

void PoolVectorEnv::handle_death(int worker, process::DeathCertificate certificate) {
  const Share& share = shares()[static_cast<std::size_t>(worker)];
  certificate.first_env = share.first_env;
  certificate.num_envs = share.num_envs;
  Part& at = part(worker);
  const bool hung = at.hang.has_value();
  if (hung) certificate.report = std::exchange(at.hang, {});
  if (options().faults.on_fault == OnFault::kRaise) {
    state().fail(fmt::format("{} died ({})", describe(worker), certificate.status.describe()));
    throw process::WorkerDied(std::move(certificate));
  }
  at.opening = false;
  const bool exited = certificate.status.known && certificate.status.signal == 0;
  const FaultKind kind = hung                 ? FaultKind::kHang
                         : certificate.report ? FaultKind::kException
                         : exited             ? FaultKind::kExit
                                              : FaultKind::kKilled;
  admit(record_of(worker, certificate, kind));
  lose(worker);
  if (options().faults.on_fault == OnFault::kDrop) {
    at.gone = true;
    for (int i = 0; i < share.num_envs; ++i) drop(static_cast<std::size_t>(share.first_env + i));
    health_.change(worker, [](WorkerHealth& health) { health.state = WorkerState::kDropped; });
    return;
  }
  schedule_restart(worker);
}

FaultRecord PoolVectorEnv::record_of(int worker, const process::DeathCertificate& certificate,
                                     FaultKind kind) {
  const Share& share = shares()[static_cast<std::size_t>(worker)];
  FaultRecord record;
  record.kind = kind;
  record.worker = part(worker).pool_worker;
  record.first_env = share.first_env;
  record.num_envs = share.num_envs;
  record.pid = certificate.pid;
  record.status = certificate.status;
  record.report = certificate.report;
  const int blamed = EnvMarker::blamed(
      segment().cell(worker).env_now.load(std::memory_order_relaxed));  // relaxed: it is dead
  const auto& report = certificate.report;
  record.env = report && report->env_index >= 0 ? report->env_index : blamed;
  record.message =
      report ? fmt::format("{}: {}", report->type, report->message)
             : fmt::format("{} died: {}", describe(worker), certificate.status.describe());
  record.details = certificate.describe();
  if (kind == FaultKind::kKilled) {
    if (const auto evidence = oom_watch_.evidence()) {
      record.kind = FaultKind::kMemory;
      record.message += ", as it seems for want of memory";
      record.details += "\n" + *evidence;
    }
  }
  return record;
}

// Throws TooManyFaults.
void PoolVectorEnv::admit(FaultRecord record) {
  const int first_env = record.first_env;
  const int num_envs = record.num_envs;
  try {
    const Fault fault = ledger_.admit(std::move(record));
    health_.count_fault(worker_of(first_env), fault);
    std::fill_n(fault_of_.begin() + first_env, num_envs, fault);
  } catch (const TooManyFaults& faults) {
    state().fail(faults.what());
    throw;
  }
}

// At once, or after the back-off where it is not the first time within the window.
void PoolVectorEnv::schedule_restart(int worker) {
  Part& at = part(worker);
  at.down = true;
  at.restart_at = ledger_.due(shares()[static_cast<std::size_t>(worker)].first_env);
  health_.change(worker, [](WorkerHealth& health) { health.state = WorkerState::kRestarting; });
}

// Opens the session again in workers whose time has come.
bool PoolVectorEnv::restart_due() {
  bool any = false;
  for (std::size_t w = 0; w < parts_.size(); ++w) {
    Part& at = parts_[w];
    if (!at.down || os::Clock::now() < at.restart_at) continue;
    try {
      if (pool_->dead(at.pool_worker, at.life)) pool_->restart(at.pool_worker, at.life);
    } catch (const std::exception& error) {
      state().fail(fmt::format("no replacement could be started for {}: {}",
                               describe(static_cast<int>(w)), error.what()));
      throw;
    }
    open_again(static_cast<int>(w));
    any = true;
  }
  return any;
}

// Does not wait for it: orders stay in the inbox until the environments stand.
void PoolVectorEnv::open_again(int worker) {
  const Share& share = shares()[static_cast<std::size_t>(worker)];
  Part& at = part(worker);
  at.life = pool_->life(at.pool_worker);
  at.down = false;
  at.opening = true;
  for (int i = 0; i < share.num_envs; ++i) ledger_.back(share.first_env + i);
  health_.change(worker, [](WorkerHealth& health) {
    health.state = WorkerState::kStarting;
    ++health.restarts;
  });
  pool_->send(at.pool_worker, {.kind = PoolKind::kOpen,
                               .session = session_,
                               .first = share.first_env,
                               .count = share.num_envs,
                               .flag = true,
                               .bytes = at.payload});
  pool_->send(at.pool_worker,
              {.kind = PoolKind::kAttach, .session = session_, .first = worker, .bytes = {}},
              segment().fd());
}

// Environments that could not be built again are a fault of their worker's, which lives on.
bool PoolVectorEnv::look_for_failed_openings() {
  bool any = false;
  for (std::size_t w = 0; w < parts_.size(); ++w) {
    Part& at = parts_[w];
    while (at.opening) {
      auto message = pool_->receive(session_, at.pool_worker, os::Clock::now());
      if (!message) break;
      if (message->kind == PoolKind::kInfo) keep_info(*std::move(message));
      if (message->kind == PoolKind::kHello) {
        at.opening = false;
        health_.change(static_cast<int>(w),
                       [](WorkerHealth& health) { health.state = WorkerState::kIdle; });
      } else if (message->kind == PoolKind::kFailed) {
        at.opening = false;
        process::DeathCertificate certificate;
        certificate.worker = fmt::format("worker {}", at.pool_worker);
        certificate.report = report_in(message->bytes);
        admit(record_of(static_cast<int>(w), certificate, FaultKind::kException));
        schedule_restart(static_cast<int>(w));
        any = true;
      }
    }
  }
  return any;
}

void PoolVectorEnv::look_for_hangs() {
  const FaultPolicy& policy = options().faults;
  if (policy.step_timeout.count() == 0 && policy.reset_timeout.count() == 0) return;
  for (std::size_t w = 0; w < parts_.size(); ++w) {
    Part& at = parts_[w];
    const AsyncCell& cell = segment().cell(static_cast<int>(w));
    const std::int32_t word = cell.env_now.load(std::memory_order_acquire);  // [marker]
    const int row = EnvMarker::blamed(word);
    if (at.down || at.gone || at.opening || at.hang || row == EnvMarker::kNone) continue;
    const auto limit = EnvMarker::in_reset(word) ? policy.reset_timeout : policy.step_timeout;
    const std::chrono::nanoseconds taken(static_cast<std::int64_t>(
        os::coarse_now_ns() - cell.env_since.load(std::memory_order_relaxed)));  // after [marker]
    if (limit.count() == 0 || taken < limit) continue;
    process::ErrorReport report;
    report.type = "shoal::TimedOut";
    report.env_index = row;
    report.message = fmt::format(
        "environment {}: its {} has taken {:.3g} s, of {:.3g} s that it may; its worker was killed",
        row, EnvMarker::in_reset(word) ? "reset" : "step",
        std::chrono::duration<double>(taken).count(), std::chrono::duration<double>(limit).count());
    report.traceback = pool_->stack(at.pool_worker, at.life, kStackTimeout);
    at.hang = std::move(report);
    pool_->kill(at.pool_worker, at.life, SIGKILL);
  }
}

void PoolVectorEnv::on_failure(int row, std::span<const std::byte> bytes) {
  const int worker = worker_of(row);
  Part& at = part(worker);
  process::ErrorReport report = report_in(bytes);
  const std::string what =
      fmt::format("environment {} failed: {}: {}", row, report.type, report.message);
  const std::string name = fmt::format("worker {}", at.pool_worker);
  if (options().faults.on_fault == OnFault::kRaise) {
    state().fail(what);
    throw process::RemoteError(name, std::move(report));
  }
  if (at.down || at.gone) return;  // it was killed for another row of the same step
  const bool alone = at.can_rebuild && report.env_index == row;
  process::DeathCertificate certificate;
  certificate.worker = name;
  certificate.report = std::move(report);
  if (alone) {
    FaultRecord record = record_of(worker, certificate, FaultKind::kException);
    record.first_env = row;
    record.num_envs = 1;
    record.pid = pool_->pid(at.pool_worker);
    record.status.reset();
    record.details = certificate.report->traceback;
    admit(std::move(record));
    if (options().faults.on_fault == OnFault::kDrop) {
      drop(static_cast<std::size_t>(row));
    } else {
      ledger_.back(row);  // its next order makes a new one
    }
    return;
  }
  pool_->kill(at.pool_worker, at.life, SIGKILL);
  process::DeathCertificate end = pool_->certificate(at.pool_worker, at.life);
  end.report = std::move(certificate.report);
  handle_death(worker, std::move(end));
}

}  // namespace shoal::vector
