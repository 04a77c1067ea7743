#include "shoal/ipc/task_scheduler.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::ipc {
namespace {

constexpr std::chrono::milliseconds kLook{50};        // between looks after deaths
constexpr std::chrono::milliseconds kLookClosely{2};  // while a worker is about to leave
constexpr std::size_t kMaxAhead = 128;                // tasks that one worker is given beforehand
constexpr double kAheadNanos = 1e6;                   // or what it does in this time

}  // namespace

TaskScheduler::TaskScheduler(int seats, std::size_t ring_bytes)
    : owner_(::getpid()),
      board_(TaskBoard::create(seats, ring_bytes)),
      seats_(static_cast<std::size_t>(seats)) {
  for (int i = 0; i < seats; ++i) {
    seats_[i].tasks = board_.tasks(i);
    seats_[i].results = board_.results(i);
  }
}

TaskScheduler::~TaskScheduler() {
  if (is_owner()) stop({});
}

bool TaskScheduler::is_owner() const noexcept { return ::getpid() == owner_; }

void TaskScheduler::prepare(int index, std::size_t quota) {
  const std::lock_guard lock(mutex_);
  Seat& seat = seats_.at(index);
  SHOAL_CHECK(seat.state == Seat::kFree, "a seat is given to two workers");
  board_.seat(index).stop.store(stopped_ ? 1 : 0, std::memory_order_release);
  seat.quota = quota;
  seat.state = Seat::kPrepared;
}

void TaskScheduler::occupy(int index, pid_t pid) {
  os::PidFd process;
  try {
    process = os::PidFd::open(pid);
  } catch (const SystemError&) {  // it has ended and was collected: the empty one says so
  }
  {
    const std::lock_guard lock(mutex_);
    Seat& seat = seats_.at(index);
    seat.process = std::move(process);
    seat.occupied = true;
    if (seat.state == Seat::kPrepared) seat.state = Seat::kStarting;
  }
  wake();
}

Block TaskScheduler::shelf(int index) {
  const std::lock_guard lock(mutex_);
  Block& shelf = seats_.at(index).shelf;
  if (!shelf) shelf = Block::allocate(1);
  return shelf;
}

void TaskScheduler::vacate(int index) {
  const std::lock_guard lock(mutex_);
  seats_.at(index).state = Seat::kFree;
  seats_.at(index).shelf = {};
}

void TaskScheduler::open(const std::shared_ptr<TaskJob>&) {
  if (!is_owner()) throw InvalidState("this pool is another process's");
  const std::lock_guard lock(mutex_);
  if (closed_) throw InvalidState("Pool not running");
  ++open_jobs_;
}

bool TaskScheduler::add(const std::shared_ptr<TaskJob>& job, std::uint32_t index, TaskBytes payload,
                        std::vector<Block> held) {
  const std::lock_guard lock(mutex_);
  if (stopped_) {
    deliver(job, {index, false, stop_error_});
    return false;
  }
  pending_.push_back({next_id_++, job, index, std::move(payload), std::move(held)});
  pending_bytes_ += pending_.back().weight();
  schedule();
  return true;
}

void TaskScheduler::put(const std::shared_ptr<TaskJob>& job, TaskJob::Outcome outcome) {
  const std::lock_guard lock(mutex_);
  deliver(job, std::move(outcome));
}

void TaskScheduler::seal(const std::shared_ptr<TaskJob>& job, std::size_t length,
                         std::uint64_t ticket) {
  {
    const std::lock_guard lock(mutex_);
    if (ticket != 0) tickets_[job.get()] = ticket;
    job->seal(length);
    --open_jobs_;
    notify_if_finished(job);
    if (!closed_) return;
    schedule();
  }
  wake();
}

std::size_t TaskScheduler::pending_bytes() const {
  const std::lock_guard lock(mutex_);
  return pending_bytes_;
}

bool TaskScheduler::wait_for_room(std::size_t bytes, os::Deadline deadline) const {
  std::unique_lock lock(mutex_);
  return drained_.wait_until(lock, deadline, [&] { return pending_bytes_ <= bytes || stopped_; });
}

TaskScheduler::Event TaskScheduler::pump(os::Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const std::uint32_t seen = board_.results().generation();
    for (int i = 0; i < seats(); ++i) drain(i);
    look_for_deaths();
    schedule();
    if (!events_.empty()) {
      Event event = std::move(events_.front());
      events_.pop_front();
      return event;
    }
    if (is_finished()) return {.kind = Event::kFinished, .bytes = {}};
    const os::Deadline look = somebody_leaves() ? os::deadline_after(kLookClosely) : next_look_;
    const os::Deadline next = std::min(deadline, look);
    lock.unlock();
    const auto outcome = board_.results().park(seen, next);
    const bool late = os::Clock::now() >= deadline;
    lock.lock();
    if (late && outcome != sync::WaitOutcome::kReady) return {.bytes = {}};
  }
}

void TaskScheduler::wake() { board_.results().ring(); }

void TaskScheduler::drain(int index) {
  Seat& seat = seats_[index];
  bool made_room = false;
  while (TaskRecord* record = seat.results.front()) {
    made_room |= record->more != 0;
    take_result(index, *record);
    seat.results.pop(record);
  }
  if (made_room) board_.seat(index).tasks.ring();  // see TaskSeat::send()
}

void TaskScheduler::take_result(int index, const TaskRecord& record) {
  Seat& seat = seats_[index];
  const auto part = TaskRing::payload(&record);
  if (seat.partial.empty() && record.more != 0) seat.partial.reserve(record.total);
  seat.partial.insert(seat.partial.end(), part.begin(), part.end());
  if (record.more != 0) return;
  TaskBytes bytes = std::exchange(seat.partial, {});
  switch (static_cast<TaskReport>(record.kind)) {
    case TaskReport::kReady:
      if (seat.state == Seat::kStarting || seat.state == Seat::kPrepared) seat.state = Seat::kReady;
      seat.began = true;
      return;
    case TaskReport::kCannotBegin:
      if (!std::exchange(broken_, true)) {
        add_event({.kind = Event::kBroken, .seat = index, .bytes = std::move(bytes)});
      }
      return;
    case TaskReport::kDone:
    case TaskReport::kRaised:
    case TaskReport::kDoneInHeap:
      break;
  }
  if (seat.sent.empty() || seat.sent.front().task.id != record.tag) return;  // stopped meanwhile
  task_nanos_ += (static_cast<double>(record.nanos) - task_nanos_) / 8;
  const Task task = std::move(seat.sent.front().task);
  seat.sent.pop_front();
  Block held;
  if (record.kind == static_cast<std::uint32_t>(TaskReport::kDoneInHeap)) {
    held = from_shelf(seat, bytes);
    bytes.assign(held.data(), held.data() + held.size());
  }
  const bool ok = record.kind != static_cast<std::uint32_t>(TaskReport::kRaised);
  deliver(task.job, {task.index, ok, std::move(bytes), std::move(held)});
}

Block TaskScheduler::from_shelf(const Seat& seat, const TaskBytes& payload) {
  Offset message;
  SHOAL_CHECK(payload.size() == sizeof(message), "a result in the heap is named by its block");
  std::memcpy(&message, payload.data(), sizeof(message));
  const auto& heap = seat.shelf.heap();
  heap->take(message, seat.shelf.offset());
  return Block::adopt(heap, message);
}

void TaskScheduler::deliver(const std::shared_ptr<TaskJob>& job, TaskJob::Outcome outcome) {
  if (job->set(std::move(outcome))) notify_if_finished(job);
}

void TaskScheduler::notify_if_finished(const std::shared_ptr<TaskJob>& job) {
  if (!job->finished()) return;
  const auto ticket = tickets_.find(job.get());
  if (ticket == tickets_.end()) return;
  add_event({.kind = Event::kNotify, .ticket = ticket->second, .bytes = {}});
  tickets_.erase(ticket);
}

void TaskScheduler::add_event(Event event) {
  events_.push_back(std::move(event));
  wake();
}

// ---- who gets what

void TaskScheduler::schedule() {
  if (stopped_) return;
  for (Seat& seat : seats_) go_on_sending(seat);
  const std::size_t before = pending_bytes_;
  while (!pending_.empty()) {
    Seat* seat = idlest();
    if (seat == nullptr || !give(*seat)) break;
  }
  if (pending_.empty()) rebalance();
  if (pending_bytes_ < before) drained_.notify_all();
  if (is_done()) {
    for (int i = 0; i < seats(); ++i) {
      if (std::exchange(seats_[i].stopped, true)) continue;
      board_.seat(i).stop.store(1, std::memory_order_release);
      seats_[i].dirty = true;
    }
  }
  ring_dirty();
}

bool TaskScheduler::has_room(const Seat& seat) const noexcept {
  if (seat.state != Seat::kReady || !seat.has_quota()) return false;
  if (seat.sent.empty()) return true;
  const auto ahead = static_cast<std::size_t>(
      std::clamp(kAheadNanos / std::max(task_nanos_, 1.0), 2.0, double{kMaxAhead}));
  return seat.sent.size() < ahead && seat.sent.back().is_whole() &&
         pending_.front().payload.size() <= seat.tasks.max_payload();
}

TaskScheduler::Seat* TaskScheduler::idlest() noexcept {
  Seat* found = nullptr;
  for (Seat& seat : seats_) {
    if (has_room(seat) && (found == nullptr || seat.sent.size() < found->sent.size()))
      found = &seat;
  }
  return found;
}

/// Begins to send the oldest task; false when its ring has no room.
bool TaskScheduler::give(Seat& seat) {
  Task& task = pending_.front();
  const std::span<const std::byte> payload(task.payload);
  const auto part = payload.first(std::min<std::size_t>(payload.size(), seat.tasks.max_payload()));
  TaskRecord head{};
  head.tag = task.id;
  head.total = payload.size();
  head.more = part.size() < payload.size() ? 1 : 0;
  TaskRecord* record = seat.tasks.try_write(head, part);
  if (record == nullptr) return false;
  pending_bytes_ -= task.weight();
  const std::size_t written = part.size();
  seat.sent.push_back({std::move(task), record, seat.tasks.written(), written});
  pending_.pop_front();
  ++seat.given;
  seat.dirty = true;
  if (head.more != 0) go_on_sending(seat);
  return true;
}

void TaskScheduler::go_on_sending(Seat& seat) {
  if (seat.sent.empty() || seat.sent.back().is_whole() || seat.state != Seat::kReady) return;
  Sent& sent = seat.sent.back();
  while (!sent.is_whole()) {
    const auto rest = std::span<const std::byte>(sent.task.payload).subspan(sent.written);
    const auto part = rest.first(std::min<std::size_t>(rest.size(), seat.tasks.max_payload()));
    TaskRecord head{};
    head.tag = sent.task.id;
    head.total = sent.task.payload.size();
    head.more = part.size() < rest.size() ? 1 : 0;
    if (seat.tasks.try_write(head, part) == nullptr) return;
    sent.written += part.size();
    seat.dirty = true;
  }
}

/// Gives workers that have nothing to do what others have not begun.
void TaskScheduler::rebalance() {
  for (Seat& idle : seats_) {
    if (!idle.is_idle()) continue;
    const auto busiest = std::ranges::max_element(seats_, {}, [](const Seat& seat) {
      return seat.state == Seat::kReady ? seat.sent.size() : 0;
    });
    if (busiest->sent.size() < 2) return;
    take_back(*busiest, busiest->sent.size() / 2);
    while (!pending_.empty() && has_room(idle) && give(idle)) {
    }
    if (!pending_.empty()) return;
  }
}

void TaskScheduler::take_back(Seat& seat, std::size_t count) {
  std::vector<Task> tasks;
  while (tasks.size() < count && !seat.sent.empty()) {
    Sent& last = seat.sent.back();
    // A record that was consumed may have been overwritten: its state is another's.
    const bool consumed = static_cast<std::int32_t>(seat.tasks.consumed() - last.end) >= 0;
    if (consumed || last.task.payload.size() > seat.tasks.max_payload() ||
        !last.record->move_to(TaskRecord::kRevoked)) {
      break;
    }
    tasks.push_back(std::move(last.task));
    seat.sent.pop_back();
    --seat.given;
  }
  std::ranges::reverse(tasks);
  requeue(std::move(tasks));
}

void TaskScheduler::requeue(std::vector<Task> tasks) {
  for (const Task& task : tasks) pending_bytes_ += task.weight();
  pending_.insert(pending_.begin(), std::make_move_iterator(tasks.begin()),
                  std::make_move_iterator(tasks.end()));
}

void TaskScheduler::ring_dirty() noexcept {
  for (int i = 0; i < seats(); ++i) {
    if (std::exchange(seats_[i].dirty, false)) board_.seat(i).tasks.ring();
  }
}

// ---- beginnings and ends

/// Of a dead worker: whether it had begun the first of its tasks.
bool TaskScheduler::is_begun(const Seat& seat) const noexcept {
  if (seat.sent.empty()) return false;
  const Sent& first = seat.sent.front();
  return static_cast<std::int32_t>(seat.tasks.consumed() - first.end) >= 0 ||
         first.record->state.load(std::memory_order_acquire) == TaskRecord::kTaken;
}

void TaskScheduler::look_for_deaths() {
  const os::Deadline now = os::Clock::now();
  if (now < next_look_ && !somebody_leaves()) return;
  next_look_ = now + kLook;
  for (int i = 0; i < seats(); ++i) {
    Seat& seat = seats_[i];
    const bool alive = seat.process && !seat.process.ended();
    if (alive || !seat.is_occupied()) continue;
    drain(i);  // what it had sent
    Event died{.kind = Event::kDied, .seat = i, .ready = seat.began, .bytes = {}};
    died.retired = seat.is_leaving();
    died.blamed = is_begun(seat);
    seat.state = Seat::kDead;
    add_event(std::move(died));
  }
}

bool TaskScheduler::somebody_leaves() const noexcept {
  return std::ranges::any_of(seats_, [](const Seat& seat) { return seat.is_leaving(); });
}

bool TaskScheduler::bury(int index, const TaskBytes& error) {
  const std::lock_guard lock(mutex_);
  Seat& seat = seats_.at(index);
  SHOAL_CHECK(seat.state == Seat::kDead, "a worker is buried that has not died");
  const bool begun = is_begun(seat);
  std::vector<Task> rest;
  for (Sent& sent : seat.sent) {
    if (begun && &sent == &seat.sent.front()) {
      deliver(sent.task.job, {sent.task.index, false, error});
    } else {
      rest.push_back(std::move(sent.task));
    }
  }
  requeue(std::move(rest));
  seat.tasks.reset();
  Seat fresh;
  fresh.tasks = seat.tasks;
  fresh.results = seat.results;
  seat = std::move(fresh);
  schedule();
  return !stopped_ && !is_done();
}

bool TaskScheduler::is_done() const noexcept {
  return closed_ && open_jobs_ == 0 && pending_.empty() &&
         std::ranges::all_of(seats_, [](const Seat& seat) { return seat.sent.empty(); });
}

bool TaskScheduler::is_finished() const noexcept {
  return stopped_ || (is_done() && std::ranges::all_of(seats_, [](const Seat& seat) {
                        return seat.state == Seat::kFree;
                      }));
}

void TaskScheduler::close() {
  if (!is_owner()) return;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    schedule();
  }
  wake();
}

void TaskScheduler::stop(const TaskBytes& error) {
  if (!is_owner()) return;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    stop_error_ = error;
    for (int i = 0; i < seats(); ++i) {
      for (Sent& sent : seats_[i].sent) {
        deliver(sent.task.job, {sent.task.index, false, error});
      }
      seats_[i].sent.clear();
      board_.seat(i).stop.store(1, std::memory_order_release);
      seats_[i].dirty = true;
    }
    for (const Task& task : pending_) deliver(task.job, {task.index, false, error});
    pending_.clear();
    pending_bytes_ = 0;
    ring_dirty();
  }
  drained_.notify_all();
  wake();
}

}  // namespace shoal::ipc
