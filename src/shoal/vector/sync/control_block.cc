#include "shoal/vector/sync/control_block.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "shoal/os/limits/affinity.h"
#include "shoal/os/memory/mapping.h"
#include "shoal/shm/header.h"
#include "shoal/shm/layout.h"

namespace shoal::vector {
namespace {

constexpr char kMagic[8] = {'S', 'H', 'O', 'A', 'L', 'V', 'E', 'C'};

struct Offsets {
  std::size_t header, doorbell, gather, cells, rows, infos, end;
};

Offsets lay_out(std::size_t num_workers, std::size_t rows_bytes, std::size_t info_bytes) {
  const std::size_t page = os::page_size();
  shm::LayoutBuilder layout;
  Offsets at{};
  at.header = layout.add<ControlHeader>();
  at.doorbell = layout.add<sync::Doorbell>();
  at.gather = layout.add<sync::Gather>();
  at.cells = layout.add<WorkerCell>(num_workers);
  at.rows = layout.add_bytes(rows_bytes, page);
  at.infos = layout.add_bytes(num_workers * info_bytes, page);
  at.end = layout.bytes(page);
  return at;
}

}  // namespace

ControlBlock::ControlBlock(shm::Arena arena, const ControlHeader& header)
    : arena_(std::move(arena)), header_(header) {
  const Offsets at = lay_out(header_.num_workers, 0, 0);
  doorbell_ = arena_.at<sync::Doorbell>(at.doorbell);
  gather_ = arena_.at<sync::Gather>(at.gather);
  cells_ = arena_.at<WorkerCell>(at.cells, header_.num_workers);
}

ControlBlock ControlBlock::create(int num_workers, int num_envs, AutoresetMode mode, int obs_sets,
                                  std::size_t rows_bytes, std::size_t info_bytes) {
  if (num_workers < 1 || static_cast<std::uint32_t>(num_workers) > sync::Gather::kMaxArrivals) {
    throw InvalidArgument(fmt::format("num_workers is {}; it must be between 1 and {}", num_workers,
                                      sync::Gather::kMaxArrivals));
  }
  const Offsets at = lay_out(static_cast<std::size_t>(num_workers), rows_bytes, info_bytes);
  shm::Arena arena = shm::Arena::create("shoal vector env", at.end);
  auto* header = arena.at<ControlHeader>(at.header);
  std::memcpy(header->magic, kMagic, sizeof kMagic);
  header->version = kControlVersion;
  header->num_workers = static_cast<std::uint32_t>(num_workers);
  header->cpus = static_cast<std::uint32_t>(os::allowed_cpus());
  header->num_envs = static_cast<std::uint32_t>(num_envs);
  header->autoreset_mode = static_cast<std::uint32_t>(mode);
  header->obs_sets = static_cast<std::uint32_t>(obs_sets);
  header->rows_offset = at.rows;
  header->info_offset = at.infos;
  header->info_bytes = info_bytes;
  return ControlBlock(std::move(arena), *header);
}

ControlBlock ControlBlock::attach(shm::Arena arena) {
  const auto header =
      shm::header_of<ControlHeader>(arena, kMagic, kControlVersion, "to a vector environment");
  const std::size_t size = arena.size();
  if (header.num_workers > sync::Gather::kMaxArrivals || header.info_bytes > size ||
      header.info_offset > size || header.rows_offset > header.info_offset ||
      lay_out(header.num_workers, 0, 0).rows > header.rows_offset ||
      header.num_workers * header.info_bytes > size - header.info_offset) {
    throw Error(fmt::format(
        "attach to a vector environment: what its header says of {} workers does not fit into {} "
        "bytes",
        header.num_workers, size));
  }
  return ControlBlock(std::move(arena), header);
}

std::optional<ControlHeader> ControlBlock::header_in(std::span<const std::byte> data) noexcept {
  const auto header = shm::header_in<ControlHeader>(data, kMagic);
  return header && header->version == kControlVersion ? header : std::nullopt;
}

std::size_t ControlBlock::cells_at(const ControlHeader& header) noexcept {
  return lay_out(header.num_workers, 0, 0).cells;
}

std::span<std::byte> ControlBlock::info(int worker) const noexcept {
  return {
      arena_.base() + header_.info_offset + static_cast<std::size_t>(worker) * header_.info_bytes,
      header_.info_bytes};
}

}  // namespace shoal::vector
