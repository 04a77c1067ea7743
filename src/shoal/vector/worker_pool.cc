#include "shoal/vector/worker_pool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "shoal/os/affinity.h"
#include "shoal/process/stack_dump.h"
#include "shoal/process/welcome.h"

namespace shoal::vector {
namespace {

// How long receive() keeps the others from the channels at a time.
constexpr std::chrono::milliseconds kTurn{5};
// For a worker that was killed to end.
constexpr std::chrono::milliseconds kEndTimeout{1000};

}  // namespace

// With exactly one worker for each CPU, each has one to itself: left alone, the kernel now and then
// puts two of them on one CPU and leaves another idle.
std::vector<int> pool_cpus(bool pin_workers, std::size_t workers) {
  if (!pin_workers || workers < 2) return {};
  std::vector<int> cpus = os::cpu_set();
  const auto allowed = static_cast<std::size_t>(os::allowed_cpus());
  return cpus.size() == workers && allowed == workers ? cpus : std::vector<int>{};
}

WorkerPool::WorkerPool(std::shared_ptr<process::Launcher> launcher,
                       std::vector<process::WorkerSpec> specs, PoolOptions options)
    : owner_pid_(::getpid()),
      launcher_(std::move(launcher)),
      options_(std::move(options)),
      cpus_(pool_cpus(options_.pin_workers, specs.size())),
      exits_(std::make_shared<std::atomic<std::uint64_t>>(0)) {
  if (specs.empty()) throw InvalidArgument("WorkerPool: num_workers is 0; it must be at least 1");
  if (!options_.board) options_.board = process::Board::create();
  doors_ = PoolDoors::create(static_cast<int>(specs.size()));
  std::vector<Seat*> all;
  seats_.resize(specs.size());
  for (std::size_t w = 0; w < specs.size(); ++w) {
    seats_[w].spec = std::move(specs[w]);
    seats_[w].spec.index = static_cast<int>(w);
    if (seats_[w].spec.name.empty()) seats_[w].spec.name = fmt::format("worker {}", w);
    all.push_back(&seats_[w]);
  }
  start(all);
}

void WorkerPool::start(std::span<Seat*> seats) {
  std::vector<process::WorkerSpec> specs;
  for (const Seat* seat : seats) specs.push_back(seat->spec);
  auto started = launcher_->start(std::move(specs), [exits = exits_](int) {
    exits->fetch_add(1, std::memory_order_release);  // [exits]
  });
  for (std::size_t i = 0; i < seats.size(); ++i) {
    seats[i]->process = std::move(started[i]);
    ++seats[i]->life;
    welcome(*seats[i]);
  }
}

void WorkerPool::welcome(Seat& seat) {
  const int index = seat.spec.index;
  doors_.door(index).mail.store(0, std::memory_order_relaxed);  // relaxed: sent with the doors
  doors_.door(index).serving.store(0, std::memory_order_relaxed);
  const int pid = seat.process->pid();
  if (!cpus_.empty() && pid != owner_pid_) {
    try {
      os::set_cpu_set({&cpus_[static_cast<std::size_t>(index)], 1}, pid);
    } catch (const SystemError&) {
      // A CPU that has gone, or a worker that is gone and shows as such later: a place is a wish.
    }
  }
  process::send_welcome(*seat.process, *options_.board, num_workers());
  const int fd = doors_.fd();
  static_cast<void>(seat.process->channel().send(
      PoolMessage{.kind = PoolKind::kJoin, .first = index, .bytes = {}}.encode(),
      std::span(&fd, 1)));
}

int WorkerPool::pid(int worker) const {
  const std::lock_guard lock(mutex_);
  return seat(worker).process ? seat(worker).process->pid() : 0;
}

std::uint64_t WorkerPool::restarts(int worker) const { return life(worker) - 1; }

std::uint64_t WorkerPool::life(int worker) const {
  const std::lock_guard lock(mutex_);
  return seat(worker).life;
}

bool WorkerPool::dead(int worker, std::uint64_t life) const {
  const std::lock_guard lock(mutex_);
  const Seat& at = seat(worker);
  return at.life != life || !at.process || at.process->exit_status().has_value();
}

PoolDeath WorkerPool::end_of(Seat& at) {
  PoolDeath death{process::DeathCertificate::of(*at.process), at.killed, at.killed_for};
  if (!death.certificate.report) death.certificate.report = at.report;
  return death;
}

PoolDeath WorkerPool::death(int worker, std::uint64_t life) {
  const std::lock_guard lock(mutex_);
  Seat& at = seat(worker);
  if (at.life == life && at.process) return end_of(at);
  if (at.last_death) return *at.last_death;
  PoolDeath unknown;
  unknown.certificate.worker = at.spec.name;
  unknown.certificate.index = worker;
  unknown.certificate.status.known = false;
  return unknown;
}

void WorkerPool::restart(int worker, std::uint64_t life) {
  const std::lock_guard lock(mutex_);
  Seat& at = seat(worker);
  if (at.life != life) return;  // another session was first
  if (closed()) throw InvalidState("the worker pool of these environments is closed");
  while (at.process && take_message(at, worker, os::Clock::now())) {
  }  // what it said before its end
  if (at.process) at.last_death = end_of(at);
  at.report.reset();
  at.killed.reset();
  at.process.reset();
  at.given_up = false;
  Seat* one = &at;
  start(std::span(&one, 1));
}

std::string WorkerPool::stack(int worker, std::uint64_t life, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  Seat& at = seat(worker);
  if (at.life != life || !at.process) return {};
  return process::ask_for_stack(*at.process, timeout);
}

void WorkerPool::end(int worker, std::uint64_t life, std::uint32_t session, KillReason reason) {
  const std::lock_guard lock(mutex_);
  Seat& at = seat(worker);
  if (at.life != life || !at.process) return;
  if (!at.killed && !at.process->exit_status()) {
    at.killed = std::move(reason);
    at.killed_for = session;
  }
  at.process->kill(SIGKILL);
  static_cast<void>(at.process->join(kEndTimeout));
}

void WorkerPool::dismiss(int worker, std::uint64_t life) noexcept {
  const std::lock_guard lock(mutex_);
  Seat& at = seat(worker);
  if (at.life != life || !at.process) return;
  at.process->channel().shutdown();
  doors_.door(worker).mail.fetch_add(1, std::memory_order_release);  // [mail]
  ring(worker);
}

void WorkerPool::send(int worker, const PoolMessage& message, int fd) {
  {
    const std::lock_guard lock(mutex_);
    Seat& at = seat(worker);
    if (!at.process) return;
    const std::vector<std::byte> bytes = message.encode();
    const std::span<const int> fds = fd < 0 ? std::span<const int>{} : std::span(&fd, 1);
    // A full channel is one whose worker waits for us to take what it said.
    while (at.process->channel().send(bytes, fds, os::deadline_after(kTurn)) ==
           os::SendOutcome::kTimedOut) {
      if (at.process->exit_status()) return;
      while (take_message(at, worker, os::Clock::now())) {
      }
    }
    doors_.door(worker).mail.fetch_add(1, std::memory_order_release);  // [mail]
  }
  ring(worker);
}

// Takes one message of a worker's into the inbox of its session.
bool WorkerPool::take_message(Seat& at, int worker, os::Deadline deadline) {
  os::Message message;
  if (at.process->channel().recv(message, deadline) != os::RecvOutcome::kMessage) return false;
  if (auto report = process::ErrorReport::decode(message.bytes)) {
    at.report = std::move(report);  // the entry itself failed
    return true;
  }
  PoolMessage decoded = PoolMessage::decode(message.bytes);
  const auto key = std::pair(decoded.session, worker);
  inbox_[key].push_back(std::move(decoded));
  return true;
}

std::optional<PoolMessage> WorkerPool::receive(std::uint32_t session, int worker,
                                               os::Deadline deadline) {
  const auto key = std::pair(session, worker);
  for (bool last = false;;) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = inbox_.find(key);
      if (found != inbox_.end()) {
        PoolMessage message = std::move(found->second.front());
        found->second.pop_front();
        if (found->second.empty()) inbox_.erase(found);
        return message;
      }
      Seat& at = seat(worker);
      if (last || !at.process) return {};
      const bool ended = at.process->exit_status().has_value();
      const os::Deadline turn =
          ended ? os::Clock::now() : std::min(deadline, os::deadline_after(kTurn));
      if (!take_message(at, worker, turn) && (ended || os::Clock::now() >= deadline)) return {};
    }
    last = false;
  }
}

std::vector<PoolMessage> WorkerPool::take_all(std::uint32_t session, int worker, PoolKind kind) {
  const std::lock_guard lock(mutex_);
  Seat& at = seat(worker);
  while (at.process && take_message(at, worker, os::Clock::now())) {
  }
  std::vector<PoolMessage> taken;
  const auto found = inbox_.find(std::pair(session, worker));
  if (found == inbox_.end()) return taken;
  std::deque<PoolMessage>& inbox = found->second;
  const auto wanted =
      std::stable_partition(inbox.begin(), inbox.end(),
                            [kind](const PoolMessage& message) { return message.kind != kind; });
  std::move(wanted, inbox.end(), std::back_inserter(taken));
  inbox.erase(wanted, inbox.end());
  if (inbox.empty()) inbox_.erase(found);
  return taken;
}

void WorkerPool::give_up(int worker) noexcept {
  const std::lock_guard lock(mutex_);
  seat(worker).given_up = true;
}

void WorkerPool::forget(std::uint32_t session) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(inbox_, [session](const auto& entry) { return entry.first.first == session; });
}

void WorkerPool::close_within(std::chrono::milliseconds timeout) noexcept {
  if (closed_.exchange(true)) return;
  if (owner_pid_ != ::getpid()) {
    // A forked copy: the workers are not its own.
    return;
  }
  const std::lock_guard lock(mutex_);
  const os::Deadline deadline = os::deadline_after(timeout);
  for (std::size_t w = 0; w < seats_.size(); ++w) {
    if (!seats_[w].process) continue;
    seats_[w].process->channel().shutdown();
    doors_.door(static_cast<int>(w)).mail.fetch_add(1, std::memory_order_release);  // [mail]
    ring(static_cast<int>(w));
  }
  for (Seat& at : seats_) {
    if (!at.process) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(os::time_left(deadline));
    if (!at.given_up) static_cast<void>(at.process->join(left));
    at.process.reset();  // kills it if it is left
  }
  launcher_.reset();  // and its zygote, where nobody else uses it
}

}  // namespace shoal::vector
