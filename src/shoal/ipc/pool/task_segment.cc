#include "shoal/ipc/pool/task_segment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::ipc {
namespace {

constexpr std::size_t slot_bytes(std::size_t ring_bytes) {
  return sizeof(SlotWords) + 2 * ring_bytes;
}

constexpr std::size_t kMostRingBytes = std::size_t{1} << 30;

constexpr bool is_ring(std::size_t cells) {
  return std::has_single_bit(cells) && cells >= 4096 / TaskRing::kCell &&
         cells <= kMostRingBytes / TaskRing::kCell;
}

}  // namespace

TaskSegment TaskSegment::create(int slots, std::size_t ring_bytes) {
  if (slots < 1)
    throw InvalidArgument(fmt::format("a pool of {} workers: it has at least 1", slots));
  if (ring_bytes > kMostRingBytes || !is_ring(ring_bytes / TaskRing::kCell) ||
      ring_bytes % TaskRing::kCell != 0) {
    throw InvalidArgument(
        fmt::format("rings of {} bytes: a power of two from 4096 to 2^30 is needed", ring_bytes));
  }
  const std::size_t bytes = kSlotsAt + static_cast<std::size_t>(slots) * slot_bytes(ring_bytes);
  shm::Arena arena = shm::Arena::create("pool", bytes);
  const TaskSegmentHeader header{.magic = kMagic,
                                 .version = kVersion,
                                 .slots = static_cast<std::uint32_t>(slots),
                                 .cells = static_cast<std::uint32_t>(ring_bytes / TaskRing::kCell),
                                 .owner = static_cast<std::uint32_t>(::getpid())};
  *arena.at<TaskSegmentHeader>(0) = header;
  return {std::move(arena), header};
}

TaskSegment TaskSegment::attach(os::Fd fd) {
  shm::Arena arena = shm::Arena::attach(std::move(fd));
  TaskSegmentHeader header{};
  if (arena.size() >= kSlotsAt) header = *arena.at<TaskSegmentHeader>(0);
  const std::size_t of_slot = slot_bytes(std::size_t{header.cells} * TaskRing::kCell);
  if (header.magic != kMagic || header.version != kVersion || !is_ring(header.cells) ||
      header.slots > arena.size() / of_slot || arena.size() != kSlotsAt + header.slots * of_slot) {
    throw Error("attach to a pool: the descriptor is of something else, or of another version");
  }
  return {std::move(arena), header};
}

std::size_t TaskSegment::slot_at(int index) const {
  SHOAL_CHECK(index >= 0 && index < slots(), "a slot that the segment does not have");
  return kSlotsAt + static_cast<std::size_t>(index) * slot_bytes(ring_bytes());
}

SlotWords& TaskSegment::slot(int index) const { return *arena_.at<SlotWords>(slot_at(index)); }

TaskRing TaskSegment::tasks(int index) const {
  return {&slot(index).task_indices,
          arena_.at<std::byte>(slot_at(index) + sizeof(SlotWords), ring_bytes()), header_.cells};
}

TaskRing TaskSegment::results(int index) const {
  return {&slot(index).result_indices,
          arena_.at<std::byte>(slot_at(index) + sizeof(SlotWords) + ring_bytes(), ring_bytes()),
          header_.cells};
}

}  // namespace shoal::ipc
