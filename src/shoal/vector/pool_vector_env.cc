#include "shoal/vector/pool_vector_env.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "shoal/vector/messages.h"

namespace shoal::vector {
namespace {

constexpr std::chrono::milliseconds kSlice{50};

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
      health_(static_cast<std::size_t>(std::count_if(
          payloads.begin(), payloads.end(), [](const Payload& p) { return p.num_envs > 0; }))),
      asked_pool_(pool_) {
  if (pool_->closed()) throw InvalidState("the worker pool is closed; make a new one");
  std::vector<Share> shares;
  int first_env = 0;
  for (std::size_t w = 0; w < payloads.size(); ++w) {
    if (payloads[w].num_envs == 0) continue;
    shares.push_back({first_env, payloads[w].num_envs});
    first_env += payloads[w].num_envs;
    Part part;
    part.pool_worker = static_cast<int>(w);
    part.payload = std::move(payloads[w].bytes);
    parts_.push_back(std::move(part));
  }
  if (parts_.empty()) throw InvalidArgument("a vector environment needs at least one environment");
  exits_seen_ = pool_->exits();
  const os::Deadline deadline = os::deadline_after(options.faults.start_timeout);
  try {
    for (std::size_t w = 0; w < parts_.size(); ++w) {
      part(static_cast<int>(w)).life = pool_->life(parts_[w].pool_worker);
      pool_->send(parts_[w].pool_worker, {.kind = PoolKind::kOpen,
                                          .session = session_,
                                          .first = shares[w].first_env,
                                          .count = shares[w].num_envs,
                                          .flag = options.faults.on_fault != OnFault::kRaise,
                                          .bytes = parts_[w].payload});
    }
    for (std::size_t w = 0; w < parts_.size(); ++w) {
      receive_hello(static_cast<int>(w), deadline);
      check_same_spaces(parts_[0].hello, parts_[w].hello, shares[w].first_env);
    }
    set_up(parts_[0].hello, shares, options.autoreset_mode);
    ledger_ = FaultLedger(options.faults, num_envs());
    fault_of_.resize(static_cast<std::size_t>(num_envs()));
    for (std::size_t w = 0; w < shares.size(); ++w) {
      health_.change(static_cast<int>(w), [&](WorkerHealth& health) {
        health.first_env = shares[w].first_env;
        health.num_envs = shares[w].num_envs;
      });
    }
    for (Part& part : parts_) {
      pool_->send(part.pool_worker,
                  {.kind = PoolKind::kAttach,
                   .session = session_,
                   .first = static_cast<std::int32_t>(&part - parts_.data()),
                   .bytes = {}},
                  segment().fd());
    }
  } catch (...) {
    close_within(kBusyCloseTimeout);
    throw;
  }
}

PoolVectorEnv::~PoolVectorEnv() { close_within(options().close_timeout); }

std::string PoolVectorEnv::describe(int worker) const {
  const Share& share = shares()[static_cast<std::size_t>(worker)];
  if (share.num_envs == 1) {
    return fmt::format("worker {} (environment {})", part(worker).pool_worker, share.first_env);
  }
  return fmt::format("worker {} (environments {} to {})", part(worker).pool_worker, share.first_env,
                     share.first_env + share.num_envs - 1);
}

process::ErrorReport PoolVectorEnv::report_in(std::span<const std::byte> bytes) {
  if (auto report = process::ErrorReport::decode(bytes)) return *std::move(report);
  process::ErrorReport lost;
  lost.type = "Error";
  lost.message = "its report was lost";
  return lost;
}

// The next message that is wanted; the others are dealt with. Throws TimedOut and WorkerDied.
PoolMessage PoolVectorEnv::await_message(int worker, os::Deadline deadline, const char* waiting_for,
                                         const std::function<bool(const PoolMessage&)>& wanted) {
  const Part& from = part(worker);
  for (;;) {
    const bool ended = pool_->dead(from.pool_worker, from.life);  // looked at first: what it sent
    const os::Deadline until =                                    // before its end is still taken
        ended ? os::Clock::now() : std::min(deadline, os::deadline_after(kSlice));
    if (auto message = pool_->receive(session_, from.pool_worker, until)) {
      if (wanted(*message)) return *std::move(message);
      if (message->kind == PoolKind::kInfo) keep_info(*std::move(message));
      continue;
    }
    if (ended) throw process::WorkerDied(pool_->certificate(from.pool_worker, from.life));
    if (pool_->closed()) throw InvalidState("the worker pool of these environments is closed");
    if (options().interrupt_check) options().interrupt_check();
    if (os::Clock::now() >= deadline) {
      throw TimedOut(
          fmt::format("worker {} did not send its {} in time", from.pool_worker, waiting_for));
    }
  }
}

void PoolVectorEnv::keep_info(PoolMessage message) {
  infos_[{static_cast<int>(message.sequence >> 32), static_cast<std::uint32_t>(message.sequence)}] =
      std::move(message.bytes);
}

void PoolVectorEnv::receive_hello(int worker, os::Deadline deadline) {
  Part& from = part(worker);
  const PoolMessage message =
      await_message(worker, deadline, "hello", [](const PoolMessage& candidate) {
        return candidate.kind == PoolKind::kHello || candidate.kind == PoolKind::kFailed;
      });
  if (message.kind == PoolKind::kFailed) {
    throw process::RemoteError(fmt::format("worker {}", from.pool_worker),
                               report_in(message.bytes));
  }
  HelloMessage hello = decode_hello(message.bytes);
  from.can_rebuild = message.flag;
  from.hello = std::move(hello.hello);
}

void PoolVectorEnv::wake(int worker) { pool_->ring(part(worker).pool_worker); }

// Never a spin: the workers need the CPU, and the last of them hands its own over (pool_worker.cc).
sync::WaitOutcome PoolVectorEnv::await(sync::Gather& gather, os::Deadline deadline) {
  return gather.park(deadline);
}

std::vector<std::byte> PoolVectorEnv::take_info(int row, std::uint32_t sequence) {
  const std::pair key(row, sequence);
  if (!infos_.contains(key)) {
    const std::uint64_t wanted = static_cast<std::uint64_t>(row) << 32 | sequence;
    try {
      return await_message(worker_of(row), os::deadline_after(options().faults.start_timeout),
                           "info",
                           [wanted](const PoolMessage& message) {
                             return message.kind == PoolKind::kInfo && message.sequence == wanted;
                           })
          .bytes;
    } catch (const process::WorkerDied&) {
      return {};  // it died before it could bring it
    }
  }
  std::vector<std::byte> bytes = std::move(infos_[key]);
  infos_.erase(key);
  return bytes;
}

std::uint64_t PoolVectorEnv::ask(int worker, std::span<const std::byte> message) {
  const std::uint64_t sequence = ++sequence_;
  pool_->send(part(worker).pool_worker, {.kind = PoolKind::kRequest,
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
  throw process::RemoteError(fmt::format("worker {}", part(worker).pool_worker),
                             report_in(answer.bytes));
}

std::vector<std::byte> PoolVectorEnv::request(int worker, std::span<const std::byte> message,
                                              std::optional<std::chrono::nanoseconds> timeout) {
  state().require_idle("request");
  hello(worker);  // refuses a worker that there is not
  static_cast<void>(look_around());
  const os::Deadline deadline = timeout ? os::deadline_after(*timeout) : os::kNoDeadline;
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
  state().begin_request();
  asked_.clear();
  for (std::size_t w = 0; w < messages.size(); ++w) {
    if (messages[w].empty()) continue;
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
    stats.workers[w].pid = pool_->pid(parts_[w].pool_worker);
    stats.workers[w].restarts = pool_->restarts(parts_[w].pool_worker);
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
      continue;
    }
    if (worker.state == WorkerState::kRestarting || worker.state == WorkerState::kDropped) continue;
    worker.pid = pool->pid(parts_[w].pool_worker);
    worker.rss_bytes = rss_of(worker.pid);
    const AsyncCell& cell = segment().cell(static_cast<int>(w));
    const std::int32_t word = cell.env_now.load(std::memory_order_acquire);  // [marker]
    if (word == EnvMarker::kNone || worker.state == WorkerState::kStarting) continue;
    worker.state = WorkerState::kStepping;
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
  if (owns_pool_) {
    pool->close_within(limit);
    return;
  }
  if (pool->closed()) return;
  try {
    const os::Deadline deadline = os::deadline_after(limit);
    for (const Part& part : parts_) {
      if (part.life == 0 || pool->dead(part.pool_worker, part.life)) continue;
      pool->send(part.pool_worker, {.kind = PoolKind::kClose, .session = session_, .bytes = {}});
    }
    for (const Part& part : parts_) {
      while (part.life != 0 && !pool->dead(part.pool_worker, part.life)) {
        const auto message = pool->receive(session_, part.pool_worker, deadline);
        if (!message) pool->give_up(part.pool_worker);
        if (!message || message->kind == PoolKind::kClosed) break;
      }
    }
  } catch (const std::exception&) {
    // A channel that broke: the worker is on its way out, and the environments with it.
  }
  pool->forget(session_);
}

}  // namespace shoal::vector
