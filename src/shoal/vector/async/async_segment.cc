#include "shoal/vector/async/async_segment.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>

#include "shoal/os/fnv1a.h"
#include "shoal/os/memory/mapping.h"
#include "shoal/process/codec.h"
#include "shoal/shm/header.h"
#include "shoal/shm/layout.h"
#include "shoal/vector/step/space_codec.h"

namespace shoal::vector {
namespace {

constexpr char kMagic[8] = {'S', 'H', 'O', 'A', 'L', 'A', 'S', 'Y'};

std::uint64_t fingerprint(const Hello& spaces) {
  process::ByteWriter writer;
  put_space(writer, spaces.observation_space);
  put_space(writer, spaces.action_space);
  return os::fnv1a(writer.take());
}

struct BlockOffsets {
  std::size_t rows, env_ids, info_sizes, infos, end;
};

BlockOffsets lay_out_block(const Hello& spaces, int rows, AutoresetMode mode) {
  const auto n = static_cast<std::size_t>(rows);
  shm::LayoutBuilder layout;
  BlockOffsets at{};
  at.rows =
      layout.add_bytes(Rows::bytes(spaces.observation_space, spaces.action_space, rows, mode));
  at.env_ids = layout.add<std::int64_t>(n);
  at.info_sizes = layout.add<std::uint32_t>(n);
  at.infos = layout.add_bytes(n * AsyncBlock::kInfoBytes);
  at.end = layout.bytes(os::page_size());
  return at;
}

// More than batches are ever open, so that a late look at the order sees another batch's block.
std::uint32_t order_size(std::uint32_t num_blocks) { return std::bit_ceil(2 * num_blocks); }

struct Offsets {
  std::size_t header, cursor, order, words, home_words, gathers, cells, inboxes, entries, home,
      blocks, end;
};

/// Up to the cells: what does not depend on the spaces.
Offsets lay_out_words(const AsyncHeader& header, shm::LayoutBuilder& layout) {
  Offsets at{};
  at.header = layout.add<AsyncHeader>();
  at.cursor = layout.add<std::atomic<std::uint64_t>>();
  at.order = layout.add<os::FutexWord>(order_size(header.num_blocks));
  at.words =
      layout.add<std::atomic<std::uint64_t>>(std::size_t{header.num_blocks} * header.batch_size);
  at.home_words = layout.add<std::atomic<std::uint64_t>>(header.num_envs);
  at.gathers = layout.add<sync::Gather>(header.num_blocks + 1);
  at.cells = layout.add<AsyncCell>(header.num_workers);
  return at;
}

Offsets lay_out(const AsyncHeader& header, const Hello& spaces) {
  const std::size_t page = os::page_size();
  const auto mode = static_cast<AutoresetMode>(header.autoreset_mode);
  shm::LayoutBuilder layout;
  Offsets at = lay_out_words(header, layout);
  at.inboxes = layout.add<sync::SpscIndices>(header.num_workers);
  at.entries = layout.add<InboxEntry>(std::size_t{header.num_workers} * header.inbox_capacity);
  at.home =
      layout.add_bytes(AsyncBlock::bytes(spaces, static_cast<int>(header.num_envs), mode), page);
  at.blocks = layout.add_bytes(
      header.num_blocks * AsyncBlock::bytes(spaces, static_cast<int>(header.batch_size), mode),
      page);
  at.end = layout.bytes(page);
  return at;
}

}  // namespace

std::size_t AsyncBlock::bytes(const Hello& spaces, int rows, AutoresetMode mode) {
  return lay_out_block(spaces, rows, mode).end;
}

AsyncBlock AsyncBlock::map(std::byte* base, const Hello& spaces, int rows, AutoresetMode mode) {
  const BlockOffsets at = lay_out_block(spaces, rows, mode);
  const auto n = static_cast<std::size_t>(rows);
  AsyncBlock block;
  block.base = base;
  block.rows = Rows::map(base + at.rows, spaces.observation_space, spaces.action_space, rows, mode);
  block.env_ids = {reinterpret_cast<std::int64_t*>(base + at.env_ids), n};
  block.info_sizes = {reinterpret_cast<std::uint32_t*>(base + at.info_sizes), n};
  block.infos = {base + at.infos, n * kInfoBytes};
  return block;
}

void copy_rows(const Rows& from, std::size_t row, const Rows& to, std::size_t slot,
               std::size_t count) {
  const auto copy_leaves = [&](const std::vector<shm::TensorView>& in,
                               const std::vector<shm::TensorView>& out, std::size_t first,
                               std::size_t n) {
    for (std::size_t leaf = 0; leaf < in.size(); ++leaf) {
      std::memcpy(out[leaf].row_data(static_cast<std::int64_t>(slot + first)),
                  in[leaf].row_data(static_cast<std::int64_t>(row + first)),
                  n * in[leaf].row_bytes());
    }
  };
  const auto copy = [&](const auto& in, const auto& out) {
    std::memcpy(&out[slot], &in[row], count * sizeof(in[row]));
  };
  copy_leaves(from.obs, to.obs, 0, count);
  copy(from.reward, to.reward);
  copy(from.terminated, to.terminated);
  copy(from.truncated, to.truncated);
  copy(from.reset, to.reset);
  copy(from.has_final, to.has_final);
  // What has a final observation has ended.
  const std::size_t end = row + count;
  for (std::size_t i = next_ended(from, row, end); i < end; i = next_ended(from, i + 1, end)) {
    const std::size_t at = slot + (i - row);
    to.episode_return[at] = from.episode_return[i];
    to.episode_length[at] = from.episode_length[i];
    to.episode_seconds[at] = from.episode_seconds[i];
    if (from.has_final[i] != 0) copy_leaves(from.final_obs, to.final_obs, i - row, 1);
  }
}

AsyncSegment::AsyncSegment(shm::Arena arena, const AsyncHeader& header, const Hello& spaces)
    : arena_(std::make_shared<shm::Arena>(std::move(arena))), header_(header) {
  const Offsets at = lay_out(header_, spaces);
  const auto mode = static_cast<AutoresetMode>(header_.autoreset_mode);
  auto* cursor = arena_->at<std::atomic<std::uint64_t>>(at.cursor);
  const std::size_t num_words = std::size_t{header_.num_blocks} * header_.batch_size;
  slots_ = sync::ArrivalSlots(
      cursor,
      {arena_->at<os::FutexWord>(at.order, order_size(header_.num_blocks)),
       order_size(header_.num_blocks)},
      {arena_->at<std::atomic<std::uint64_t>>(at.words, num_words), num_words}, header_.batch_size);
  home_slots_ = sync::ArrivalSlots(
      cursor, {arena_->at<os::FutexWord>(at.order), 1},
      {arena_->at<std::atomic<std::uint64_t>>(at.home_words, header_.num_envs), header_.num_envs},
      header_.num_envs);
  auto* gathers = arena_->at<sync::Gather>(at.gathers, header_.num_blocks + 1);
  cells_ = arena_->at<AsyncCell>(at.cells, header_.num_workers);
  inboxes_ = arena_->at<sync::SpscIndices>(at.inboxes, header_.num_workers);
  entries_ =
      arena_->at<InboxEntry>(at.entries, std::size_t{header_.num_workers} * inbox_capacity());
  block_bytes_ = AsyncBlock::bytes(spaces, batch_size(), mode);
  for (int b = 0; b < num_blocks(); ++b) {
    std::byte* base = arena_->base() + at.blocks + static_cast<std::size_t>(b) * block_bytes_;
    blocks_.push_back(AsyncBlock::map(base, spaces, batch_size(), mode));
    blocks_.back().gather = gathers + b;
  }
  blocks_.push_back(AsyncBlock::map(arena_->base() + at.home, spaces, num_envs(), mode));
  blocks_.back().gather = gathers + num_blocks();
}

AsyncSegment AsyncSegment::create(const Hello& spaces, const Shape& shape) {
  AsyncHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kAsyncVersion;
  header.num_workers = static_cast<std::uint32_t>(shape.num_workers);
  header.num_envs = static_cast<std::uint32_t>(shape.num_envs);
  header.autoreset_mode = static_cast<std::uint32_t>(shape.mode);
  header.batch_size = static_cast<std::uint32_t>(shape.batch_size);
  header.num_blocks = static_cast<std::uint32_t>(shape.num_blocks);
  header.inbox_capacity = std::bit_ceil(static_cast<std::uint32_t>(shape.most_envs));
  header.spaces = fingerprint(spaces);
  shm::Arena arena = shm::Arena::create("shoal async envs", lay_out(header, spaces).end);
  *arena.at<AsyncHeader>(0) = header;
  AsyncSegment segment(std::move(arena), header, spaces);
  for (int worker = 0; worker < shape.num_workers; ++worker) {
    segment.cell(worker).env_now.store(EnvMarker::kNone, std::memory_order_relaxed);  // relaxed:
    // nobody has seen the segment yet
  }
  return segment;
}

AsyncSegment AsyncSegment::attach(shm::Arena arena, const Hello& spaces) {
  const auto header =
      shm::header_of<AsyncHeader>(arena, kMagic, kAsyncVersion, "to asynchronous environments");
  if (header.spaces != fingerprint(spaces)) {
    throw InvalidArgument(fmt::format(
        "the environments of this worker have other spaces than the first ones had: observation "
        "{}, action {}; all environments of one batch, and those that replace them, must have the "
        "same spaces",
        spaces.observation_space.repr(), spaces.action_space.repr()));
  }
  constexpr std::uint32_t kMost = sync::Gather::kMaxArrivals;
  const bool good = header.num_workers <= kMost && header.num_envs <= kMost &&
                    header.num_envs > 0 && header.batch_size > 0 && header.batch_size <= kMost &&
                    header.num_blocks > 0 && header.num_blocks <= 4 * kMost &&
                    header.inbox_capacity <= 2 * kMost &&
                    std::has_single_bit(header.inbox_capacity) &&
                    header.autoreset_mode <= static_cast<std::uint32_t>(AutoresetMode::kDisabled);
  if (!good || lay_out(header, spaces).end > arena.size()) {
    throw Error(
        fmt::format("attach to asynchronous environments: what their header says of {} of them on "
                    "{} workers does not fit into {} bytes",
                    header.num_envs, header.num_workers, arena.size()));
  }
  return AsyncSegment(std::move(arena), header, spaces);
}

std::optional<AsyncHeader> AsyncSegment::header_in(std::span<const std::byte> data) noexcept {
  const auto header = shm::header_in<AsyncHeader>(data, kMagic);
  return header && header->version == kAsyncVersion ? header : std::nullopt;
}

std::size_t AsyncSegment::cells_at(const AsyncHeader& header) noexcept {
  shm::LayoutBuilder layout;
  return lay_out_words(header, layout).cells;
}

}  // namespace shoal::vector
