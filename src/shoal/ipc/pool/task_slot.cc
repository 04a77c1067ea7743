#include "shoal/ipc/pool/task_slot.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::ipc {
namespace {

constexpr std::chrono::milliseconds kTaskSlice{100};

}  // namespace

TaskSlot::TaskSlot(os::Fd segment, int index, Block shelf)
    : segment_(TaskSegment::attach(std::move(segment))),
      owner_(os::PidFd::open(segment_.owner())),
      words_(segment_.slot(index)),
      tasks_(segment_.tasks(index)),
      results_(segment_.results(index)),
      shelf_(std::move(shelf)),
      policy_({.cap = std::chrono::microseconds(100), .group_size = segment_.slots() + 1}) {}

bool TaskSlot::owner_is_gone() { return owner_.ended(); }

TaskSlot::Outcome TaskSlot::wait(os::Deadline deadline) {
  for (;;) {
    const std::uint32_t seen = words_.tasks.generation();
    if (tasks_.front() != nullptr) return Outcome::kReady;
    if (words_.stop.load(std::memory_order_acquire) != 0) return Outcome::kStopped;
    const os::Deadline slice = std::min(deadline, os::deadline_after(kTaskSlice));
    if (words_.tasks.wait(seen, policy_, slice) == sync::WaitOutcome::kReady) continue;
    if (owner_is_gone()) return Outcome::kStopped;
    if (os::Clock::now() >= deadline) return Outcome::kTimedOut;
  }
}

std::optional<TaskSlot::Task> TaskSlot::begin() {
  TaskRecord* record = tasks_.front();
  if (record == nullptr) return std::nullopt;
  if (!record->move_to(TaskRecord::kTaken)) {
    tasks_.pop(record);
    return std::nullopt;
  }
  begun_ = os::Clock::now();
  return Task{record->tag, record->total};
}

TaskSlot::Outcome TaskSlot::read(std::span<std::byte> out) {
  std::size_t filled = 0;
  for (;;) {
    TaskRecord* record = tasks_.front();
    if (record == nullptr) {  // more of this message is to come
      const std::uint32_t seen = words_.tasks.generation();
      if (tasks_.front() != nullptr) continue;
      if (words_.tasks.park(seen, os::deadline_after(kTaskSlice)) != sync::WaitOutcome::kReady &&
          owner_is_gone()) {
        return Outcome::kStopped;
      }
      continue;
    }
    const auto part = tasks_.payload(record);
    SHOAL_CHECK(part.size() <= out.size() - filled, "a task longer than it said");
    if (!part.empty()) std::memcpy(out.data() + filled, part.data(), part.size());
    filled += part.size();
    const bool more = record->more != 0;
    tasks_.pop(record);
    if (!more) return Outcome::kReady;
    segment_.results().ring();  // there is room again
  }
}

TaskSlot::Outcome TaskSlot::make_room() {
  // The owner takes results out at any time: this wait is short, and rare.
  segment_.results().ring();
  const std::uint32_t seen = words_.tasks.generation();
  static_cast<void>(words_.tasks.park(seen, os::deadline_after(std::chrono::milliseconds(1))));
  return owner_is_gone() ? Outcome::kStopped : Outcome::kReady;
}

TaskSlot::Outcome TaskSlot::send(TaskReport report, std::uint64_t tag,
                                 std::span<const std::byte> payload) {
  TaskRecord head{};
  head.tag = tag;
  head.total = payload.size();
  head.kind = static_cast<std::uint32_t>(report);
  head.nanos =
      static_cast<std::uint64_t>(std::chrono::nanoseconds(os::Clock::now() - begun_).count());
  do {
    const auto part = payload.first(std::min<std::size_t>(payload.size(), results_.max_payload()));
    head.more = part.size() < payload.size() ? 1 : 0;
    while (results_.try_write(head, part) == nullptr) {
      if (make_room() == Outcome::kStopped) return Outcome::kStopped;
    }
    payload = payload.subspan(part.size());
    segment_.results().ring();
  } while (!payload.empty());
  return Outcome::kReady;
}

TaskSlot::Outcome TaskSlot::send_done(std::uint64_t tag, std::span<const std::byte> payload,
                                      std::span<const Offset> blocks) {
  if (blocks.empty()) return send(TaskReport::kDone, tag, payload);
  SHOAL_CHECK(shelf_, "a result names blocks of the heap, and there is no shelf to hold them");
  Heap& heap = *shelf_.heap();
  Block message = Block::allocate(payload.size(), BlockKind::kMessage);
  std::memcpy(message.data(), payload.data(), payload.size());
  heap.hold(message.offset(), blocks);
  heap.give(message.offset(), shelf_.offset());
  const Offset name = message.detach();
  return send(TaskReport::kDoneInHeap, tag, std::as_bytes(std::span(&name, 1)));
}

}  // namespace shoal::ipc
