#include "shoal/ipc/heap/blocks.h"

#include <fmt/format.h>

#include <cstddef>

namespace shoal::ipc {

using namespace layout;

namespace {

std::uint64_t slab_list(std::uint64_t block_class) noexcept {
  return SHOAL_HEAP_WORD(slabs) + block_class * 8;
}

}  // namespace

std::optional<std::uint64_t> Blocks::take(Transaction& change, const BlockSpec& spec) const {
  if (spec.is_small()) {
    const std::size_t block_class = spec.block_class();
    const std::uint64_t slab = change.get(slab_list(block_class));
    if (slab != 0) {
      const std::uint64_t used = change.get(slab + offsetof(SlabWords, used)) + 1;
      std::uint64_t block = change.get(slab + offsetof(SlabWords, free));
      if (block != 0) {
        change.set(slab + offsetof(SlabWords, free),
                   change.get(block + offsetof(BlockWords, link)));
      } else {
        const std::uint64_t carved = change.get(slab + offsetof(SlabWords, carved));
        block = slab + sizeof(SlabWords) + carved * kClassBytes[block_class];
        change.set(slab + offsetof(SlabWords, carved), carved + 1);
      }
      change.set(slab + offsetof(SlabWords, used), used);
      if (used == slab_capacity(block_class)) unlink_slab(change, slab);
      start(change, block, spec, slab);
      return block;
    }
  }
  const auto run = segment_->runs().take(change, RunState::kDirty, spec.run_pages());
  if (!run) return std::nullopt;
  if (const auto block = put_run(change, *run, spec)) return block;
  return take(change, spec);  // from the slab that the run has become
}

std::optional<std::uint64_t> Blocks::put_run(Transaction& change, PageRun run,
                                             const BlockSpec& spec) const {
  const std::uint64_t place = segment_->page_place(run.first);
  if (!spec.is_small()) {
    segment_->runs().tag(change, run, RunState::kBlock);
    start(change, place, spec, run.first << 1 | 1);
    return place;
  }
  segment_->runs().tag(change, run, RunState::kSlab);
  segment_->store(place + offsetof(SlabWords, block_class), spec.block_class());
  segment_->store(place + offsetof(SlabWords, used), 0);
  segment_->store(place + offsetof(SlabWords, carved), 0);
  segment_->store(place + offsetof(SlabWords, free), 0);
  segment_->store(place + offsetof(SlabWords, first_page), run.first);
  link_slab(change, place);
  return std::nullopt;
}

void Blocks::start(Transaction& change, std::uint64_t block, const BlockSpec& spec,
                   std::uint64_t home) const {
  const std::uint64_t serial = change.get(SHOAL_HEAP_WORD(serial)) + 1;
  change.set(SHOAL_HEAP_WORD(serial), serial);
  segment_->store(block + offsetof(BlockWords, bytes), spec.bytes);
  segment_->store(block + offsetof(BlockWords, serial), serial);
  segment_->store(block + offsetof(BlockWords, refs), 0);
  segment_->store(block + offsetof(BlockWords, held), 0);
  segment_->store(block + offsetof(BlockWords, given), 0);
  segment_->store(block + offsetof(BlockWords, home), home);
  change.set(block + offsetof(BlockWords, tag), block_tag(spec.kind, BlockState::kLive));
  change.add(SHOAL_HEAP_WORD(live_blocks), 1);
  change.add(SHOAL_HEAP_WORD(live_bytes), spec.bytes);
}

void Blocks::drop(Transaction& change, std::uint64_t ref) const {
  const std::uint64_t block = references_.block(change, ref);
  if (references_.drop(change, ref) != 0) return;
  if (change.get(block + offsetof(BlockWords, held)) == 0) {
    free(change, block);
    return;
  }
  const std::uint64_t tag = change.get(block + offsetof(BlockWords, tag));
  change.set(block + offsetof(BlockWords, tag), block_tag(kind_of_tag(tag), BlockState::kDying));
  change.set(block + offsetof(BlockWords, link), change.get(SHOAL_HEAP_WORD(dying)));
  change.set(SHOAL_HEAP_WORD(dying), block);
}

bool Blocks::finish_one(Transaction& change) const {
  const std::uint64_t block = change.get(SHOAL_HEAP_WORD(dying));
  if (block == 0) return false;
  const std::uint64_t held = change.get(block + offsetof(BlockWords, held));
  if (held != 0) {
    drop(change, held);
    return true;
  }
  change.set(SHOAL_HEAP_WORD(dying), change.get(block + offsetof(BlockWords, link)));
  free(change, block);
  return true;
}

void Blocks::free(Transaction& change, std::uint64_t block) const {
  const std::uint64_t bytes = change.get(block + offsetof(BlockWords, bytes));
  const std::uint64_t home = change.get(block + offsetof(BlockWords, home));
  change.set(block + offsetof(BlockWords, tag), block_tag(0, BlockState::kFree));
  change.add(SHOAL_HEAP_WORD(live_blocks), std::uint64_t{0} - 1);
  change.add(SHOAL_HEAP_WORD(live_bytes), std::uint64_t{0} - bytes);
  if ((home & 1) == 0) {
    free_small(change, block, home);
    return;
  }
  const std::uint64_t first = home >> 1;
  segment_->runs().put(change, {first, segment_->runs().length(change, first)}, RunState::kDirty);
}

void Blocks::free_small(Transaction& change, std::uint64_t block, std::uint64_t slab) const {
  const std::uint64_t block_class = change.get(slab + offsetof(SlabWords, block_class));
  const std::uint64_t used = change.get(slab + offsetof(SlabWords, used));
  change.set(block + offsetof(BlockWords, link), change.get(slab + offsetof(SlabWords, free)));
  change.set(slab + offsetof(SlabWords, free), block);
  change.set(slab + offsetof(SlabWords, used), used - 1);
  if (used == slab_capacity(block_class)) link_slab(change, slab);
  // One empty slab of a class stays for the next block.
  const bool another = change.get(slab_list(block_class)) != slab ||
                       change.get(slab + offsetof(SlabWords, next)) != 0;
  if (used != 1 || !another) return;
  unlink_slab(change, slab);
  const std::uint64_t first = change.get(slab + offsetof(SlabWords, first_page));
  segment_->runs().put(change, {first, slab_pages(block_class)}, RunState::kDirty);
}

void Blocks::link_slab(Transaction& change, std::uint64_t slab) const {
  const std::uint64_t list = slab_list(change.get(slab + offsetof(SlabWords, block_class)));
  const std::uint64_t head = change.get(list);
  change.set(slab + offsetof(SlabWords, next), head);
  change.set(slab + offsetof(SlabWords, previous), 0);
  if (head != 0) change.set(head + offsetof(SlabWords, previous), slab);
  change.set(list, slab);
}

void Blocks::unlink_slab(Transaction& change, std::uint64_t slab) const {
  const std::uint64_t next = change.get(slab + offsetof(SlabWords, next));
  const std::uint64_t previous = change.get(slab + offsetof(SlabWords, previous));
  if (previous != 0) {
    change.set(previous + offsetof(SlabWords, next), next);
  } else {
    change.set(slab_list(change.get(slab + offsetof(SlabWords, block_class))), next);
  }
  if (next != 0) change.set(next + offsetof(SlabWords, previous), previous);
}

bool Blocks::is_live(Offset payload, std::uint64_t serial) const noexcept {
  const std::uint64_t block = payload - sizeof(BlockWords);
  const std::uint64_t end = segment_->page_place(segment_->load(SHOAL_HEAP_WORD(top)));
  const bool inside =
      payload % 64 == 0 && payload >= segment_->data_at() + sizeof(BlockWords) && payload < end;
  return inside && segment_->load(block + offsetof(BlockWords, tag)) >> 32 == kBlockMagic &&
         state_of_tag(segment_->load(block + offsetof(BlockWords, tag))) == BlockState::kLive &&
         (serial == 0 || segment_->load(block + offsetof(BlockWords, serial)) == serial);
}

std::uint64_t Blocks::find(Offset payload, std::uint64_t serial) const {
  if (!is_live(payload, serial)) {
    throw Error(
        fmt::format("there is no block at offset {:#x} of the shared heap{}: it was freed, "
                    "because nobody held it any more",
                    payload, serial == 0 ? "" : fmt::format(" with serial {}", serial)));
  }
  return payload - sizeof(BlockWords);
}

}  // namespace shoal::ipc
