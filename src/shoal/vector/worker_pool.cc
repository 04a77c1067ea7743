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

WorkerPool::WorkerPool(std::shared_ptr<process::Launcher> launcher,
                       std::vector<process::WorkerSpec> specs, PoolOptions options)
    : owner_pid_(::getpid()),
      launcher_(std::move(launcher)),
      options_(std::move(options)),
      cpus_(options_.cpus, options_.pin_workers, specs.size()),
      exits_(std::make_shared<std::atomic<std::uint64_t>>(0)) {
  if (specs.empty()) throw InvalidArgument("WorkerPool: num_workers is 0; it must be at least 1");
  if (!options_.board) options_.board = process::Board::create();
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

// A new life for each.
void WorkerPool::start(std::span<Seat*> seats) {
  std::vector<process::WorkerSpec> specs;
  std::vector<std::shared_ptr<PoolDoor>> doors;
  for (const Seat* seat : seats) {
    specs.push_back(seat->spec);
    doors.push_back(std::make_shared<PoolDoor>(PoolDoor::create(num_workers())));
  }
  auto started = launcher_->start(std::move(specs), [exits = exits_](int) {
    exits->fetch_add(1, std::memory_order_release);  // [exits]
  });
  for (std::size_t i = 0; i < seats.size(); ++i) {
    std::list<Life>& lives = seats[i]->lives;
    Life life;
    life.number = lives.empty() ? 1 : lives.back().number + 1;
    life.process = std::move(started[i]);
    life.door = std::move(doors[i]);
    welcome(*seats[i], life);
    lives.push_back(std::move(life));
  }
}

void WorkerPool::welcome(const Seat& seat, Life& life) {
  const int index = seat.spec.index;
  const int pid = life.process->pid();
  cpus_.place(index, pid);
  process::send_welcome(*life.process, *options_.board, num_workers());
  const int fd = life.door->fd();
  static_cast<void>(life.process->channel().send(
      PoolMessage{.kind = PoolKind::kJoin, .bytes = {}}.encode(), std::span(&fd, 1)));
  life.door->close_fd();
}

WorkerPool::Life* WorkerPool::find(PoolLife life) noexcept {
  for (Life& at : seat(life.worker).lives) {
    if (at.number == life.number) return &at;
  }
  return nullptr;
}

std::uint64_t WorkerPool::restarts(int worker) const {
  const std::lock_guard lock(mutex_);
  return seat(worker).restarts;
}

PoolLife WorkerPool::newest(int worker) const {
  const std::lock_guard lock(mutex_);
  const std::list<Life>& lives = seat(worker).lives;
  return {worker, lives.empty() ? 0 : lives.back().number};
}

WorkerPool::Entry WorkerPool::enter(int worker, std::uint32_t session) {
  const std::lock_guard lock(mutex_);
  if (closed()) throw InvalidState("the worker pool is closed; make a new one");
  Life& life = seat(worker).lives.back();
  life.sessions.insert(session);
  return {{worker, life.number}, life.door};
}

WorkerPool::Entry WorkerPool::enter_younger(PoolLife old, std::uint32_t session) {
  const std::lock_guard lock(mutex_);
  if (closed()) throw InvalidState("the worker pool of these environments is closed");
  Seat& at = seat(old.worker);
  if (!at.lives.back().can_follow(old)) {
    const bool dead = at.lives.back().dead();
    Seat* one = &at;
    start(std::span(&one, 1));
    if (dead) ++at.restarts;
    let_go(at);
  }
  Life& life = at.lives.back();
  life.sessions.insert(session);
  return {{old.worker, life.number}, life.door};
}

bool WorkerPool::can_enter_younger(PoolLife old) {
  const std::lock_guard lock(mutex_);
  if (closed()) return true;
  return seat(old.worker).lives.back().can_follow(old) || launcher_->ready();
}

void WorkerPool::leave(PoolLife life, std::uint32_t session) noexcept {
  const std::lock_guard lock(mutex_);
  if (Life* const at = find(life)) at->sessions.erase(session);
  inbox_.erase({session, life.worker, life.number});
  let_go(seat(life.worker));
}

void WorkerPool::forget(std::uint32_t session) noexcept {
  const std::lock_guard lock(mutex_);
  for (Seat& at : seats_) {
    for (Life& life : at.lives) life.sessions.erase(session);
    let_go(at);
  }
  std::erase_if(inbox_, [session](const auto& entry) { return get<0>(entry.first) == session; });
}

void WorkerPool::tidy() noexcept {
  const std::lock_guard lock(mutex_);
  for (Seat& at : seats_) {
    if (at.lives.size() > 1) let_go(at);
  }
}

// Ends the older lives that nobody lives in.
void WorkerPool::let_go(Seat& at) noexcept {
  const os::Deadline now = os::Clock::now();
  for (auto life = at.lives.begin(); life != at.lives.end() && std::next(life) != at.lives.end();) {
    if (!life->sessions.empty()) {
      ++life;
      continue;
    }
    if (!life->leaving) {
      life->leaving = os::deadline_after(options_.close_timeout);
      tell_to_end(*life);
    }
    const bool over = life->given_up || now >= *life->leaving || life->dead();
    life = over ? at.lives.erase(life) : std::next(life);  // kills it if it is left
  }
}

void WorkerPool::tell_to_end(Life& life) noexcept {
  life.process->channel().shutdown();
  life.door->words().mail.fetch_add(1, std::memory_order_release);  // [mail]
  life.door->ring();
}

int WorkerPool::pid(PoolLife life) const {
  const std::lock_guard lock(mutex_);
  const Life* const at = find(life);
  return at != nullptr ? at->process->pid() : 0;
}

bool WorkerPool::dead(PoolLife life) const {
  const std::lock_guard lock(mutex_);
  const Life* const at = find(life);
  return at == nullptr || at->dead();
}

PoolDeath WorkerPool::death(PoolLife life) {
  const std::lock_guard lock(mutex_);
  if (const Life* const at = find(life)) {
    PoolDeath death{process::DeathCertificate::of(*at->process), at->killed, at->killed_for};
    if (!death.certificate.report) death.certificate.report = at->report;
    return death;
  }
  PoolDeath unknown;
  unknown.certificate.worker = seat(life.worker).spec.name;
  unknown.certificate.index = life.worker;
  unknown.certificate.status.known = false;
  return unknown;
}

std::string WorkerPool::stack(PoolLife life, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  Life* const at = find(life);
  return at != nullptr ? process::ask_for_stack(*at->process, timeout) : std::string();
}

void WorkerPool::end(PoolLife life, std::uint32_t session, KillReason reason) {
  const std::lock_guard lock(mutex_);
  Life* const at = find(life);
  if (at == nullptr) return;
  if (!at->killed && !at->dead()) {
    at->killed = std::move(reason);
    at->killed_for = session;
  }
  at->process->kill(SIGKILL);
  static_cast<void>(at->process->join(kEndTimeout));
}

void WorkerPool::dismiss(PoolLife life) noexcept {
  const std::lock_guard lock(mutex_);
  if (Life* const at = find(life)) tell_to_end(*at);
}

void WorkerPool::send(PoolLife life, const PoolMessage& message, int fd) {
  const std::lock_guard lock(mutex_);
  Life* const at = find(life);
  if (at == nullptr) return;
  const std::vector<std::byte> bytes = message.encode();
  const std::span<const int> fds = fd < 0 ? std::span<const int>{} : std::span(&fd, 1);
  // A full channel is one whose worker waits for us to take what it said.
  while (at->process->channel().send(bytes, fds, os::deadline_after(kTurn)) ==
         os::SendOutcome::kTimedOut) {
    if (at->dead()) return;
    while (take_message(life.worker, *at, os::Clock::now())) {
    }
  }
  at->door->words().mail.fetch_add(1, std::memory_order_release);  // [mail]
  at->door->ring();
}

// Takes one message of a worker's into the inbox of its session.
bool WorkerPool::take_message(int worker, Life& at, os::Deadline deadline) {
  os::Message message;
  if (at.process->channel().recv(message, deadline) != os::RecvOutcome::kMessage) return false;
  if (auto report = process::ErrorReport::decode(message.bytes)) {
    at.report = std::move(report);  // the entry itself failed
    return true;
  }
  PoolMessage decoded = PoolMessage::decode(message.bytes);
  if (!at.sessions.contains(decoded.session)) return true;  // it has left
  inbox_[{decoded.session, worker, at.number}].push_back(std::move(decoded));
  return true;
}

std::optional<PoolMessage> WorkerPool::receive(std::uint32_t session, PoolLife life,
                                               os::Deadline deadline) {
  for (;;) {
    const std::lock_guard lock(mutex_);
    const auto found = inbox_.find({session, life.worker, life.number});
    if (found != inbox_.end()) {
      PoolMessage message = std::move(found->second.front());
      found->second.pop_front();
      if (found->second.empty()) inbox_.erase(found);
      return message;
    }
    Life* const at = find(life);
    if (at == nullptr) return {};
    const bool ended = at->dead();
    const os::Deadline turn =
        ended ? os::Clock::now() : std::min(deadline, os::deadline_after(kTurn));
    if (!take_message(life.worker, *at, turn) && (ended || os::Clock::now() >= deadline)) return {};
  }
}

std::vector<PoolMessage> WorkerPool::take_all(std::uint32_t session, PoolLife life, PoolKind kind) {
  const std::lock_guard lock(mutex_);
  if (Life* const at = find(life)) {
    while (take_message(life.worker, *at, os::Clock::now())) {
    }
  }
  std::vector<PoolMessage> taken;
  const auto found = inbox_.find({session, life.worker, life.number});
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

void WorkerPool::give_up(PoolLife life) noexcept {
  const std::lock_guard lock(mutex_);
  if (Life* const at = find(life)) at->given_up = true;
}

void WorkerPool::close_within(std::chrono::milliseconds timeout) noexcept {
  if (closed_.exchange(true)) return;
  if (owner_pid_ != ::getpid()) {
    // A forked copy: the workers are not its own.
    return;
  }
  const std::lock_guard lock(mutex_);
  const os::Deadline deadline = os::deadline_after(timeout);
  for (Seat& at : seats_) {
    for (Life& life : at.lives) tell_to_end(life);
  }
  for (Seat& at : seats_) {
    for (Life& life : at.lives) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(os::time_left(deadline));
      if (!life.given_up) static_cast<void>(life.process->join(left));
    }
    at.lives.clear();  // kills them if they are left
  }
  launcher_.reset();  // and its zygote, where nobody else uses it
}

}  // namespace shoal::vector
