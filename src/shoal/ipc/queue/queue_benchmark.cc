// A round trip of a message between two processes, and what a put and a get take when nobody waits.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "shoal/ipc/queue/queue.h"
#include "shoal/os/testing/child.h"

namespace shoal::ipc {
namespace {

void put(Queue& queue, std::span<const std::byte> bytes) {
  static_cast<void>(queue.put(0, bytes, {}, {}));
}

void put_and_get(benchmark::State& state) {
  Queue queue = Queue::create();
  const std::vector<std::byte> bytes(static_cast<std::size_t>(state.range(0)));
  Message message;
  for (auto _ : state) {
    put(queue, bytes);
    static_cast<void>(queue.get(message, {}));
  }
}
BENCHMARK(put_and_get)->Arg(8)->Arg(1024)->Arg(4096)->Arg(65536)->Arg(1 << 20);

void round_trip(benchmark::State& state) {
  Queue there = Queue::create();
  Queue back = Queue::create();
  os::testing::Child peer([&] {
    Message message;
    for (;;) {
      if (there.get(message, {}) != QueueOutcome::kDone) continue;
      put(back, message.bytes());
    }
    return 0;
  });
  const std::vector<std::byte> bytes(static_cast<std::size_t>(state.range(0)));
  Message message;
  for (auto _ : state) {
    put(there, bytes);
    while (back.get(message, {}) != QueueOutcome::kDone) {
    }
  }
}
BENCHMARK(round_trip)->UseRealTime()->Arg(8)->Arg(1024)->Arg(65536)->Arg(1 << 20);

void stream(benchmark::State& state) {
  Queue queue = Queue::create({.max_items = 256});
  os::testing::Child peer([&] {
    Message message;
    for (;;) static_cast<void>(queue.get(message, {}));
    return 0;
  });
  const std::vector<std::byte> bytes(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) put(queue, bytes);
}
BENCHMARK(stream)->UseRealTime()->Arg(8)->Arg(1024)->Arg(65536)->Arg(1 << 20);

}  // namespace
}  // namespace shoal::ipc
