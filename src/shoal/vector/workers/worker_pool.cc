#include "shoal/vector/workers/worker_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "shoal/os/limits/affinity.h"
#include "shoal/process/identity/welcome.h"
#include "shoal/process/supervise/stack_dump.h"

namespace shoal::vector {
namespace {

// How long receive() keeps the others from the channels at a time.
constexpr std::chrono::milliseconds kTurn{5};
// For a worker that was killed to end.
constexpr std::chrono::milliseconds kEndTimeout{1000};

}  // namespace

WorkerPool::WorkerPool(std::shared_ptr<process::Launcher> launcher,
                       std::vector<process::WorkerSpec> specs, PoolOptions options)
    : launcher_(std::move(launcher)),
      options_(std::move(options)),
      exits_(std::make_shared<std::atomic<std::uint64_t>>(0)),
      cpus_(options_.cpus, options_.pin_workers, specs.size()) {
  if (specs.empty()) throw InvalidArgument("WorkerPool: num_workers is 0; it must be at least 1");
  if (!options_.shared_state) options_.shared_state = process::SharedState::create();
  std::vector<Slot*> all;
  slots_.resize(specs.size());
  for (std::size_t w = 0; w < specs.size(); ++w) {
    slots_[w].spec = std::move(specs[w]);
    slots_[w].spec.index = static_cast<int>(w);
    if (slots_[w].spec.name.empty()) slots_[w].spec.name = fmt::format("worker {}", w);
    all.push_back(&slots_[w]);
  }
  start(all);
}

// A new incarnation for each.
void WorkerPool::start(std::span<Slot*> slots) {
  std::vector<process::WorkerSpec> specs;
  for (const Slot* slot : slots) specs.push_back(slot->spec);
  const auto count_exit = [exits = exits_](int) {
    exits->fetch_add(1, std::memory_order_release);  // [exits]
  };
  // A door has a descriptor until it is sent: there are never many at a time.
  std::vector<std::shared_ptr<PoolDoor>> doors(slots.size());
  const int cpus = os::allowed_cpus();
  const auto greet = [&](process::WorkerProcess& process) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i]->spec.index != process.spec().index) continue;
      doors[i] = std::make_shared<PoolDoor>(PoolDoor::create(num_workers(), cpus));
      welcome(process, *doors[i]);
    }
  };
  auto started = launcher_->start(std::move(specs), count_exit, greet);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    std::list<Process>& incarnations = slots[i]->incarnations;
    Process running;
    running.number = incarnations.empty() ? 1 : incarnations.back().number + 1;
    running.process = std::move(started[i]);
    running.door = std::move(doors[i]);
    incarnations.push_back(std::move(running));
  }
}

void WorkerPool::welcome(process::WorkerProcess& process, PoolDoor& door) {
  if (cpus_.chosen() || !options_.rounds) cpus_.place(process.spec().index, process.pid());
  process::send_welcome(process, *options_.shared_state, num_workers());
  const int fd = door.fd();
  static_cast<void>(process.channel().send(
      PoolMessage{.kind = PoolKind::kJoin, .flag = options_.rounds, .bytes = {}}.encode(),
      std::span(&fd, 1)));
  door.close_fd();
}

void WorkerPool::place(Incarnation incarnation) noexcept {
  if (const int process = pid(incarnation); process > 0) cpus_.place(incarnation.worker, process);
}

void WorkerPool::spread(int count, int caller) noexcept {
  cpus_.spread(count, caller);
  const std::lock_guard lock(mutex_);
  for (const Slot& at : slots_) {
    for (const Process& running : at.incarnations) {
      if (!running.dead()) cpus_.place(at.spec.index, running.process->pid());
    }
  }
}

WorkerPool::Process* WorkerPool::find(Incarnation incarnation) noexcept {
  for (Process& at : slot(incarnation.worker).incarnations) {
    if (at.number == incarnation.number) return &at;
  }
  return nullptr;
}

std::uint64_t WorkerPool::restarts(int worker) const {
  const std::lock_guard lock(mutex_);
  return slot(worker).restarts;
}

Incarnation WorkerPool::newest(int worker) const {
  const std::lock_guard lock(mutex_);
  const std::list<Process>& incarnations = slot(worker).incarnations;
  return {worker, incarnations.empty() ? 0 : incarnations.back().number};
}

WorkerPool::Entry WorkerPool::enter(int worker, std::uint32_t session) {
  const std::lock_guard lock(mutex_);
  if (closed()) throw InvalidState("the worker pool is closed; make a new one");
  Process& running = slot(worker).incarnations.back();
  running.sessions.insert(session);
  return {{worker, running.number}, running.door};
}

WorkerPool::Entry WorkerPool::enter_younger(Incarnation old, std::uint32_t session) {
  const std::lock_guard lock(mutex_);
  if (closed()) throw InvalidState("the worker pool of these environments is closed");
  Slot& at = slot(old.worker);
  if (!at.incarnations.back().can_follow(old)) {
    const bool dead = at.incarnations.back().dead();
    Slot* one = &at;
    start(std::span(&one, 1));
    if (dead) ++at.restarts;
    let_go(at);
  }
  Process& running = at.incarnations.back();
  running.sessions.insert(session);
  return {{old.worker, running.number}, running.door};
}

bool WorkerPool::can_enter_younger(Incarnation old) {
  const std::lock_guard lock(mutex_);
  if (closed()) return true;
  return slot(old.worker).incarnations.back().can_follow(old) || launcher_->ready();
}

void WorkerPool::leave(Incarnation incarnation, std::uint32_t session) noexcept {
  const std::lock_guard lock(mutex_);
  if (Process* const at = find(incarnation)) at->sessions.erase(session);
  inbox_.erase({session, incarnation.worker, incarnation.number});
  let_go(slot(incarnation.worker));
}

void WorkerPool::forget(std::uint32_t session) noexcept {
  const std::lock_guard lock(mutex_);
  for (Slot& at : slots_) {
    for (Process& running : at.incarnations) running.sessions.erase(session);
    let_go(at);
  }
  std::erase_if(inbox_, [session](const auto& entry) { return get<0>(entry.first) == session; });
}

void WorkerPool::tidy() noexcept {
  const std::lock_guard lock(mutex_);
  for (Slot& at : slots_) {
    if (at.incarnations.size() > 1) let_go(at);
  }
}

// Ends the older incarnations that no session is in.
void WorkerPool::let_go(Slot& at) noexcept {
  const os::Deadline now = os::Clock::now();
  std::list<Process>& all = at.incarnations;
  for (auto running = all.begin(); running != all.end() && std::next(running) != all.end();) {
    if (!running->sessions.empty()) {
      ++running;
      continue;
    }
    if (!running->leaving) {
      running->leaving = os::deadline_after(options_.close_timeout);
      tell_to_end(*running);
    }
    const bool over = running->given_up || now >= *running->leaving || running->dead();
    running = over ? all.erase(running) : std::next(running);  // kills it if it is left
  }
}

void WorkerPool::tell_to_end(Process& running) noexcept {
  running.process->channel().shutdown();
  running.door->words().mail.fetch_add(1, std::memory_order_release);  // [mail]
  running.door->ring();
}

int WorkerPool::pid(Incarnation incarnation) const {
  const std::lock_guard lock(mutex_);
  const Process* const at = find(incarnation);
  return at != nullptr ? at->process->pid() : 0;
}

bool WorkerPool::dead(Incarnation incarnation) const {
  const std::lock_guard lock(mutex_);
  const Process* const at = find(incarnation);
  return at == nullptr || at->dead();
}

PoolDeath WorkerPool::death(Incarnation incarnation) {
  const std::lock_guard lock(mutex_);
  if (const Process* const at = find(incarnation)) {
    PoolDeath death{process::DeathCertificate::of(*at->process), at->killed, at->killed_for};
    if (!death.certificate.report) death.certificate.report = at->report;
    return death;
  }
  PoolDeath unknown;
  unknown.certificate.worker = slot(incarnation.worker).spec.name;
  unknown.certificate.index = incarnation.worker;
  unknown.certificate.status.known = false;
  return unknown;
}

std::optional<process::ErrorReport> WorkerPool::report(Incarnation incarnation) const {
  const std::lock_guard lock(mutex_);
  const Process* const at = find(incarnation);
  return at != nullptr ? at->report : std::nullopt;
}

std::string WorkerPool::stack(Incarnation incarnation, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  Process* const at = find(incarnation);
  return at != nullptr ? process::ask_for_stack(*at->process, timeout) : std::string();
}

void WorkerPool::end(Incarnation incarnation, std::uint32_t session, KillReason reason) {
  const std::lock_guard lock(mutex_);
  Process* const at = find(incarnation);
  if (at == nullptr) return;
  if (!at->killed && !at->dead()) {
    at->killed = std::move(reason);
    at->killed_for = session;
  }
  at->process->kill(SIGKILL);
  static_cast<void>(at->process->join(kEndTimeout));
}

void WorkerPool::dismiss(Incarnation incarnation) noexcept {
  const std::lock_guard lock(mutex_);
  if (Process* const at = find(incarnation)) tell_to_end(*at);
}

bool WorkerPool::send(Incarnation incarnation, const PoolMessage& message, int fd,
                      os::Deadline deadline) {
  const std::vector<std::byte> bytes = message.encode();
  const std::span<const int> fds = fd < 0 ? std::span<const int>{} : std::span(&fd, 1);
  for (;;) {
    const std::lock_guard lock(mutex_);
    Process* const at = find(incarnation);
    if (at == nullptr || at->dead()) return true;
    const os::Deadline turn = std::min(deadline, os::deadline_after(kTurn));
    if (at->process->channel().send(bytes, fds, turn) != os::SendOutcome::kTimedOut) {
      at->door->words().mail.fetch_add(1, std::memory_order_release);  // [mail]
      at->door->ring();
      return true;
    }
    // A full channel is one whose worker waits for us to take what it said.
    while (take_message(incarnation.worker, *at, os::Clock::now())) {
    }
    if (os::Clock::now() >= deadline) return false;
  }
}

// Takes one message of a worker's into the inbox of its session.
bool WorkerPool::take_message(int worker, Process& at, os::Deadline deadline) {
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

std::optional<PoolMessage> WorkerPool::receive(std::uint32_t session, Incarnation incarnation,
                                               os::Deadline deadline) {
  for (;;) {
    const std::lock_guard lock(mutex_);
    const auto found = inbox_.find({session, incarnation.worker, incarnation.number});
    if (found != inbox_.end()) {
      PoolMessage message = std::move(found->second.front());
      found->second.pop_front();
      if (found->second.empty()) inbox_.erase(found);
      return message;
    }
    Process* const at = find(incarnation);
    if (at == nullptr) return {};
    const bool ended = at->dead() || at->report.has_value();
    const os::Deadline turn =
        ended ? os::Clock::now() : std::min(deadline, os::deadline_after(kTurn));
    if (!take_message(incarnation.worker, *at, turn) && (ended || os::Clock::now() >= deadline))
      return {};
  }
}

std::vector<PoolMessage> WorkerPool::take_all(std::uint32_t session, Incarnation incarnation,
                                              PoolKind kind) {
  const std::lock_guard lock(mutex_);
  if (Process* const at = find(incarnation)) {
    while (take_message(incarnation.worker, *at, os::Clock::now())) {
    }
  }
  std::vector<PoolMessage> taken;
  const auto found = inbox_.find({session, incarnation.worker, incarnation.number});
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

void WorkerPool::give_up(Incarnation incarnation) noexcept {
  const std::lock_guard lock(mutex_);
  if (Process* const at = find(incarnation)) at->given_up = true;
}

void WorkerPool::close_within(std::chrono::milliseconds timeout) noexcept {
  if (closed_.exchange(true)) return;
  if (!maker_.is_this()) return;  // the workers are not its own
  const std::lock_guard lock(mutex_);
  const os::Deadline deadline = os::deadline_after(timeout);
  for (Slot& at : slots_) {
    for (Process& running : at.incarnations) tell_to_end(running);
  }
  for (Slot& at : slots_) {
    for (Process& running : at.incarnations) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(os::time_left(deadline));
      if (!running.given_up) static_cast<void>(running.process->join(left));
    }
    at.incarnations.clear();  // kills them if they are left
  }
  launcher_.reset();  // and its zygote, where nobody else uses it
}

}  // namespace shoal::vector
