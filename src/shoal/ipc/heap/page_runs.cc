#include "shoal/ipc/heap/page_runs.h"

#include <bit>

namespace shoal::ipc {
namespace {

using layout::HeapWords;
using layout::kBins;
using layout::RunState;
using layout::Transaction;

/// How many runs of the same list are looked at for one that is long enough.
constexpr int kLooks = 8;

std::uint64_t kind_index(RunState kind) noexcept { return kind == RunState::kDirty ? 1 : 0; }

std::uint64_t bin_place(RunState kind, std::size_t bin) noexcept {
  return SHOAL_HEAP_WORD(bins) + (kind_index(kind) * kBins + bin) * 8;
}

std::uint64_t bits_place(RunState kind, std::size_t bin) noexcept {
  return SHOAL_HEAP_WORD(bin_bits) + (kind_index(kind) * (kBins / 64) + bin / 64) * 8;
}

std::uint64_t free_pages_place(RunState kind) noexcept {
  return SHOAL_HEAP_WORD(free_pages) + kind_index(kind) * 8;
}

/// The first list from `bin` on that is not empty; kBins when there is none.
std::size_t next_bin(const Transaction& change, RunState kind, std::size_t bin) {
  while (bin < kBins) {
    const std::uint64_t bits = change.get(bits_place(kind, bin)) >> (bin % 64);
    if (bits != 0) return bin + static_cast<std::size_t>(std::countr_zero(bits));
    bin = (bin / 64 + 1) * 64;
  }
  return kBins;
}

}  // namespace

std::optional<PageRun> PageRuns::take(Transaction& change, State kind, std::uint64_t pages) const {
  const std::size_t first_bin = layout::bin_of(pages);
  for (std::size_t bin = next_bin(change, kind, first_bin); bin < kBins;
       bin = next_bin(change, kind, bin + 1)) {
    std::uint64_t head = change.get(bin_place(kind, bin));
    for (int look = 0; head != 0 && look < kLooks; ++look) {
      const PageRun found{head - 1, length(change, head - 1)};
      if (found.pages >= pages) {
        unlink(change, found, kind);
        if (found.pages > pages) {
          const PageRun rest{found.first + pages, found.pages - pages};
          tag(change, rest, kind);
          link(change, rest, kind);
        }
        return PageRun{found.first, pages};
      }
      head = next(change, found.first);
    }
  }
  return std::nullopt;
}

std::optional<PageRun> PageRuns::take_longest_dirty(Transaction& change,
                                                    std::uint64_t limit) const {
  for (std::size_t word = kBins / 64; word-- > 0;) {
    const std::uint64_t bits = change.get(bits_place(State::kDirty, word * 64));
    if (bits == 0) continue;
    const std::size_t bin = word * 64 + static_cast<std::size_t>(std::bit_width(bits) - 1);
    const std::uint64_t page = change.get(bin_place(State::kDirty, bin)) - 1;
    const PageRun run{page, length(change, page)};
    unlink(change, run, State::kDirty);
    if (run.pages <= limit) return run;
    const PageRun rest{run.first, run.pages - limit};
    tag(change, rest, State::kDirty);
    link(change, rest, State::kDirty);
    return PageRun{rest.first + rest.pages, limit};
  }
  return std::nullopt;
}

std::optional<PageRun> PageRuns::grow(Transaction& change, std::uint64_t pages) const {
  const std::uint64_t top = change.get(SHOAL_HEAP_WORD(top));
  if (pages > pages_ - top) return std::nullopt;
  change.set(SHOAL_HEAP_WORD(top), top + pages);
  return PageRun{top, pages};
}

void PageRuns::tag(Transaction& change, PageRun run, State state) const {
  const std::uint64_t tag = static_cast<std::uint64_t>(state) | run.pages << 8;
  change.set(tag_place(run.first), tag);
  if (run.pages > 1) change.set(tag_place(run.first + run.pages - 1), tag);
}

void PageRuns::put(Transaction& change, PageRun run, State kind) const {
  if (run.first > 0 && state(change, run.first - 1) == kind) {
    const std::uint64_t pages = length(change, run.first - 1);
    const PageRun before{run.first - pages, pages};
    unlink(change, before, kind);
    run = {before.first, before.pages + run.pages};
  }
  const std::uint64_t end = run.first + run.pages;
  if (end < change.get(SHOAL_HEAP_WORD(top)) && state(change, end) == kind) {
    const PageRun after{end, length(change, end)};
    unlink(change, after, kind);
    run.pages += after.pages;
  }
  tag(change, run, kind);
  link(change, run, kind);
}

void PageRuns::link(Transaction& change, PageRun run, State kind) const {
  const std::size_t bin = layout::bin_of(run.pages);
  const std::uint64_t head = change.get(bin_place(kind, bin));
  change.set(links_place(run.first), head);
  if (head != 0) {
    change.set(links_place(head - 1), next(change, head - 1) | (run.first + 1) << 32);
  } else {
    const std::uint64_t bits = bits_place(kind, bin);
    change.set(bits, change.get(bits) | std::uint64_t{1} << (bin % 64));
  }
  change.set(bin_place(kind, bin), run.first + 1);
  change.add(free_pages_place(kind), run.pages);
}

void PageRuns::unlink(Transaction& change, PageRun run, State kind) const {
  const std::size_t bin = layout::bin_of(run.pages);
  const std::uint64_t links = change.get(links_place(run.first));
  const std::uint64_t after = links & 0xffffffff;
  const std::uint64_t before = links >> 32;
  if (before != 0) {
    const std::uint64_t place = links_place(before - 1);
    change.set(place, (change.get(place) & ~std::uint64_t{0xffffffff}) | after);
  } else {
    change.set(bin_place(kind, bin), after);
    if (after == 0) {
      const std::uint64_t bits = bits_place(kind, bin);
      change.set(bits, change.get(bits) & ~(std::uint64_t{1} << (bin % 64)));
    }
  }
  if (after != 0) {
    const std::uint64_t place = links_place(after - 1);
    change.set(place, (change.get(place) & 0xffffffff) | before << 32);
  }
  change.add(free_pages_place(kind), std::uint64_t{0} - run.pages);
}

}  // namespace shoal::ipc
