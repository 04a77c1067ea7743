#include "shoal/ipc/heap/process_slots.h"

#include <cstddef>

namespace shoal::ipc {

using namespace layout;

namespace {

constexpr std::uint64_t tag_of(std::uint64_t epoch, SlotState state) noexcept {
  return epoch << 32 | static_cast<std::uint64_t>(state);
}
constexpr SlotState state_of(std::uint64_t tag) noexcept {
  return static_cast<SlotState>(tag & 0xffffffff);
}

}  // namespace

std::optional<ProcessSlot> ProcessSlots::take(Transaction& change, os::ProcessId process,
                                              State state) const {
  const std::uint32_t made = count();
  std::uint32_t index = 0;
  while (index < made && state_of(change.get(place(index))) != State::kFree) ++index;
  if (index == made) {
    const HeapHeader& header = segment_->header();
    if (made == header.slots) return std::nullopt;
    // One page of slots at a time: the table has its memory as soon as it is used.
    constexpr std::uint64_t kSlotsAPage = kPage / sizeof(ProcessWords);
    if (made % kSlotsAPage == 0 && segment_->memfd().populate(place(made), kPage) != 0) {
      throw OutOfMemory("allocate memory for the table of processes of the shared heap");
    }
    change.set(SHOAL_HEAP_WORD(slots_made), made + 1);
  }
  const std::uint64_t epoch = (change.get(place(index)) >> 32) + 1;
  change.set(place(index), tag_of(epoch, state));
  write(change, index, process);
  return ProcessSlot{index, static_cast<std::uint32_t>(epoch)};
}

bool ProcessSlots::adopt(Transaction& change, ProcessSlot slot, os::ProcessId process) const {
  if (change.get(place(slot.index)) != tag_of(slot.epoch, State::kUnborn)) return false;
  change.set(place(slot.index), tag_of(slot.epoch, State::kAlive));
  write(change, slot.index, process);
  return true;
}

bool ProcessSlots::condemn(Transaction& change, ProcessSlot slot) const {
  if (at(slot.index) != slot) return false;
  const State now = state(slot.index);
  if (now == State::kAlive && alive(slot)) return false;
  if (now != State::kDead) change.set(place(slot.index), tag_of(slot.epoch, State::kDead));
  return true;
}

void ProcessSlots::write(Transaction& change, std::uint32_t index, os::ProcessId process) const {
  change.set(place(index) + offsetof(ProcessWords, pid), static_cast<std::uint64_t>(process.pid));
  change.set(place(index) + offsetof(ProcessWords, start_time), process.start_time);
  change.set(place(index) + offsetof(ProcessWords, image), process.image);
}

void ProcessSlots::release(Transaction& change, std::uint32_t index) const {
  change.set(place(index), tag_of(change.get(place(index)) >> 32, State::kFree));
}

ProcessSlot ProcessSlots::at(std::uint32_t index) const noexcept {
  const std::uint64_t tag = segment_->load(place(index));
  if (state_of(tag) == State::kFree) return {};
  return {index, static_cast<std::uint32_t>(tag >> 32)};
}

bool ProcessSlots::alive(ProcessSlot slot) const noexcept {
  const os::ProcessId id = process(slot);
  return id.pid != 0 && state(slot.index) != State::kDead && os::is_running(id);
}

os::ProcessId ProcessSlots::process(ProcessSlot slot) const noexcept {
  if (!slot || slot.index >= count() || at(slot.index) != slot) return {};
  const os::ProcessId id{
      static_cast<pid_t>(segment_->load(place(slot.index) + offsetof(ProcessWords, pid))),
      segment_->load(place(slot.index) + offsetof(ProcessWords, start_time)),
      segment_->load(place(slot.index) + offsetof(ProcessWords, image))};
  // A slot that changed hands meanwhile told of two processes.
  return at(slot.index) == slot ? id : os::ProcessId{};
}

std::uint32_t ProcessSlots::count() const noexcept {
  return static_cast<std::uint32_t>(segment_->load(SHOAL_HEAP_WORD(slots_made)));
}

ProcessSlots::State ProcessSlots::state(std::uint32_t index) const noexcept {
  return state_of(segment_->load(place(index)));
}

}  // namespace shoal::ipc
