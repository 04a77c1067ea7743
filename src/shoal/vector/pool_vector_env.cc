#include "shoal/vector/pool_vector_env.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <thread>
#include <utility>

#include "shoal/process/stack_dump.h"
#include "shoal/vector/messages.h"
#include "shoal/vector/worker_seat.h"

namespace shoal::vector {
namespace {

constexpr std::chrono::milliseconds kSlice{50};
// Between looks at a worker that is started anew.
constexpr std::chrono::milliseconds kShortSlice{1};
// For a worker that hangs while it starts to tell its stack.
constexpr std::chrono::milliseconds kStackTimeout{1000};

// For workers that are still in somebody's step when they are told to close.
constexpr std::chrono::milliseconds kBusyCloseTimeout{1000};

}  // namespace

PoolVectorEnv::PoolVectorEnv(std::shared_ptr<WorkerPool> pool, std::vector<Payload> payloads,
                             const Options& options, bool owns_pool)
    : AsyncVectorEnv(options),
      pool_(std::move(pool)),
      owns_pool_(owns_pool),
      owner_pid_(::getpid()),
      session_(pool_->new_session()),
      spin_policy_({.group_size = pool_->num_workers() + 1}),
      health_(static_cast<std::size_t>(std::count_if(
          payloads.begin(), payloads.end(), [](const Payload& p) { return p.num_envs > 0; }))),
      asked_pool_(pool_) {
  if (pool_->closed()) throw InvalidState("the worker pool is closed; make a new one");
  std::vector<Share> shares;
  int first_env = 0;
  for (std::size_t w = 0; w < payloads.size(); ++w) {
    if (payloads[w].num_envs == 0) continue;
    shares.push_back({first_env, payloads[w].num_envs});
    Part part;
    part.scene = {.worker = static_cast<int>(w),
                  .name = fmt::format("worker {}", w),
                  .first_env = first_env,
                  .num_envs = payloads[w].num_envs};
    part.payload = std::move(payloads[w].bytes);
    parts_.push_back(std::move(part));
    first_env += payloads[w].num_envs;
  }
  if (parts_.empty()) throw InvalidArgument("a vector environment needs at least one environment");
  exits_seen_ = pool_->exits();
  try {
    for (Part& part : parts_) {
      settle_in(part, pool_->enter(part.scene.worker, session_));
      send_open(part, part.life);
    }
    receive_hellos(os::deadline_after(options.faults.start_timeout));
    for (const Part& part : parts_) {
      check_same_spaces(parts_[0].hello, part.hello, part.scene.first_env);
    }
    set_up(parts_[0].hello, shares, options.autoreset_mode);
    ledger_ = FaultLedger(options.faults, num_envs());
    fault_of_.resize(static_cast<std::size_t>(num_envs()));
    for (Part& part : parts_) {
      health_.change(index_of(part), [&](WorkerHealth& health) {
        health.first_env = part.scene.first_env;
        health.num_envs = part.scene.num_envs;
        health.pid = part.scene.pid;
      });
      attach(index_of(part));
    }
  } catch (...) {
    close_within(kBusyCloseTimeout);
    throw;
  }
}

PoolVectorEnv::~PoolVectorEnv() { close_within(options().close_timeout); }

process::ErrorReport PoolVectorEnv::report_in(std::span<const std::byte> bytes) {
  if (auto report = process::ErrorReport::decode(bytes)) return *std::move(report);
  process::ErrorReport lost;
  lost.type = "Error";
  lost.message = "its report was lost";
  return lost;
}

// It lives there from now on.
void PoolVectorEnv::settle_in(Part& at, WorkerPool::Entry entry) {
  at.life = entry.life;
  at.door = std::move(entry.door);
  at.scene.pid = pool_->pid(at.life);
}

// Asks a worker to build this session's environments.
void PoolVectorEnv::send_open(const Part& at, PoolLife life) {
  pool_->send(life, {.kind = PoolKind::kOpen,
                     .session = session_,
                     .first = at.scene.first_env,
                     .count = at.scene.num_envs,
                     .flag = options().faults.on_fault != OnFault::kRaise,
                     .bytes = at.payload});
}

void PoolVectorEnv::attach(int worker, std::vector<std::byte> handed) {
  Part& at = part(worker);
  at.state = Part::State::kUp;
  at.stalled_ns = 0;
  pool_->send(
      at.life,
      {.kind = PoolKind::kAttach, .session = session_, .first = worker, .bytes = std::move(handed)},
      segment().fd());
}

// A worker that fails at once is reported at once, also while the hello of an earlier one is waited
// for.
void PoolVectorEnv::receive_hellos(os::Deadline deadline) {
  std::vector<int> missing(parts_.size());
  std::iota(missing.begin(), missing.end(), 0);
  while (!missing.empty()) {
    const os::Deadline until = std::min(deadline, os::deadline_after(kSlice));
    const bool came = receive_hello(missing.front(), until);
    if (came) missing.erase(missing.begin());
    if (came) continue;
    std::erase_if(missing, [&](int worker) { return receive_hello(worker, os::Clock::now()); });
    if (options().interrupt_check) options().interrupt_check();
    if (!missing.empty() && os::Clock::now() >= deadline) throw_late_start(part(missing.front()));
  }
}

bool PoolVectorEnv::receive_hello(int worker, os::Deadline until) {
  Part& from = part(worker);
  // Looked at first: what it sent before its end is still taken.
  const bool ended = pool_->dead(from.life);
  while (auto message = pool_->receive(session_, from.life, ended ? os::Clock::now() : until)) {
    if (message->kind == PoolKind::kHello) {
      take_hello(from, *message);
      return true;
    }
    if (message->kind != PoolKind::kFailed) continue;
    throw process::RemoteError(from.scene.name, report_in(message->bytes));
  }
  if (ended) throw_death(pool_->death(from.life).certificate);
  if (pool_->closed()) throw InvalidState("the worker pool of these environments is closed");
  return false;
}

void PoolVectorEnv::take_hello(Part& from, const PoolMessage& message) {
  HelloMessage hello = decode_hello(message.bytes);
  from.can_rebuild = message.flag;
  from.hello = std::move(hello.hello);
}

// The worker is of no more use, to any session: it is busy with what does not end.
void PoolVectorEnv::throw_late_start(const Part& late) {
  const auto limit = options().faults.start_timeout;
  KillReason reason = KillReason::hung_start(late.scene.describe(), limit);
  reason.stack = pool_->stack(late.life, kStackTimeout);
  const std::string text = account_of_late_start(
      fmt::format("{} did not send its hello in time", late.scene.describe()), limit, reason.stack);
  pool_->end(late.life, session_, std::move(reason));
  throw TimedOut(text);
}

// The next message that is wanted; the others are dealt with. Throws TimedOut and WorkerDied.
PoolMessage PoolVectorEnv::await_message(int worker, os::Deadline deadline, const char* waiting_for,
                                         const std::function<bool(const PoolMessage&)>& wanted) {
  const Part& from = part(worker);
  for (;;) {
    // Looked at first: what it sent before its end is still taken.
    const bool ended = pool_->dead(from.life);
    const os::Deadline until =
        ended ? os::Clock::now() : std::min(deadline, os::deadline_after(kSlice));
    if (auto message = pool_->receive(session_, from.life, until)) {
      if (wanted(*message)) return *std::move(message);
      if (message->kind == PoolKind::kInfo) keep_info(*std::move(message));
      continue;
    }
    if (ended) throw process::WorkerDied(pool_->death(from.life).certificate);
    if (pool_->closed()) throw InvalidState("the worker pool of these environments is closed");
    if (options().interrupt_check) options().interrupt_check();
    if (os::Clock::now() >= deadline) {
      throw TimedOut(
          fmt::format("{} did not send its {} in time", from.scene.describe(), waiting_for));
    }
  }
}

void PoolVectorEnv::keep_info(PoolMessage message) {
  infos_[static_cast<int>(message.sequence >> 32)] = {static_cast<std::uint32_t>(message.sequence),
                                                      std::move(message.bytes)};
}

void PoolVectorEnv::wake(int worker) { part(worker).door->ring(); }

void PoolVectorEnv::tell(int worker, std::span<const std::byte> message) {
  pool_->send(
      part(worker).life,
      {.kind = PoolKind::kTell, .session = session_, .bytes = {message.begin(), message.end()}});
}

sync::WaitOutcome PoolVectorEnv::await(sync::Gather& gather, os::Deadline deadline) {
  return gather.wait(spin_policy_, deadline);
}

std::optional<std::vector<std::byte>> PoolVectorEnv::take_info(int row, std::uint32_t sequence,
                                                               bool may_come) {
  if (const auto kept = infos_.find(row); kept != infos_.end() && kept->second.first == sequence) {
    return std::move(infos_.extract(kept).mapped().second);
  }
  if (!may_come) return {};
  const std::uint64_t wanted = static_cast<std::uint64_t>(row) << 32 | sequence;
  try {
    return await_message(worker_of(row), os::deadline_after(options().faults.start_timeout), "info",
                         [wanted](const PoolMessage& message) {
                           return message.kind == PoolKind::kInfo && message.sequence == wanted;
                         })
        .bytes;
  } catch (const process::WorkerDied&) {
    static_cast<void>(look_for_deaths());
    return {};
  }
}

std::uint64_t PoolVectorEnv::ask(int worker, std::span<const std::byte> message) {
  const std::uint64_t sequence = ++sequence_;
  pool_->send(part(worker).life, {.kind = PoolKind::kRequest,
                                  .session = session_,
                                  .sequence = sequence,
                                  .bytes = {message.begin(), message.end()}});
  return sequence;
}

PoolMessage PoolVectorEnv::await_answer(int worker, std::uint64_t sequence, os::Deadline deadline) {
  try {
    return await_message(worker, deadline, "answer", [sequence](const PoolMessage& candidate) {
      return (candidate.kind == PoolKind::kReply || candidate.kind == PoolKind::kRefusal) &&
             candidate.sequence == sequence;
    });
  } catch (const process::WorkerDied&) {
    static_cast<void>(look_for_deaths());  // so that the policy begins at once
    throw;
  }
}

std::vector<std::byte> PoolVectorEnv::take_answer(int worker, PoolMessage answer) {
  if (answer.kind == PoolKind::kReply) return std::move(answer.bytes);
  throw process::RemoteError(part(worker).scene.name, report_in(answer.bytes));
}

// Until the worker has its environments (again), and they are not on their way to another. Throws
// TimedOut.
void PoolVectorEnv::await_up(int worker, os::Deadline deadline) {
  while (!answers(part(worker))) {
    if (part(worker).state == Part::State::kGone) {
      throw InvalidState(fmt::format("{} has been dropped: there is nobody to ask",
                                     part(worker).scene.describe()));
    }
    if (os::Clock::now() >= deadline) {
      throw TimedOut(fmt::format("{} has not come back in time", part(worker).scene.describe()));
    }
    std::this_thread::sleep_for(kShortSlice);
    if (options().interrupt_check) options().interrupt_check();
    static_cast<void>(look_around());
  }
}

std::vector<std::byte> PoolVectorEnv::request(int worker, std::span<const std::byte> message,
                                              std::optional<std::chrono::nanoseconds> timeout) {
  state().require_idle("request");
  hello(worker);  // refuses a worker that there is not
  static_cast<void>(look_around());
  const os::Deadline deadline = timeout ? os::deadline_after(*timeout) : os::kNoDeadline;
  await_up(worker, deadline);
  const std::uint64_t sequence = ask(worker, message);
  return take_answer(worker, await_answer(worker, sequence, deadline));
}

void PoolVectorEnv::request_async(std::span<const std::vector<std::byte>> messages) {
  if (messages.size() != parts_.size()) {
    throw InvalidArgument(
        fmt::format("request: {} messages for {} workers", messages.size(), parts_.size()));
  }
  state().require_idle("request");
  static_cast<void>(look_around());
  const auto nobody = [&](std::size_t w) {  // who has been dropped answers nothing
    return messages[w].empty() || parts_[w].state == Part::State::kGone;
  };
  const os::Deadline deadline = os::deadline_after(options().faults.start_timeout);
  const auto ready = [&](std::size_t w) { return nobody(w) || answers(parts_[w]); };
  for (std::size_t w = 0; w < messages.size();) {
    if (ready(w)) {
      ++w;
      continue;
    }
    await_up(static_cast<int>(w), deadline);
    w = 0;  // meanwhile another may have gone
  }
  state().begin_request();
  asked_.clear();
  for (std::size_t w = 0; w < messages.size(); ++w) {
    if (nobody(w)) continue;
    const int worker = static_cast<int>(w);
    asked_.push_back({worker, ask(worker, messages[w]), {}});
  }
}

std::vector<std::vector<std::byte>> PoolVectorEnv::request_wait(
    std::optional<std::chrono::nanoseconds> timeout) {
  state().require_pending_request();
  const os::Deadline deadline = timeout ? os::deadline_after(*timeout) : os::kNoDeadline;
  std::exception_ptr death;
  for (Asked& asked : asked_) {  // what TimedOut leaves unanswered is waited for the next time
    if (asked.answer) continue;
    try {
      asked.answer = await_answer(asked.worker, asked.sequence, deadline);
    } catch (const process::WorkerDied&) {
      if (!death) death = std::current_exception();
      asked.answer = PoolMessage{};
    }
  }
  state().finish();
  std::vector<Asked> all = std::exchange(asked_, {});
  if (death) std::rethrow_exception(death);
  std::vector<std::vector<std::byte>> answers(parts_.size());
  for (Asked& asked : all) {
    answers[static_cast<std::size_t>(asked.worker)] =
        take_answer(asked.worker, *std::move(asked.answer));
  }
  return answers;
}

const Hello& PoolVectorEnv::hello(int worker) const {
  if (worker < 0 || static_cast<std::size_t>(worker) >= parts_.size()) {
    throw InvalidArgument(
        fmt::format("there is no worker {}; there are {}", worker, parts_.size()));
  }
  return part(worker).hello;
}

Stats PoolVectorEnv::stats() const {
  Stats stats = AsyncVectorEnv::stats();
  for (std::size_t w = 0; w < parts_.size(); ++w) {
    if (!pool_) continue;
    stats.workers[w].pid = pool_->pid(parts_[w].life);
    stats.workers[w].restarts = pool_->restarts(parts_[w].scene.worker);
  }
  return stats;
}

std::vector<WorkerHealth> PoolVectorEnv::health() const {
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
    const AsyncCell& cell = segment().cell(static_cast<int>(w));
    const std::int32_t word = cell.env_now.load(std::memory_order_acquire);  // [marker]
    if (word == EnvMarker::kNone || worker.state == WorkerState::kStarting) continue;
    if (worker.state == WorkerState::kIdle) worker.state = WorkerState::kStepping;
    worker.env = EnvMarker::blamed(word);
    worker.since = std::chrono::nanoseconds(static_cast<std::int64_t>(
        os::coarse_now_ns() - cell.env_since.load(std::memory_order_relaxed)));  // after [marker]
  }
  return workers;
}

void PoolVectorEnv::close_within(std::chrono::milliseconds timeout) noexcept {
  if (!pool_) return;
  const bool busy = flight().count() > 0;
  state().close();
  for (int w = 0; w < static_cast<int>(parts_.size()); ++w) {
    health_.change(w, [](WorkerHealth& health) { health.state = WorkerState::kClosed; });
  }
  const std::shared_ptr<WorkerPool> pool = std::exchange(pool_, nullptr);
  if (owner_pid_ != ::getpid()) return;  // a forked copy: the workers are not its own
  const auto limit = busy ? std::min(timeout, kBusyCloseTimeout) : timeout;
  const os::Deadline deadline = os::deadline_after(limit);
  if (!pool->closed()) close_session(*pool, deadline);
  if (owns_pool_) {
    pool->close_within(std::chrono::ceil<std::chrono::milliseconds>(os::time_left(deadline)));
  }
}

void PoolVectorEnv::close_session(WorkerPool& pool, os::Deadline deadline) noexcept {
  try {
    for (const Part& part : parts_) {
      PoolMessage close{.kind = PoolKind::kClose, .session = session_, .bytes = {}};
      if (part.move) pool.send(part.move->to.life, close);
      close.flag = true;
      if (sits(part)) pool.send(part.life, close);
    }
    for (const Part& part : parts_) {
      if (sits(part)) await_closed(pool, part, deadline);
    }
  } catch (const std::exception&) {
    // A channel that broke: the worker is on its way out, and the environments with it.
  }
  pool.forget(session_);
}

// What takes too long is given up, and after an interrupt all that is left.
void PoolVectorEnv::await_closed(WorkerPool& pool, const Part& at, os::Deadline deadline) {
  const Patience patience{.deadline = deadline, .check = options().interrupt_check};
  while (!pool.dead(at.life)) {
    const auto message = pool.receive(session_, at.life, closing_.wait_until(patience));
    if (message && message->kind == PoolKind::kClosed) {
      for (process::ErrorReport& report : decode_reports(message->bytes)) {
        closing_.add(at.scene.name, std::move(report));
      }
      return;
    }
    if (!message && !closing_.goes_on(patience)) {
      pool.give_up(at.life);
      return;
    }
  }
}

}  // namespace shoal::vector
