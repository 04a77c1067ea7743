#include "shoal/learn/a3c/actor_processes.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/process/identity/welcome.h"
#include "shoal/process/supervise/stack_dump.h"
#include "shoal/vector/fault/fault_record.h"

namespace shoal::learn {
namespace {

using process::DeathCertificate;
using process::WorkerProcess;

constexpr std::chrono::milliseconds kStackTimeout{1000};

ActorProcesses::Setup checked(ActorProcesses::Setup setup) {
  if (!setup.launcher || setup.actors.empty())
    throw InvalidArgument("A3C's actors need a launcher, and there has to be one actor at least");
  for (std::size_t i = 0; i < setup.actors.size(); ++i) {
    setup.actors[i].index = static_cast<int>(i);
    setup.actors[i].name = fmt::format("actor {}", i);
  }
  return setup;
}

vector::FaultRecord record_of(const DeathCertificate& certificate) {
  vector::FaultRecord record;
  record.kind =
      certificate.status.signal != 0 ? vector::FaultKind::kKilled : vector::FaultKind::kExit;
  record.worker = certificate.index;
  record.first_env = certificate.index;  // the ledger's rows are the actors
  record.num_envs = 1;
  record.pid = certificate.pid;
  record.status = certificate.status;
  record.cause = certificate.status.zygote;
  const std::string text = certificate.describe();
  record.message = text.substr(0, text.find('\n'));
  record.details =
      text.size() > record.message.size() ? text.substr(record.message.size() + 1) : "";
  return record;
}

}  // namespace

ActorProcesses::ActorProcesses(Setup setup)
    : setup_(checked(std::move(setup))),
      shared_state_(process::SharedState::create()),
      bell_(std::make_shared<Bell>()),
      places_(setup_.actors.size()) {
  std::vector<int> all(places_.size());
  std::iota(all.begin(), all.end(), 0);
  launch(all);
}

ActorProcesses::~ActorProcesses() { close(); }

int ActorProcesses::num_envs() const noexcept {
  return std::accumulate(setup_.actors.begin(), setup_.actors.end(), 0,
                         [](int sum, const auto& actor) { return sum + actor.num_envs; });
}

void ActorProcesses::start(Orders orders) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) throw InvalidState("start A3C's actors: they are closed");
    if (std::exchange(started_, true))
      throw InvalidState("start A3C's actors: they were started before");
    orders_ = std::move(orders);
  }
  {
    const std::lock_guard lock(bell_->mutex);
    bell_->ring = orders_.wake;
  }
  orders_.faults.on_fault = vector::OnFault::kRestart;
  ledger_ = vector::FaultLedger(orders_.faults, size());
  for (Place& place : places_) {
    send_order(*place.process, 0);
    // From now on: how long it has waited for its learner does not count.
    place.begin_by = os::deadline_after(setup_.start_timeout);
  }
}

void ActorProcesses::send_order(WorkerProcess& worker, int generation) {
  const auto order = orders_.order(worker.spec().index, generation);
  // That it is gone is seen as any end is.
  static_cast<void>(worker.channel().send(order, {&orders_.arena_fd, 1},
                                          os::deadline_after(setup_.start_timeout)));
}

void ActorProcesses::launch(const std::vector<int>& actors) {
  std::vector<process::WorkerSpec> specs;
  for (const int actor : actors) specs.push_back(setup_.actors[static_cast<std::size_t>(actor)]);
  const auto greet = [&](WorkerProcess& worker) {
    process::send_welcome(worker, *shared_state_, size());
    if (started_)
      send_order(worker, places_[static_cast<std::size_t>(worker.spec().index)].generation);
  };
  const auto on_exit = [bell = bell_](int) {
    const std::lock_guard lock(bell->mutex);
    if (bell->ring) bell->ring();
  };
  auto processes = setup_.launcher->start(std::move(specs), on_exit, greet);
  const std::lock_guard lock(mutex_);
  for (std::size_t k = 0; k < actors.size(); ++k) {
    Place& place = places_[static_cast<std::size_t>(actors[k])];
    place.process = std::move(processes[k]);
    place.begin_by = os::deadline_after(setup_.start_timeout);
    ++place.generation;
  }
}

void ActorProcesses::watch() {
  const os::Deadline now = os::Clock::now();
  const auto since = now - std::min(std::exchange(looked_, now), now);
  const auto passed = std::min<os::Clock::duration>(since, kLongestLook);
  for (int actor = 0; actor < size(); ++actor) {
    const Place& place = places_[static_cast<std::size_t>(actor)];
    if (place.process && place.process->exit_status()) take_leave(actor);
    if (place.process) look_for_late(actor);
    if (place.process) look_for_silent(actor, passed);
  }
  std::vector<int> due;
  for (int actor = 0; actor < size(); ++actor) {
    if (!places_[static_cast<std::size_t>(actor)].process && ledger_.due(actor) <= now)
      due.push_back(actor);
  }
  if (due.empty()) return;
  launch(due);
  const std::lock_guard lock(mutex_);
  for (const int actor : due) {
    ledger_.back(actor);
    ++replaced_;
  }
}

void ActorProcesses::take_leave(int actor) {
  Place& place = places_[static_cast<std::size_t>(actor)];
  std::unique_ptr<WorkerProcess> ended;
  {
    const std::lock_guard lock(mutex_);
    ended = std::move(place.process);
  }
  orders_.ended(actor);
  DeathCertificate certificate = DeathCertificate::of(*ended);
  if (certificate.report) throw process::RemoteError(certificate.worker, *certificate.report);
  if (orders_.faults.max_restarts == 0) throw process::WorkerDied(std::move(certificate));
  static_cast<void>(ledger_.admit(record_of(certificate)));
}

void ActorProcesses::look_for_late(int actor) {
  Place& place = places_[static_cast<std::size_t>(actor)];
  if (place.begin_by == os::kNoDeadline) return;
  if (orders_.signs(actor) > 0) {
    place.begin_by = os::kNoDeadline;
  } else if (os::Clock::now() > place.begin_by) {
    place.process->kill(SIGKILL);
    throw TimedOut(fmt::format("actor {} has not built and reset its environments after {:g} s",
                               actor, std::chrono::duration<double>(setup_.start_timeout).count()));
  }
}

void ActorProcesses::look_for_silent(int actor, os::Clock::duration passed) {
  Place& place = places_[static_cast<std::size_t>(actor)];
  const std::uint64_t signs = orders_.signs(actor);
  if (signs == 0 || signs != std::exchange(place.signs, signs)) {
    place.silent = {};
    return;
  }
  place.silent += passed;
  if (orders_.step_timeout.count() > 0 && place.silent > orders_.step_timeout) end_silent(actor);
}

void ActorProcesses::end_silent(int actor) {
  WorkerProcess& process = *places_[static_cast<std::size_t>(actor)].process;
  const std::string stack = process::ask_for_stack(process, kStackTimeout);
  process.kill(SIGKILL);
  throw TimedOut(fmt::format(
      "actor {} (pid {}) has not stepped its environments for {:g} s, which step_timeout "
      "allows (0: no bound); it was killed{}{}",
      actor, process.pid(), std::chrono::duration<double>(orders_.step_timeout).count(),
      stack.empty() ? "" : ". It was here:\n", stack));
}

void ActorProcesses::close(std::chrono::milliseconds grace) noexcept {
  std::vector<std::unique_ptr<WorkerProcess>> running;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    for (Place& place : places_)
      if (place.process) running.push_back(std::move(place.process));
    if (started_) orders_.end();
  }
  {
    const std::lock_guard lock(bell_->mutex);
    bell_->ring = {};
  }
  for (const auto& process : running) process->channel().shutdown();
  const os::Deadline until = os::deadline_after(grace);
  for (const auto& process : running) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(os::time_left(until));
    if (!process->join(left)) process->kill(SIGKILL);
  }
  for (const auto& process : running) static_cast<void>(process->join(grace));
}

std::vector<int> ActorProcesses::pids() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> pids;
  for (const Place& place : places_)
    if (place.process && !place.process->exit_status()) pids.push_back(place.process->pid());
  return pids;
}

int ActorProcesses::replaced() const {
  const std::lock_guard lock(mutex_);
  return replaced_;
}

}  // namespace shoal::learn
