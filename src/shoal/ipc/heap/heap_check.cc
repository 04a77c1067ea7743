// Checks a heap: sums up its tables, and compares them.
#include <fmt/format.h>

#include <cstddef>
#include <unordered_map>
#include <unordered_set>

#include "shoal/ipc/heap/heap.h"

namespace shoal::ipc {

using namespace layout;

namespace {

/// Walks all tables of a heap that is locked.
class Audit {
 public:
  explicit Audit(const HeapSegment& segment) : segment_(segment), slots_(segment) {}

  std::vector<std::string> run() {
    walk_pages();
    for (int kind = 0; kind < 2; ++kind) walk_free_runs(kind);
    for (std::size_t index = 0; index < kClasses; ++index) walk_slab_list(index);
    walk_references();
    compare_blocks();
    compare_references();
    return std::move(faults_);
  }

  /// Who holds what; of a heap whose accounts balance.
  HolderStats holders() {
    walk_pages();
    HolderStats stats;
    for (std::uint32_t index = 0; index < slots_.count(); ++index) {
      const ProcessSlot slot = slots_.at(index);
      if (!slot) continue;
      HolderStats::Process process{.slot = slot, .pid = slots_.process(slot).pid};
      for_each_held(Holder::process(slots_.place(index)), [&](std::uint64_t block) {
        ++process.blocks;
        process.bytes += word(block + offsetof(BlockWords, bytes));
      });
      stats.processes.push_back(process);
    }
    for (const auto* blocks : {&small_, &large_}) {
      for (const std::uint64_t block : *blocks) {
        const std::uint64_t kind = kind_of_tag(word(block + offsetof(BlockWords, tag)));
        HolderStats::Kind& found = stats.kinds[kind % kBlockKinds];
        ++found.blocks;
        found.bytes += word(block + offsetof(BlockWords, bytes));
        for_each_held(Holder::block(block), [&](std::uint64_t) { ++found.references; });
      }
    }
    return stats;
  }

 private:
  struct Found {
    std::uint64_t refs = 0;
    bool dying = false;
  };

  std::uint64_t word(std::uint64_t place) const { return segment_.load(place); }

  template <class... Args>
  void expect(bool holds, fmt::format_string<Args...> text, Args&&... args) {
    constexpr std::size_t kMost = 20;
    if (!holds && faults_.size() < kMost) {
      faults_.push_back(fmt::format(text, std::forward<Args>(args)...));
    }
  }

  std::uint64_t run_tag(std::uint64_t page) const {
    return word(segment_.header().runs_at + page * sizeof(RunWords));
  }

  /// Runs tile the data; blocks and slabs are collected.
  void walk_pages() {
    const std::uint64_t top = word(SHOAL_HEAP_WORD(top));
    RunState before = RunState::kNone;
    for (std::uint64_t page = 0; page < top;) {
      const auto state = static_cast<RunState>(run_tag(page) & 0xff);
      const std::uint64_t pages = run_tag(page) >> 8;
      if (pages == 0 || pages > top - page || state == RunState::kNone) {
        expect(false, "page {} begins no run (tag {:#x})", page, run_tag(page));
        return;
      }
      expect(run_tag(page) == run_tag(page + pages - 1), "run at page {} ends with another tag",
             page);
      const bool is_free = state == RunState::kClean || state == RunState::kDirty;
      expect(!is_free || state != before, "free runs beside each other at page {}", page);
      if (state == RunState::kClean) free_pages_[0] += pages;
      if (state == RunState::kDirty) free_pages_[1] += pages;
      if (state == RunState::kPending) pending_.insert(page + 1);
      if (state == RunState::kBlock) large_.insert(segment_.page_place(page));
      if (state == RunState::kSlab) walk_slab(segment_.page_place(page), page);
      before = state;
      page += pages;
    }
  }

  void walk_slab(std::uint64_t slab, std::uint64_t page) {
    const std::uint64_t block_class = word(slab + offsetof(SlabWords, block_class));
    if (block_class >= kClasses) {
      expect(false, "slab at page {} has class {}", page, block_class);
      return;
    }
    const std::uint64_t carved = word(slab + offsetof(SlabWords, carved));
    const std::uint64_t used = word(slab + offsetof(SlabWords, used));
    std::unordered_set<std::uint64_t> free;
    for (std::uint64_t block = word(slab + offsetof(SlabWords, free)); block != 0;
         block = word(block + offsetof(BlockWords, link))) {
      if (!free.insert(block).second) {
        expect(false, "the free list of the slab at page {} is a ring", page);
        return;
      }
    }
    expect(used + free.size() == carved && carved <= slab_capacity(block_class),
           "slab at page {}: {} used and {} free of {} carved", page, used, free.size(), carved);
    for (std::uint64_t i = 0; i < carved; ++i) {
      const std::uint64_t block = slab + sizeof(SlabWords) + i * kClassBytes[block_class];
      if (free.count(block) == 0) small_.insert(block);
    }
    if (used < slab_capacity(block_class)) with_room_.insert(slab);
  }

  void walk_free_runs(int kind) {
    std::uint64_t pages = 0;
    for (std::size_t bin = 0; bin < kBins; ++bin) {
      std::uint64_t at = word(SHOAL_HEAP_WORD(bins) + (kind * kBins + bin) * 8);
      const std::uint64_t bits =
          word(SHOAL_HEAP_WORD(bin_bits) + (kind * (kBins / 64) + bin / 64) * 8);
      expect((at != 0) == ((bits >> (bin % 64) & 1) != 0), "bit of list {} of kind {}", bin, kind);
      for (std::uint64_t before = 0; at != 0;) {
        const std::uint64_t links =
            word(segment_.header().runs_at + (at - 1) * sizeof(RunWords) + 8);
        const std::uint64_t tag = run_tag(at - 1);
        expect(links >> 32 == before && bin_of(tag >> 8) == bin &&
                   tag % 256 == static_cast<std::uint64_t>(kind) + 1,
               "free run at page {} is in the wrong list", at - 1);
        pages += tag >> 8;
        if (pages > segment_.header().pages) return;  // a ring
        before = at;
        at = links & 0xffffffff;
      }
    }
    const std::uint64_t noted = word(SHOAL_HEAP_WORD(free_pages) + kind * 8);
    expect(pages == free_pages_[kind] && pages == noted,
           "{} {} pages: {} listed, {} by their tags, {} noted", kind == 0 ? "clean" : "dirty",
           "free", pages, free_pages_[kind], noted);
  }

  void walk_slab_list(std::size_t index) {
    std::uint64_t before = 0;
    for (std::uint64_t slab = word(SHOAL_HEAP_WORD(slabs) + index * 8); slab != 0;
         slab = word(slab + offsetof(SlabWords, next))) {
      expect(word(slab + offsetof(SlabWords, previous)) == before, "list of slabs of class {}",
             index);
      if (with_room_.erase(slab) == 0) {
        expect(false, "the list of slabs of class {} leads to a full one, or nowhere", index);
        return;
      }
      before = slab;
    }
  }

  void walk_list(std::uint64_t list_place, std::uint64_t holder) {
    std::uint64_t before = 0;
    for (std::uint64_t ref = word(list_place); ref != 0;
         ref = word(ref + offsetof(RefWords, next))) {
      expect(word(ref + offsetof(RefWords, previous)) == before &&
                 word(ref + offsetof(RefWords, holder)) == holder,
             "reference {:#x} is in a wrong list", ref);
      if (!refs_.insert(ref).second) {
        expect(false, "reference {:#x} is in two lists", ref);
        return;
      }
      ++found_[word(ref + offsetof(RefWords, block))].refs;
      before = ref;
    }
  }

  template <class Visit>
  void for_each_held(Holder holder, const Visit& visit) const {
    for (std::uint64_t ref = word(holder.list_place()); ref != 0;
         ref = word(ref + offsetof(RefWords, next))) {
      visit(word(ref + offsetof(RefWords, block)));
    }
  }

  void walk_references() {
    for (std::uint32_t index = 0; index < slots_.count(); ++index) {
      const std::uint64_t place = slots_.place(index);
      const std::uint64_t pending = word(place + offsetof(ProcessWords, pending));
      expect(pending == 0 || pending_.erase(pending) == 1, "slot {} has page {} pending", index,
             pending - 1);
      const Holder holder = Holder::process(place);
      expect(slots_.at(index) || word(holder.list_place()) == 0, "free slot {} holds blocks",
             index);
      walk_list(holder.list_place(), holder.word());
    }
    expect(pending_.empty(), "{} pending runs are in no slot", pending_.size());
    for (const auto* blocks : {&small_, &large_}) {
      for (const std::uint64_t block : *blocks) {
        const Holder holder = Holder::block(block);
        walk_list(holder.list_place(), holder.word());
      }
    }
    for (std::uint64_t block = word(SHOAL_HEAP_WORD(dying)); block != 0;
         block = word(block + offsetof(BlockWords, link))) {
      if (found_[block].dying) break;  // a ring
      found_[block].dying = true;
    }
  }

  void compare_blocks() {
    std::uint64_t bytes = 0;
    for (const auto* blocks : {&small_, &large_}) {
      for (const std::uint64_t block : *blocks) {
        const Found found = found_[block];
        const std::uint64_t refs = word(block + offsetof(BlockWords, refs));
        const BlockState state = state_of_tag(word(block + offsetof(BlockWords, tag)));
        expect(refs == found.refs, "block {:#x} counts {} references and has {}", block, refs,
               found.refs);
        expect(found.refs > 0 || found.dying, "block {:#x} of {} bytes is held by nobody", block,
               word(block + offsetof(BlockWords, bytes)));
        expect(state == (found.dying ? BlockState::kDying : BlockState::kLive),
               "block {:#x} is in use with state {}", block, static_cast<int>(state));
        bytes += word(block + offsetof(BlockWords, bytes));
      }
    }
    for (const auto& [block, found] : found_) {
      expect(small_.count(block) + large_.count(block) == 1,
             "{} references lead to {:#x}, where no block is", found.refs, block);
    }
    expect(small_.size() + large_.size() == word(SHOAL_HEAP_WORD(live_blocks)) &&
               bytes == word(SHOAL_HEAP_WORD(live_bytes)),
           "{} blocks of {} bytes found, {} of {} noted", small_.size() + large_.size(), bytes,
           word(SHOAL_HEAP_WORD(live_blocks)), word(SHOAL_HEAP_WORD(live_bytes)));
  }

  void compare_references() {
    std::uint64_t free = 0;
    const std::uint64_t made = word(SHOAL_HEAP_WORD(refs_made));
    for (std::uint64_t ref = word(SHOAL_HEAP_WORD(free_ref)); ref != 0 && free <= made;
         ref = word(ref + offsetof(RefWords, next))) {
      ++free;
    }
    expect(refs_.size() + free == made && refs_.size() == word(SHOAL_HEAP_WORD(live_refs)),
           "{} references in lists and {} free, of {} made; {} noted", refs_.size(), free, made,
           word(SHOAL_HEAP_WORD(live_refs)));
  }

  const HeapSegment& segment_;
  ProcessSlots slots_;
  std::vector<std::string> faults_;
  std::uint64_t free_pages_[2] = {0, 0};
  std::unordered_set<std::uint64_t> pending_, small_, large_, with_room_, refs_;
  std::unordered_map<std::uint64_t, Found> found_;
};

}  // namespace

std::vector<std::string> Heap::check() const {
  const HeapLock lock(segment_);
  return Audit(segment_).run();
}

HolderStats Heap::holders() const {
  const HeapLock lock(segment_);
  return Audit(segment_).holders();
}

HeapStats Heap::stats() const {
  HeapStats stats;
  const std::lock_guard guard(mutex_);
  stats.held_here = held_.size();
  const HeapLock lock(segment_);
  stats.bytes = segment_.bytes();
  stats.blocks = segment_.load(SHOAL_HEAP_WORD(live_blocks));
  stats.block_bytes = segment_.load(SHOAL_HEAP_WORD(live_bytes));
  stats.references = segment_.load(SHOAL_HEAP_WORD(live_refs));
  const std::uint64_t clean = segment_.load(SHOAL_HEAP_WORD(free_pages));
  const std::uint64_t dirty = segment_.load(SHOAL_HEAP_WORD(free_pages) + 8);
  stats.used_bytes = (segment_.load(SHOAL_HEAP_WORD(top)) - clean - dirty) * kPage;
  stats.cached_bytes = dirty * kPage;
  for (std::uint32_t index = 0; index < slots_.count(); ++index) {
    if (slots_.at(index)) ++stats.processes;
  }
  return stats;
}

}  // namespace shoal::ipc
