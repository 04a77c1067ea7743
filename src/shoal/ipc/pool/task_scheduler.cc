#include "shoal/ipc/pool/task_scheduler.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/log.h"

namespace shoal::ipc {
namespace {

constexpr std::chrono::milliseconds kLook{50};        // between looks after deaths
constexpr std::chrono::milliseconds kLookClosely{2};  // while a worker is about to leave
constexpr std::size_t kMaxAhead = 128;                // tasks that one worker is given beforehand
constexpr double kAheadNanos = 1e6;                   // or what it does in this time
constexpr std::uint64_t kMostReserved = 64 << 20;     // bytes, on a worker's word

std::vector<std::string> names_of_counts(int slots) {
  std::vector<std::string> names = {"workers", "added", "done", "failed", "waiting", "restarts"};
  for (int i = 0; i < slots; ++i) names.push_back(fmt::format("worker {}", i));
  return names;
}

}  // namespace

TaskScheduler::TaskScheduler(int slots, std::size_t ring_bytes)
    : owner_(::getpid()),
      segment_(TaskSegment::create(slots, ring_bytes)),
      board_("pool", names_of_counts(slots)),
      slots_(static_cast<std::size_t>(slots)) {
  for (int i = 0; i < slots; ++i) {
    slots_[i].tasks = segment_.tasks(i);
    slots_[i].results = segment_.results(i);
  }
  board_[kWorkers].set(slots);
}

TaskScheduler::~TaskScheduler() {
  if (is_owner()) stop({});
}

bool TaskScheduler::is_owner() const noexcept { return ::getpid() == owner_; }

void TaskScheduler::prepare(int index, std::size_t quota) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_.at(index);
  SHOAL_CHECK(slot.state == Slot::kFree, "a slot is given to two workers");
  segment_.slot(index).stop.store(stopped_ ? 1 : 0, std::memory_order_release);
  slot.quota = quota;
  slot.state = Slot::kPrepared;
}

void TaskScheduler::occupy(int index, pid_t pid) {
  os::PidFd process;
  try {
    process = os::PidFd::open(pid);
  } catch (const SystemError&) {  // it has ended and was collected: the empty one says so
  }
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_.at(index);
    slot.process = std::move(process);
    slot.occupied = true;
    if (slot.process_before != 0) board_[kRestarts].add();
    slot.process_before = pid;
    board_[kCounts + static_cast<std::size_t>(index)].set(pid);
    if (slot.state == Slot::kPrepared) slot.state = Slot::kStarting;
  }
  wake();
}

Block TaskScheduler::shelf(int index) {
  const std::lock_guard lock(mutex_);
  Block& shelf = slots_.at(index).shelf;
  if (!shelf) shelf = Block::allocate(1);
  return shelf;
}

void TaskScheduler::vacate(int index) {
  const std::lock_guard lock(mutex_);
  slots_.at(index).state = Slot::kFree;
  board_[kCounts + static_cast<std::size_t>(index)].set(0);
  slots_.at(index).shelf = {};
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
  board_[kAdded].add();
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
  board_[kAdded].add();
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
    const std::uint32_t seen = segment_.results().generation();
    for (int i = 0; i < slots(); ++i) drain(i);
    look_for_deaths();
    schedule();
    if (!events_.empty()) {
      Event event = std::move(events_.front());
      events_.pop_front();
      return event;
    }
    if (is_finished()) {
      board_.end();
      return {.kind = Event::kFinished, .bytes = {}};
    }
    const os::Deadline look = somebody_leaves() ? os::deadline_after(kLookClosely) : next_look_;
    const os::Deadline next = std::min(deadline, look);
    lock.unlock();
    const auto outcome = segment_.results().park(seen, next);
    const bool late = os::Clock::now() >= deadline;
    lock.lock();
    if (late && outcome != sync::WaitOutcome::kReady) return {.bytes = {}};
  }
}

void TaskScheduler::wake() { segment_.results().ring(); }

void TaskScheduler::drain(int index) {
  Slot& slot = slots_[index];
  bool made_room = false;
  while (TaskRecord* record = slot.results.front()) {
    made_room |= record->more != 0;
    take_result(index, *record);
    slot.results.pop(record);
  }
  if (made_room) segment_.slot(index).tasks.ring();  // see TaskSlot::send()
}

void TaskScheduler::take_result(int index, const TaskRecord& record) {
  Slot& slot = slots_[index];
  const auto part = slot.results.payload(&record);
  if (slot.partial.empty() && record.more != 0)
    slot.partial.reserve(std::min<std::uint64_t>(record.total, kMostReserved));
  slot.partial.insert(slot.partial.end(), part.begin(), part.end());
  if (record.more != 0) return;
  TaskBytes bytes = std::exchange(slot.partial, {});
  switch (static_cast<TaskReport>(record.kind)) {
    case TaskReport::kReady:
      if (slot.state == Slot::kStarting || slot.state == Slot::kPrepared) slot.state = Slot::kReady;
      slot.began = true;
      return;
    case TaskReport::kCannotBegin:
      if (!std::exchange(broken_, true)) {
        add_event({.kind = Event::kBroken, .slot = index, .bytes = std::move(bytes)});
      }
      return;
    case TaskReport::kDone:
    case TaskReport::kRaised:
    case TaskReport::kDoneInHeap:
      break;
  }
  if (slot.sent.empty() || slot.sent.front().task.id != record.tag) return;  // stopped meanwhile
  task_nanos_ += (static_cast<double>(record.nanos) - task_nanos_) / 8;
  const Task task = std::move(slot.sent.front().task);
  slot.sent.pop_front();
  Block held;
  const std::uint32_t kind = record.kind;
  if (kind == static_cast<std::uint32_t>(TaskReport::kDoneInHeap)) {
    held = from_shelf(slot, bytes);
    if (held) bytes.assign(held.data(), held.data() + held.size());
  }
  const bool ok = kind != static_cast<std::uint32_t>(TaskReport::kRaised);
  deliver(task.job, {task.index, ok, std::move(bytes), std::move(held)});
}

Block TaskScheduler::from_shelf(const Slot& slot, const TaskBytes& payload) {
  Offset message;
  if (payload.size() != sizeof(message) || !slot.shelf) return {};
  std::memcpy(&message, payload.data(), sizeof(message));
  const auto& heap = slot.shelf.heap();
  try {
    heap->take(message, slot.shelf.offset());
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {  // it names a block that is not on its shelf
    os::log(os::LogLevel::kWarning, "ipc", "a pool's worker: {}", error.what());
    return {};
  }
  return Block::adopt(heap, message);
}

void TaskScheduler::deliver(const std::shared_ptr<TaskJob>& job, TaskJob::Outcome outcome) {
  board_[kDone].add();
  if (!outcome.ok) board_[kFailed].add();
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

// ---- which task goes to which worker

void TaskScheduler::schedule() {
  if (stopped_) return;
  for (Slot& slot : slots_) go_on_sending(slot);
  const std::size_t before = pending_bytes_;
  while (!pending_.empty()) {
    Slot* slot = idlest();
    if (slot == nullptr || !give(*slot)) break;
  }
  if (pending_.empty()) rebalance();
  if (pending_bytes_ < before) drained_.notify_all();
  if (is_done()) {
    for (int i = 0; i < slots(); ++i) {
      if (std::exchange(slots_[i].stopped, true)) continue;
      segment_.slot(i).stop.store(1, std::memory_order_release);
      slots_[i].dirty = true;
    }
  }
  ring_dirty();
  board_[kWaiting].set(static_cast<std::int64_t>(pending_.size()));
}

bool TaskScheduler::has_room(const Slot& slot) const noexcept {
  if (slot.state != Slot::kReady || !slot.has_quota()) return false;
  if (slot.sent.empty()) return true;
  const auto ahead = static_cast<std::size_t>(
      std::clamp(kAheadNanos / std::max(task_nanos_, 1.0), 2.0, double{kMaxAhead}));
  return slot.sent.size() < ahead && slot.sent.back().is_whole() &&
         pending_.front().payload.size() <= slot.tasks.max_payload();
}

TaskScheduler::Slot* TaskScheduler::idlest() noexcept {
  Slot* found = nullptr;
  for (Slot& slot : slots_) {
    if (has_room(slot) && (found == nullptr || slot.sent.size() < found->sent.size()))
      found = &slot;
  }
  return found;
}

/// Begins to send the oldest task; false when its ring has no room.
bool TaskScheduler::give(Slot& slot) {
  Task& task = pending_.front();
  const std::span<const std::byte> payload(task.payload);
  const auto part = payload.first(std::min<std::size_t>(payload.size(), slot.tasks.max_payload()));
  TaskRecord head{};
  head.tag = task.id;
  head.total = payload.size();
  head.more = part.size() < payload.size() ? 1 : 0;
  TaskRecord* record = slot.tasks.try_write(head, part);
  if (record == nullptr) return false;
  pending_bytes_ -= task.weight();
  const std::size_t written = part.size();
  slot.sent.push_back({std::move(task), record, slot.tasks.written(), written});
  pending_.pop_front();
  ++slot.given;
  slot.dirty = true;
  if (head.more != 0) go_on_sending(slot);
  return true;
}

void TaskScheduler::go_on_sending(Slot& slot) {
  if (slot.sent.empty() || slot.sent.back().is_whole() || slot.state != Slot::kReady) return;
  Sent& sent = slot.sent.back();
  while (!sent.is_whole()) {
    const auto rest = std::span<const std::byte>(sent.task.payload).subspan(sent.written);
    const auto part = rest.first(std::min<std::size_t>(rest.size(), slot.tasks.max_payload()));
    TaskRecord head{};
    head.tag = sent.task.id;
    head.total = sent.task.payload.size();
    head.more = part.size() < rest.size() ? 1 : 0;
    if (slot.tasks.try_write(head, part) == nullptr) return;
    sent.written += part.size();
    slot.dirty = true;
  }
}

/// Gives tasks that have not begun to workers that have nothing to do.
void TaskScheduler::rebalance() {
  for (Slot& idle : slots_) {
    if (!idle.is_idle()) continue;
    const auto busiest = std::ranges::max_element(slots_, {}, [](const Slot& slot) {
      return slot.state == Slot::kReady ? slot.sent.size() : 0;
    });
    if (busiest->sent.size() < 2) return;
    take_back(*busiest, busiest->sent.size() / 2);
    while (!pending_.empty() && has_room(idle) && give(idle)) {
    }
    if (!pending_.empty()) return;
  }
}

void TaskScheduler::take_back(Slot& slot, std::size_t count) {
  std::vector<Task> tasks;
  while (tasks.size() < count && !slot.sent.empty()) {
    Sent& last = slot.sent.back();
    // A record that was consumed may have been overwritten: its state is another record's.
    const bool consumed = static_cast<std::int32_t>(slot.tasks.consumed() - last.end) >= 0;
    if (consumed || last.task.payload.size() > slot.tasks.max_payload() ||
        !last.record->move_to(TaskRecord::kRevoked)) {
      break;
    }
    tasks.push_back(std::move(last.task));
    slot.sent.pop_back();
    --slot.given;
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
  for (int i = 0; i < slots(); ++i) {
    if (std::exchange(slots_[i].dirty, false)) segment_.slot(i).tasks.ring();
  }
}

// ---- how workers begin and end

/// Of a dead worker: whether it had begun the first of its tasks.
bool TaskScheduler::is_begun(const Slot& slot) const noexcept {
  if (slot.sent.empty()) return false;
  const Sent& first = slot.sent.front();
  return static_cast<std::int32_t>(slot.tasks.consumed() - first.end) >= 0 ||
         first.record->state.load(std::memory_order_acquire) == TaskRecord::kTaken;
}

void TaskScheduler::look_for_deaths() {
  const os::Deadline now = os::Clock::now();
  if (now < next_look_ && !somebody_leaves()) return;
  next_look_ = now + kLook;
  for (int i = 0; i < slots(); ++i) {
    Slot& slot = slots_[i];
    const bool alive = slot.process && !slot.process.ended();
    if (alive || !slot.is_occupied()) continue;
    drain(i);  // what it had sent
    Event died{.kind = Event::kDied, .slot = i, .ready = slot.began, .bytes = {}};
    died.retired = slot.is_leaving();
    died.blamed = is_begun(slot);
    slot.state = Slot::kDead;
    add_event(std::move(died));
  }
}

bool TaskScheduler::somebody_leaves() const noexcept {
  return std::ranges::any_of(slots_, [](const Slot& slot) { return slot.is_leaving(); });
}

bool TaskScheduler::bury(int index, const TaskBytes& error) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_.at(index);
  SHOAL_CHECK(slot.state == Slot::kDead, "a worker is buried that has not died");
  const bool begun = is_begun(slot);
  std::vector<Task> rest;
  for (Sent& sent : slot.sent) {
    if (begun && &sent == &slot.sent.front()) {
      deliver(sent.task.job, {sent.task.index, false, error});
    } else {
      rest.push_back(std::move(sent.task));
    }
  }
  requeue(std::move(rest));
  slot.tasks.reset();
  Slot fresh;
  fresh.tasks = slot.tasks;
  fresh.results = slot.results;
  fresh.process_before = slot.process_before;
  board_[kCounts + static_cast<std::size_t>(index)].set(0);
  slot = std::move(fresh);
  schedule();
  return !stopped_ && !is_done();
}

bool TaskScheduler::is_done() const noexcept {
  return closed_ && open_jobs_ == 0 && pending_.empty() &&
         std::ranges::all_of(slots_, [](const Slot& slot) { return slot.sent.empty(); });
}

bool TaskScheduler::is_finished() const noexcept {
  return stopped_ || (is_done() && std::ranges::all_of(slots_, [](const Slot& slot) {
                        return slot.state == Slot::kFree;
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
    for (int i = 0; i < slots(); ++i) {
      for (Sent& sent : slots_[i].sent) {
        deliver(sent.task.job, {sent.task.index, false, error});
      }
      slots_[i].sent.clear();
      segment_.slot(i).stop.store(1, std::memory_order_release);
      slots_[i].dirty = true;
    }
    for (const Task& task : pending_) deliver(task.job, {task.index, false, error});
    pending_.clear();
    pending_bytes_ = 0;
    board_[kWaiting].set(0);
    ring_dirty();
  }
  drained_.notify_all();
  wake();
}

}  // namespace shoal::ipc
