#include "shoal/ipc/heap/references.h"

#include <fmt/format.h>

namespace shoal::ipc {

using namespace layout;

std::uint64_t References::make(Transaction& change, std::uint64_t block, Holder holder) const {
  std::uint64_t ref = change.get(SHOAL_HEAP_WORD(free_ref));
  if (ref != 0) {
    change.set(SHOAL_HEAP_WORD(free_ref), next(change, ref));
  } else {
    const HeapHeader& header = segment_->header();
    const std::uint64_t made = change.get(SHOAL_HEAP_WORD(refs_made));
    if (made == header.refs) {
      throw OutOfMemory(
          fmt::format("make a reference in the shared heap: all {} are in use", header.refs));
    }
    segment_->make_ready(change, SHOAL_HEAP_WORD(refs_ready), header.refs_at, sizeof(RefWords),
                         made + 1);
    change.set(SHOAL_HEAP_WORD(refs_made), made + 1);
    ref = header.refs_at + made * sizeof(RefWords);
  }
  change.set(ref + offsetof(RefWords, block), block);
  link(change, ref, holder);
  change.add(block + offsetof(BlockWords, refs), 1);
  change.add(SHOAL_HEAP_WORD(live_refs), 1);
  return ref;
}

void References::move(Transaction& change, std::uint64_t ref, Holder holder) const {
  unlink(change, ref);
  link(change, ref, holder);
}

std::uint64_t References::drop(Transaction& change, std::uint64_t ref) const {
  const std::uint64_t refs_place = block(change, ref) + offsetof(BlockWords, refs);
  const std::uint64_t given_place = block(change, ref) + offsetof(BlockWords, given);
  unlink(change, ref);
  change.set(ref + offsetof(RefWords, block), 0);
  change.set(ref + offsetof(RefWords, next), change.get(SHOAL_HEAP_WORD(free_ref)));
  change.set(SHOAL_HEAP_WORD(free_ref), ref);
  change.add(SHOAL_HEAP_WORD(live_refs), std::uint64_t{0} - 1);
  if (change.get(given_place) == ref) change.set(given_place, 0);
  const std::uint64_t left = change.get(refs_place) - 1;
  change.set(refs_place, left);
  return left;
}

bool References::is_given(std::uint64_t block, Holder holder) const noexcept {
  const std::uint64_t ref = segment_->load(block + offsetof(BlockWords, given));
  const std::uint64_t begin = segment_->header().refs_at;
  const std::uint64_t made = segment_->load(SHOAL_HEAP_WORD(refs_made));
  return ref >= begin && (ref - begin) % sizeof(RefWords) == 0 &&
         (ref - begin) / sizeof(RefWords) < made &&
         segment_->load(ref + offsetof(RefWords, block)) == block &&
         segment_->load(ref + offsetof(RefWords, holder)) == holder.word();
}

void References::link(Transaction& change, std::uint64_t ref, Holder holder) const {
  const std::uint64_t head = change.get(holder.list_place());
  change.set(ref + offsetof(RefWords, holder), holder.word());
  change.set(ref + offsetof(RefWords, next), head);
  change.set(ref + offsetof(RefWords, previous), 0);
  if (head != 0) change.set(head + offsetof(RefWords, previous), ref);
  change.set(holder.list_place(), ref);
}

void References::unlink(Transaction& change, std::uint64_t ref) const {
  const std::uint64_t after = next(change, ref);
  const std::uint64_t before = change.get(ref + offsetof(RefWords, previous));
  if (before != 0) {
    change.set(before + offsetof(RefWords, next), after);
  } else {
    change.set(holder(change, ref).list_place(), after);
  }
  if (after != 0) change.set(after + offsetof(RefWords, previous), before);
}

}  // namespace shoal::ipc
