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

}  // namespace

TaskSegment TaskSegment::create(int slots, std::size_t ring_bytes) {
  if (slots < 1)
    throw InvalidArgument(fmt::format("a pool of {} workers: it has at least 1", slots));
  if (!std::has_single_bit(ring_bytes) || ring_bytes < 4096 || ring_bytes > (1u << 30)) {
    throw InvalidArgument(
        fmt::format("rings of {} bytes: a power of two from 4096 to 2^30 is needed", ring_bytes));
  }
  const std::size_t bytes = kSlotsAt + static_cast<std::size_t>(slots) * slot_bytes(ring_bytes);
  TaskSegment segment(shm::Arena::create("pool", bytes));
  auto& header = *segment.arena_.at<TaskSegmentHeader>(0);
  header.version = kVersion;
  header.slots = static_cast<std::uint32_t>(slots);
  header.cells = static_cast<std::uint32_t>(ring_bytes / TaskRing::kCell);
  header.owner = static_cast<std::uint32_t>(::getpid());
  header.magic = kMagic;
  return segment;
}

TaskSegment TaskSegment::attach(os::Fd fd) {
  TaskSegment segment(shm::Arena::attach(std::move(fd)));
  if (segment.arena_.size() < kSlotsAt || segment.header().magic != kMagic ||
      segment.header().version != kVersion ||
      segment.arena_.size() !=
          kSlotsAt + segment.header().slots * slot_bytes(segment.ring_bytes())) {
    throw Error("attach to a pool: the descriptor is of something else, or of another version");
  }
  return segment;
}

std::size_t TaskSegment::slot_at(int index) const {
  SHOAL_CHECK(index >= 0 && index < slots(), "a slot that the segment does not have");
  return kSlotsAt + static_cast<std::size_t>(index) * slot_bytes(ring_bytes());
}

SlotWords& TaskSegment::slot(int index) const { return *arena_.at<SlotWords>(slot_at(index)); }

TaskRing TaskSegment::tasks(int index) const {
  return {&slot(index).task_indices,
          arena_.at<std::byte>(slot_at(index) + sizeof(SlotWords), ring_bytes()), header().cells};
}

TaskRing TaskSegment::results(int index) const {
  return {&slot(index).result_indices,
          arena_.at<std::byte>(slot_at(index) + sizeof(SlotWords) + ring_bytes(), ring_bytes()),
          header().cells};
}

}  // namespace shoal::ipc
