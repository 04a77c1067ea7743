#include "shoal/vector/async/pool_vector_env.h"

#include <utility>

#include "shoal/os/clock.h"

namespace shoal::vector {
namespace {

// For workers that are still in somebody's step when nothing comes of it all.
constexpr std::chrono::milliseconds kFailedStartTimeout{1000};

}  // namespace

PoolVectorEnv::PoolVectorEnv(std::shared_ptr<WorkerPool> pool, std::vector<Payload> payloads,
                             const Options& given, bool owns_pool)
    : AsyncVectorEnv(given),
      set_(pool, std::move(payloads), options(), state(), *this, owns_pool),
      spin_policy_({.group_size = pool->num_workers() + 1}),
      stalls_(static_cast<std::size_t>(set_.size())) {
  try {
    set_.open();
    std::vector<Share> shares;
    for (int worker = 0; worker < set_.size(); ++worker) {
      const FaultScene& scene = set_.slot(worker).scene;
      shares.push_back({scene.first_env, scene.num_envs});
    }
    board().set_backend("process async");
    set_up(set_.spaces(), shares, options().autoreset_mode);
    set_.attach_all();
  } catch (...) {
    set_.close(kFailedStartTimeout);
    throw;
  }
}

PoolVectorEnv::~PoolVectorEnv() { set_.close(options().close_timeout); }

void PoolVectorEnv::wake(int worker) { set_.slot(worker).door->ring(); }

void PoolVectorEnv::tell(int worker, std::span<const std::byte> message) {
  set_.tell(worker, message);
}

sync::WaitOutcome PoolVectorEnv::await(sync::Gather& gather, os::Deadline deadline) {
  return gather.wait(spin_policy_, deadline);
}

bool PoolVectorEnv::look_around() {
  const bool changing = is_unsettled() || set_.is_moving();
  const bool changed = set_.poll();
  if (backing_off_ > 0) end_back_offs();
  if (changing || changed) wake_all();
  return changed;
}

std::uint64_t PoolVectorEnv::prepare(int worker) {
  stalls_[static_cast<std::size_t>(worker)] = {};
  return 0;
}

void PoolVectorEnv::keep(int, PoolMessage message) {
  if (message.kind != PoolKind::kInfo) return;
  infos_[static_cast<int>(message.sequence >> 32)] = {static_cast<std::uint32_t>(message.sequence),
                                                      std::move(message.bytes)};
}

std::optional<std::vector<std::byte>> PoolVectorEnv::take_info(int row, std::uint32_t sequence,
                                                               bool may_come) {
  if (const auto kept = infos_.find(row); kept != infos_.end() && kept->second.first == sequence) {
    return std::move(infos_.extract(kept).mapped().second);
  }
  if (!may_come) return {};
  const std::uint64_t wanted = static_cast<std::uint64_t>(row) << 32 | sequence;
  try {
    return set_
        .await_message(worker_of(row), os::deadline_after(options().faults.start_timeout), "info",
                       [wanted](const PoolMessage& message) {
                         return message.kind == PoolKind::kInfo && message.sequence == wanted;
                       })
        .bytes;
  } catch (const process::WorkerDied&) {
    static_cast<void>(set_.look_for_deaths());
    return {};
  }
}

Stats PoolVectorEnv::stats() const {
  Stats stats = AsyncVectorEnv::stats();
  for (std::size_t w = 0; w < stats.workers.size(); ++w) {
    stats.workers[w].pid = set_.pid(static_cast<int>(w));
    stats.workers[w].restarts = set_.restarts(static_cast<int>(w));
  }
  return stats;
}

// --- what becomes of environments that fail, or die with their worker

void PoolVectorEnv::lose(int worker) {
  const WorkerSlot& slot = set_.slot(worker);
  for (int row = slot.scene.first_env; row < slot.end_env(); ++row) {
    if (is_backing_off(static_cast<std::size_t>(row))) --backing_off_;
  }
  AsyncVectorEnv::lose(worker);
}

void PoolVectorEnv::come_back(int worker) {
  AsyncVectorEnv::come_back(worker);
  wake_all();
}

void PoolVectorEnv::drop(int worker) {
  const WorkerSlot& slot = set_.slot(worker);
  for (int row = slot.scene.first_env; row < slot.end_env(); ++row) {
    AsyncVectorEnv::drop(static_cast<std::size_t>(row));
  }
}

void PoolVectorEnv::end_drain(int worker) {
  end_draining(worker);
  wake_all();
}

void PoolVectorEnv::replace(int worker, bool keeps_generators) {
  AsyncVectorEnv::replace(worker, keeps_generators);
  wake_all();
}

void PoolVectorEnv::end_back_offs() {
  const os::Deadline now = os::Clock::now();
  for (int row = 0; row < num_envs(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    if (is_backing_off(at) && now >= ledger().due(row)) end_back_off(at);
  }
  wake_all();
}

void PoolVectorEnv::end_back_off(std::size_t row) {
  if (!is_backing_off(row)) return;
  --backing_off_;
  release(row, InFlight::kBackOff);
}

void PoolVectorEnv::on_failure(int row, std::span<const std::byte> bytes) {
  const int worker = worker_of(row);
  const WorkerSlot& slot = set_.slot(worker);
  process::ErrorReport report = report_in(bytes);
  if (options().faults.on_fault == OnFault::kRaise) {
    throw set_.faults().failure(slot.scene, std::move(report));
  }
  if (!slot.is_up()) return;  // it was killed for another row of the same step
  if (!slot.can_rebuild || report.env_index != row) {
    set_.fail(worker, std::move(report));
    return;
  }
  set_.faults().admit(worker, account_of_failure(slot.scene, std::move(report)));
  if (options().faults.on_fault == OnFault::kDrop) {
    AsyncVectorEnv::drop(static_cast<std::size_t>(row));
    set_.dismiss_if_all_are_dropped(worker);
  } else if (ledger().due(row) > os::Clock::now()) {
    ++backing_off_;
    hold(static_cast<std::size_t>(row), InFlight::kBackOff);
  }
}

// --- what a worker is at

WorkerEngine::Work PoolVectorEnv::mark_of(int worker) const noexcept {
  const AsyncCell& cell = segment().cell(worker);
  const std::int32_t word = cell.env_now.load(std::memory_order_acquire);  // [marker]
  if (word == EnvMarker::kNone) return {};
  return {.env = EnvMarker::blamed(word),
          .in_reset = EnvMarker::in_reset(word),
          .since_ns = cell.env_since.load(std::memory_order_relaxed)};  // after [marker]
}

std::optional<WorkerEngine::Work> PoolVectorEnv::work_of(int worker, std::uint64_t now_ns) {
  const Work work = mark_of(worker);
  if (work.since_ns == 0) return stall_of(worker, now_ns);
  stalls_[static_cast<std::size_t>(worker)] = {};
  const Work again = mark_of(worker);
  if (again.env != work.env || again.in_reset != work.in_reset) return {};
  return work;
}

// A worker that runs nobody's code and does not take the orders that it has: it was stopped, or it
// is stuck in the kernel. Seen so twice, a deadline apart, with no order obeyed in between.
std::optional<WorkerEngine::Work> PoolVectorEnv::stall_of(int worker, std::uint64_t now_ns) {
  Stall& stall = stalls_[static_cast<std::size_t>(worker)];
  const AsyncCell& cell = segment().cell(worker);
  const std::uint64_t obeyed = cell.steps.load(std::memory_order_relaxed) +  // relaxed: a hint
                               cell.resets.load(std::memory_order_relaxed);
  if (set_.serves_others(worker)) {
    stall.since_ns = 0;
    return {};
  }
  if (stall.since_ns == 0 || stall.obeyed != obeyed) {
    const bool waits = overdue(worker, now_ns, now_ns).has_value();
    stall = {.since_ns = waits ? now_ns : 0, .obeyed = obeyed};
    return {};
  }
  if (!overdue(worker, stall.since_ns, now_ns)) {
    stall.since_ns = 0;
    return {};
  }
  return Work{.env = -1,
              .in_reset = options().faults.step_timeout.count() <= 0,
              .since_ns = stall.since_ns};
}

}  // namespace shoal::vector
