#include "shoal/ipc/queue/queue.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/fault_point.h"
#include "shoal/sync/spin_policy.h"
#include "shoal/sync/spin_wait.h"

namespace shoal::ipc {

using layout::Cursor;
using layout::QueueWords;
using layout::RecordKind;

namespace {

constexpr std::uint64_t kLogMask = 63;                // of the ring's word
constexpr auto kRelaxed = std::memory_order_relaxed;  // under the lock, which orders all

constexpr sync::SpinOptions kSpin = {.group_size = 2};

Cursor load(const QueueWords::Word& word) noexcept { return Cursor::from(word.load(kRelaxed)); }

[[noreturn]] void throw_overwritten() {
  throw Error(
      "a queue is of no more use: a process has written over its memory. Make a new one; and look "
      "for code that writes beyond the end of an array that is shared");
}

}  // namespace

bool Token::held(const Heap& heap) const noexcept {
  std::byte* const words = heap.at(block) - sizeof(layout::BlockWords);
  const auto word = [words](std::size_t place) {
    return layout::Journal::word(words, place).load(kRelaxed);  // any of its values will do
  };
  return word(offsetof(layout::BlockWords, serial)) == serial &&
         layout::state_of_tag(word(offsetof(layout::BlockWords, tag))) == layout::BlockState::kLive;
}

/// Holds the queue's lock, and has it repaired after a death.
class Queue::Lock {
 public:
  explicit Lock(Queue& queue) noexcept : words_(queue.words()) {
    if (words_.lock.spin_lock() == sync::LockOutcome::kOwnerDied) queue.recover();
  }
  ~Lock() {
    if (held_) words_.lock.unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  /// Unlocks and wakes.
  void finish(sync::Sleepers& sleepers, Wake whom) noexcept {
    held_ = false;
    words_.lock.unlock();
    SHOAL_FAULT_POINT("queue.wake.before");
    sleepers.wake(whom);
  }

 private:
  QueueWords& words_;
  bool held_ = true;
};

Queue Queue::create(QueueOptions options) {
  Block block = Block::allocate(sizeof(QueueWords), BlockKind::kQueue);
  auto* words = new (block.data()) QueueWords();
  words->max_items = options.max_items;
  words->max_bytes = options.max_bytes;
  words->version = layout::kQueueVersion;
  words->lock.init();
  words->magic = layout::kQueueMagic;
  Queue queue(std::move(block));
  queue.replace_ring(layout::kSmallestRingLog);
  return queue;
}

Queue::Queue(Block block) : block_(std::move(block)) {
  if (block_.size() < sizeof(QueueWords) || words().magic != layout::kQueueMagic ||
      words().version != layout::kQueueVersion) {
    throw Error("a block of the shared heap that is no queue of this version");
  }
}

void Queue::recover() noexcept {
  heap().write({});  // the heap's lock finishes the dead one's change, which may be of this queue
  try {
    discard_spare_ring();
    const RecordRing records = ring();
    std::uint64_t bytes = 0;
    std::uint32_t at = load(words().take).position;
    std::uint32_t left = used_units(records);
    while (left > 0) {
      if (records.header(at).kind != RecordKind::kFiller) bytes += records.header(at).bytes;
      const std::uint32_t units = records.next(at) - at;
      if (units == 0 || units > left) return;  // the next get() finds it so
      left -= units;
      at += units;
    }
    words().bytes.store(bytes, kRelaxed);
  } catch (const Error&) {  // likewise
  }
}

/// Under the lock. Somebody may have written any number there: where a record is written must be this queue's.
RecordRing Queue::ring() const {
  const std::uint64_t word = words().ring.load(kRelaxed);
  const auto log = static_cast<std::uint32_t>(word & kLogMask);
  const Offset begin = word & ~kLogMask;
  const bool known = word != 0 && word == known_ring_ && known_block_.held(heap());
  if (!known) {
    const bool good = log >= layout::kSmallestRingLog && log <= layout::kLargestRingLog &&
                      heap().is_given(begin, block_.offset(), BlockKind::kData) &&
                      heap().size_of(begin) >= RecordRing::bytes_of(log);
    if (!good) throw_overwritten();
    known_ring_ = word;
    known_block_ = {begin, heap().serial_of(begin)};
  }
  return {heap().at(begin), log};
}

/// From the oldest record to behind the last.
std::uint32_t Queue::used_units(const RecordRing& records) const {
  const std::uint32_t units = load(words().put).position - load(words().take).position;
  if (units > records.capacity()) throw_overwritten();
  return units;
}

/// One that is not this queue's, or is its ring, is a lie: it is forgotten.
void Queue::discard_spare_ring() {
  const Offset spare = words().spare_ring.load(kRelaxed);
  if (spare == 0) return;
  const bool good = spare != (words().ring.load(kRelaxed) & ~kLogMask) &&
                    heap().is_given(spare, block_.offset(), BlockKind::kData);
  if (!good) {
    words().spare_ring.store(0, kRelaxed);
    return;
  }
  const Write forget[] = {{place(words().spare_ring), 0}};
  heap().take(spare, block_.offset(), forget);
  heap().release(spare);
}

/// Under the lock (or before anybody else knows the queue). What is in the ring stays where it is.
void Queue::replace_ring(std::uint32_t log) {
  Block larger = Block::allocate(RecordRing::bytes_of(log));
  const std::uint64_t before = words().ring.load(kRelaxed);
  const std::uint64_t after = larger.offset() | log;
  if (before == 0) {
    const Write first[] = {{place(words().ring), after}};
    heap().give(larger.detach(), block_.offset(), first);
    return;
  }
  const Write begin[] = {{place(words().spare_ring), larger.offset()}};
  heap().give(larger.detach(), block_.offset(), begin);
  SHOAL_FAULT_POINT("queue.ring.spare");
  static_cast<void>(used_units(ring()));
  ring().copy_to({heap().at(after & ~kLogMask), log}, load(words().take).position,
                 load(words().put).position);
  const Write end[] = {{place(words().ring), after}, {place(words().spare_ring), 0}};
  const Offset old = before & ~kLogMask;
  heap().take(old, block_.offset(), end);
  SHOAL_FAULT_POINT("queue.ring.replaced");
  heap().release(old);
}

/// Under the lock, when it is empty: after a burst the queue does not keep the memory of a large
/// ring.
void Queue::give_ring_back() noexcept {
  try {
    if (ring().log() >= layout::kPassingRingLog) replace_ring(layout::kSmallestRingLog);
  } catch (
      const Error&) {  // no memory: the large one does as well; overwritten: the next call says so
  }
}

/// Without the lock, a hint.
bool Queue::has_items() const noexcept {
  const Cursor put = Cursor::from(words().put.load(std::memory_order_acquire));
  return put.items != Cursor::from(words().take.load(std::memory_order_acquire)).items;
}

bool Queue::has_room(std::size_t bytes) const noexcept {
  const std::uint32_t items = size();
  if (items == 0) return true;
  if (words().max_items != 0 && items >= words().max_items) return false;
  return words().max_bytes == 0 || words().bytes.load(kRelaxed) + bytes <= words().max_bytes;
}

std::uint32_t Queue::size() const noexcept {
  // `take` is read first: it is never ahead of what `put` is a moment later.
  const Cursor taken = Cursor::from(words().take.load(std::memory_order_acquire));
  return Cursor::from(words().put.load(std::memory_order_acquire)).items - taken.items;
}

/// Tries under the lock. While that fails, spins on `ready` (without the lock) and sleeps in
/// slices. `attempt(Lock&) -> bool` may unlock when it returns true.
template <class Ready, class Try>
QueueOutcome Queue::wait(sync::Sleepers& sleepers, const QueueWait& how, Ready ready, Try attempt) {
  // One for each thread, not for each queue: it learns how long this thread waits.
  thread_local sync::SpinPolicy policy(kSpin);
  sync::WaitOutcome outcome = sync::WaitOutcome::kReady;
  for (;;) {
    {
      Lock lock(*this);
      if (attempt(lock)) return QueueOutcome::kDone;
    }
    if (how.give_up == nullptr) {
      if (outcome == sync::WaitOutcome::kInterrupted) return QueueOutcome::kInterrupted;
    } else if (outcome != sync::WaitOutcome::kReady && how.give_up()) {
      return QueueOutcome::kInterrupted;
    }
    if (how.deadline <= os::Clock::now()) return QueueOutcome::kTimedOut;
    if (outcome == sync::WaitOutcome::kTimedOut && how.peer != nullptr) heap().sweep();
    const os::Deadline until = std::min(how.deadline, os::deadline_after(kSlice));
    outcome = sync::spin_then_park(policy, until, ready, [&] {
      std::uint32_t ticket;
      {
        const Lock lock(*this);
        if (ready()) return sync::WaitOutcome::kReady;
        ticket = sleepers.enlist();
      }
      SHOAL_FAULT_POINT("queue.wait.enlisted");
      const sync::WaitOutcome end = sleepers.sleep(ticket, until);
      if (end == sync::WaitOutcome::kReady) return end;
      const Lock lock(*this);
      sleepers.leave(ticket);
      return end;
    });
  }
}

/// Under the lock, when there is room. `message`: the block that the bytes lie in already.
void Queue::write_record(std::uint16_t tag, std::span<const std::byte> bytes, Block* message) {
  QueueWords& words = this->words();
  const Cursor begin = load(words.take);
  Cursor end = load(words.put);
  const auto inline_bytes = message == nullptr ? bytes : std::span<const std::byte>();
  const std::uint32_t units = RecordRing::units_of(inline_bytes.size());
  static_cast<void>(used_units(ring()));
  while (!ring().fits(begin.position, end.position, units)) {
    if (ring().log() >= layout::kLargestRingLog) {
      throw OutOfMemory("put a message into a queue that holds 16 GiB of small ones");
    }
    replace_ring(ring().log() + 1);
  }
  const layout::RecordHeader header = {
      static_cast<std::uint32_t>(bytes.size()),
      message == nullptr ? RecordKind::kInline : RecordKind::kBlock, tag,
      message == nullptr ? 0 : message->offset()};
  const bool first = begin.items == end.items;
  end = {end.items + 1, ring().write(end.position, header, inline_bytes)};
  SHOAL_FAULT_POINT("queue.put.written");
  // Before the message counts: whoever is killed in between has woken somebody for nothing, rather
  // than left a message behind that a poller is never told of.
  if (first && QueuePollers::any(words.pollers)) pollers_.wake(words.pollers);
  SHOAL_FAULT_POINT("queue.put.told");
  if (message == nullptr) {
    words.put.store(end.word(), std::memory_order_release);
  } else {
    const Write count[] = {{place(words.put), end.word()}};
    heap().give(message->offset(), block_.offset(), count);
    static_cast<void>(message->detach());
  }
  SHOAL_FAULT_POINT("queue.put.counted");
  words.bytes.store(words.bytes.load(kRelaxed) + bytes.size(), kRelaxed);
}

/// Under the lock, when there is a message.
void Queue::read_record(Message& message) {
  QueueWords& words = this->words();
  Cursor begin = load(words.take);
  const RecordRing records = ring();
  const std::uint32_t at = records.skip_filler(begin.position);
  const layout::RecordHeader header = records.header(at);
  const bool is_inline = header.kind == RecordKind::kInline;
  const Offset ring_itself = known_ring_ & ~kLogMask;
  if (is_inline ? header.bytes > Message::kMaxInlineBytes || !records.has_room(at, header.bytes)
                : header.kind != RecordKind::kBlock || header.block == ring_itself) {
    throw_overwritten();
  }
  begin = {begin.items + 1, at + RecordRing::units_of(is_inline ? header.bytes : 0)};
  message.tag_ = header.tag;
  if (is_inline) {
    std::memcpy(message.inline_.data(), records.payload(at), header.bytes);
    SHOAL_FAULT_POINT("queue.get.copied");
    words.take.store(begin.word(), std::memory_order_release);
  } else {
    const Write count[] = {{place(words.take), begin.word()}};
    SHOAL_FAULT_POINT("queue.get.block");
    heap().take(header.block, block_.offset(), count);
    message.block_ = Block::adopt(block_.heap(), header.block);
    if (header.bytes > message.block_.size()) {
      message.clear();
      throw_overwritten();
    }
  }
  message.bytes_ = header.bytes;
  SHOAL_FAULT_POINT("queue.get.counted");
  words.bytes.store(words.bytes.load(kRelaxed) - header.bytes, kRelaxed);
  if (begin.items == load(words.put).items) {
    pollers_.clear();
    give_ring_back();
  }
}

QueueOutcome Queue::put(std::uint16_t tag, std::span<const std::byte> bytes,
                        std::span<const Offset> blocks, const QueueWait& how) {
  if (bytes.size() > UINT32_MAX) throw InvalidArgument("a message of 4 GiB or more");
  Block message;
  if (bytes.size() > Message::kMaxInlineBytes || !blocks.empty()) {
    message = Block::allocate(bytes.size(), BlockKind::kMessage);
    std::ranges::copy(bytes, message.data());
    SHOAL_FAULT_POINT("queue.put.block");
    if (!blocks.empty()) heap().hold(message.offset(), blocks);
  }
  QueueWords& words = this->words();
  bool closed = false;
  const QueueOutcome outcome = wait(
      words.putters, how, [&] { return has_room(bytes.size()); },
      [&](Lock& lock) {
        closed = how.peer != nullptr && !how.peer->held(heap());
        if (closed || !has_room(bytes.size())) return closed;
        write_record(tag, bytes, message ? &message : nullptr);
        // A get wakes one putter; where it made room for several small messages, each wakes the
        // next.
        const Wake next =
            words.putters.any() && has_room(0) ? words.putters.call_one() : Wake::kNobody;
        lock.finish(words.getters, words.getters.call_one());
        words.putters.wake(next);
        return true;
      });
  return closed ? QueueOutcome::kClosed : outcome;
}

/// Under the lock. Whether there is neither an item nor anybody who could put one.
bool Queue::at_end(const Token* peer) noexcept {
  if (peer != nullptr && !peer->held(heap())) return true;
  pollers_.clear();
  return false;
}

/// Waits until there is a message, and calls `act(Lock&)`, which unlocks.
template <class Act>
QueueOutcome Queue::with_message(const QueueWait& how, Act act) {
  bool closed = false;
  const QueueOutcome outcome = wait(
      words().getters, how, [&] { return has_items(); },
      [&](Lock& lock) {
        if (size() == 0) return closed = at_end(how.peer);
        act(lock);
        return true;
      });
  return closed ? QueueOutcome::kClosed : outcome;
}

QueueOutcome Queue::get(Message& message, const QueueWait& how) {
  message.clear();
  return with_message(how, [&](Lock& lock) {
    read_record(message);
    lock.finish(words().putters, words().putters.call_one());
  });
}

QueueOutcome Queue::poll(const QueueWait& how) {
  return with_message(how, [&](Lock& lock) {
    lock.finish(words().getters, words().getters.call_one());  // it took no item: another may
  });
}

std::uint32_t Queue::unfinished() const noexcept {
  const auto done = static_cast<std::uint32_t>(words().done.load(std::memory_order_acquire));
  return Cursor::from(words().put.load(std::memory_order_acquire)).items - done;
}

bool Queue::task_done() noexcept {
  QueueWords& words = this->words();
  Lock lock(*this);
  if (unfinished() == 0) return false;
  words.done.store(words.done.load(kRelaxed) + 1, std::memory_order_release);
  lock.finish(words.joiners, unfinished() == 0 ? words.joiners.call_all() : Wake::kNobody);
  return true;
}

QueueOutcome Queue::join(const QueueWait& how) {
  const auto all_done = [&] { return unfinished() == 0; };
  return wait(words().joiners, how, all_done, [&](Lock&) { return all_done(); });
}

void Queue::nudge() noexcept {
  QueueWords& words = this->words();
  Wake putters;
  {
    Lock lock(*this);
    if (QueuePollers::any(words.pollers)) pollers_.wake(words.pollers);
    putters = words.putters.call_all();
    lock.finish(words.getters, words.getters.call_all());
  }
  words.putters.wake(putters);
}

int Queue::fileno(const Token* peer) {
  Lock lock(*this);
  const bool anew = !pollers_.entered();
  const int fd = pollers_.enter(words().pollers, heap());
  const bool gone = peer != nullptr && !peer->held(heap());
  if (gone || (anew && size() != 0)) pollers_.wake_self();
  return fd;
}

}  // namespace shoal::ipc
