// A queue whose memory another process writes over: its own words but the lock's, and the records of its ring.
#include "../input.h"
#include "shoal/ipc/heap/heap.h"
#include "shoal/ipc/queue/queue.h"
#include "shoal/os/error.h"

namespace shoal::fuzz {
namespace {

using ipc::Block;
using ipc::Heap;
using ipc::Queue;
using ipc::layout::QueueWords;

const ipc::QueueWait kAtOnce{.deadline = os::Deadline::min(), .give_up = [] { return true; }};

void put(Queue& queue, Input& input) {
  const auto bytes = input.take_part();
  const Block named = Block::allocate(16);
  const ipc::Offset block = named.offset();
  const bool names = input.take<std::uint8_t>() % 4 == 0;
  static_cast<void>(queue.put(7, bytes, {&block, names ? 1U : 0U}, kAtOnce));
}

void get(Queue& queue) {
  static auto* const message = new ipc::Message;
  if (queue.get(*message, kAtOnce) == ipc::QueueOutcome::kDone) {
    std::uint8_t sum = 0;
    for (const std::byte byte : message->bytes()) sum ^= std::to_integer<std::uint8_t>(byte);
    static_cast<void>(*const_cast<volatile std::uint8_t*>(&sum));
  }
  message->clear();
}

void scribble(const Queue& queue, Input& input) {
  constexpr std::size_t kRingBytes = ipc::RecordRing::bytes_of(ipc::layout::kSmallestRingLog);
  const bool in_ring = input.take<std::uint8_t>() % 2 == 0;
  const auto word = reinterpret_cast<const QueueWords*>(queue.block().data())->ring.load();
  static thread_local std::byte* ring = nullptr;
  if ((word & 63) == ipc::layout::kSmallestRingLog) ring = Heap::here()->at(word & ~63ULL);
  std::byte* const begin = in_ring ? ring : queue.block().data();
  const std::size_t size = in_ring ? kRingBytes : sizeof(QueueWords);
  std::size_t at = input.below(size);
  for (const std::byte byte : input.take_bytes(input.take<std::uint8_t>() % 33)) {
    const bool in_lock = !in_ring && at >= offsetof(QueueWords, lock) &&
                         at < offsetof(QueueWords, lock) + sizeof(sync::RobustLock);
    if (at < size && !in_lock) begin[at] = byte;
    ++at;
  }
}

void play(Input input) {
  Queue queue = Queue::create({.max_items = input.take<std::uint8_t>() % 4U});
  while (!input.empty()) {
    try {
      switch (input.take<std::uint8_t>() % 8) {
        case 0:
        case 1:
          put(queue, input);
          break;
        case 2:
        case 3:
          get(queue);
          break;
        case 4:
          static_cast<void>(queue.size() + queue.unfinished());
          static_cast<void>(queue.task_done());
          break;
        case 5:
          static_cast<void>(queue.poll(kAtOnce));
          break;
        default:
          scribble(queue, input);
      }
    } catch (const Error&) {
    }
  }
}

}  // namespace

std::vector<Bytes> seeds() {
  const std::uint8_t puts = 0, gets = 2, scribbles = 6, in_words = 1, in_ring = 0;
  const Bytes small(20, std::byte{1}), large(5000, std::byte{2});
  const auto begin = [] { return Output().put(std::uint8_t{0}); };
  return {begin().put(puts).put_part(small).put(std::uint8_t{1}).put(gets).take(),
          begin().put(puts).put_part(large).put(std::uint8_t{0}).put(gets).take(),
          begin()
              .put(puts)
              .put_part(small)
              .put(std::uint8_t{1})
              .put(scribbles)
              .put(in_ring)
              .put(std::uint16_t{0})
              .put(std::uint8_t{8})
              .put(std::uint32_t{6000})
              .put(std::uint32_t{2})
              .put(gets)
              .take(),
          begin()
              .put(scribbles)
              .put(in_words)
              .put(std::uint16_t{128})
              .put(std::uint8_t{8})
              .put(std::uint64_t{1} << 32 | 17)
              .put(gets)
              .take()};
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using shoal::ipc::Heap;
  if (!Heap::exists()) static_cast<void>(Heap::create({.bytes = std::uint64_t{64} << 20}));
  const std::uint64_t before = Heap::here()->stats().blocks;
  shoal::fuzz::play({data, size});
  SHOAL_CHECK(Heap::here()->stats().blocks == before, "no block is left behind");
  return 0;
}
