// What a block costs: allocate and release, beside malloc and free; a second reference; a message
// through a queue's block; and what several processes at once make of it.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>

#include "shoal/ipc/heap/block.h"
#include "shoal/ipc/heap/heap.h"
#include "shoal/os/testing/child.h"

namespace shoal::ipc {
namespace {

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t bytes : {64, 1 << 10, 64 << 10, 1 << 20, 16 << 20}) {
    benchmark->Arg(bytes);
  }
}

void allocate_and_release(benchmark::State& state) {
  Heap& heap = *Heap::here();
  for (auto _ : state) heap.release(heap.allocate(static_cast<std::size_t>(state.range(0))));
}
BENCHMARK(allocate_and_release)->Apply(sizes);

void malloc_and_free(benchmark::State& state) {
  for (auto _ : state) {
    void* block = std::malloc(static_cast<std::size_t>(state.range(0)));
    benchmark::DoNotOptimize(block);
    std::free(block);
  }
}
BENCHMARK(malloc_and_free)->Apply(sizes);

/// As a producer does it: every byte is written.
void allocate_fill_release(benchmark::State& state) {
  Heap& heap = *Heap::here();
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    const Offset block = heap.allocate(bytes);
    std::memset(heap.at(block), 1, bytes);
    heap.release(block);
  }
}
BENCHMARK(allocate_fill_release)->Apply(sizes);

void malloc_fill_free(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    void* block = std::malloc(bytes);
    std::memset(block, 1, bytes);
    benchmark::DoNotOptimize(block);
    benchmark::ClobberMemory();
    std::free(block);
  }
}
BENCHMARK(malloc_fill_free)->Apply(sizes);

void acquire_and_release_what_is_held(benchmark::State& state) {
  const Block block = Block::allocate(64);
  for (auto _ : state) Block copy(block);
}
BENCHMARK(acquire_and_release_what_is_held);

/// A message with one block: as put and get of a tensor, without the queue's own ring.
void message_with_a_block(benchmark::State& state) {
  Heap& heap = *Heap::here();
  const Block queue = Block::allocate(64, BlockKind::kQueue);
  for (auto _ : state) {
    const Offset named = heap.allocate(1024);
    const Offset message = heap.allocate(256, BlockKind::kMessage);
    heap.hold(message, {&named, 1});
    heap.give(message, queue.offset());
    heap.release(named);
    heap.take(message, queue.offset());
    heap.acquire(named);
    heap.release(message);
    heap.release(named);
  }
}
BENCHMARK(message_with_a_block);

/// While `range` other processes do the same.
void allocate_beside_others(benchmark::State& state) {
  Heap& heap = *Heap::here();
  std::vector<std::unique_ptr<os::testing::Child>> others;
  for (int i = 0; i < state.range(0); ++i) {
    others.push_back(std::make_unique<os::testing::Child>([&]() -> int {
      for (;;) heap.release(heap.allocate(1024));
    }));
  }
  for (auto _ : state) heap.release(heap.allocate(1024));
  others.clear();
  heap.sweep();
}
BENCHMARK(allocate_beside_others)->Arg(0)->Arg(1)->Arg(3)->UseRealTime();

void fork_with_blocks(benchmark::State& state) {
  std::vector<Block> blocks;
  for (int i = 0; i < state.range(0); ++i) blocks.push_back(Block::allocate(1024));
  for (auto _ : state) {
    os::testing::Child child([] { return 0; });
    child.join();
    Heap::here()->sweep();
  }
}
BENCHMARK(fork_with_blocks)->Arg(0)->Arg(1)->Arg(1000)->UseRealTime();

}  // namespace
}  // namespace shoal::ipc
