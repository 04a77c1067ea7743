#include <fmt/format.h>

#include <cstring>

#include "shoal/os/memory/mapping.h"
#include "shoal/os/memory/memfd.h"
#include "shoal/vector/async/async_segment.h"
#include "shoal/vector/env_board.h"
#include "shoal/vector/step/stepper.h"
#include "shoal/vector/sync/control_block.h"

namespace shoal::vector {
namespace {

/// `count` cells from `offset` on, where the file has them all.
template <class Cell>
std::vector<ObservedWorker> read_cells(std::span<const std::byte> data, std::size_t offset,
                                       std::size_t count) {
  if (offset > data.size() || count > (data.size() - offset) / sizeof(Cell)) {
    throw Error("the segment of a vector environment is shorter than its header says");
  }
  // Relaxed: each word by itself.
  const auto read = [](const auto& word) { return word.load(std::memory_order_relaxed); };
  const auto* cells = reinterpret_cast<const Cell*>(data.data() + offset);
  std::vector<ObservedWorker> workers;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t word = read(cells[i].env_now);
    const bool in_env = word != EnvMarker::kNone;
    workers.push_back({.steps = read(cells[i].steps),
                       .busy_ns = read(cells[i].busy_ns),
                       .env = in_env ? EnvMarker::blamed(word) : -1,
                       .in_reset = in_env && EnvMarker::in_reset(word),
                       .since_ns = read(cells[i].env_since)});
  }
  return workers;
}

}  // namespace

std::vector<ObservedWorker> observe_workers(os::Fd segment) {
  const os::Memfd memfd = os::Memfd::open(std::move(segment));
  const std::string what = "the segment of a vector environment";
  if (memfd.bytes() < shm::kArenaHeaderBytes + sizeof(ControlHeader)) {
    throw Error(fmt::format("this is not {}: it has {} bytes", what, memfd.bytes()));
  }
  const os::Mapping mapping = os::Mapping::map(memfd, what, os::Mapping::Access::kReadOnly);
  const std::span<const std::byte> data = mapping.span().subspan(shm::kArenaHeaderBytes);
  if (const auto control = ControlBlock::header_in(data)) {
    return read_cells<WorkerCell>(data, ControlBlock::cells_at(*control), control->num_workers);
  }
  if (const auto async = AsyncSegment::header_in(data)) {
    return read_cells<AsyncCell>(data, AsyncSegment::cells_at(*async), async->num_workers);
  }
  throw Error(fmt::format("this is not {}, or that of another Shoal", what));
}

}  // namespace shoal::vector
