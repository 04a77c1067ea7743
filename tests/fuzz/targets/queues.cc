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

/// A queue, and where another process knows its ring to be.
class Scribbled {
 public:
  explicit Scribbled(Queue& queue) : queue_(queue) { learn_ring(); }

  void scribble(Input& input) {
    const bool in_ring = input.take<std::uint8_t>() % 2 == 0;
    if (!in_ring) return write(input, queue_.block().data(), sizeof(QueueWords));
    learn_ring();
    if (ring_ != nullptr)
      write(input, ring_, ipc::RecordRing::bytes_of(ipc::layout::kSmallestRingLog));
  }

 private:
  const QueueWords& words() const {
    return *reinterpret_cast<const QueueWords*>(queue_.block().data());
  }
  /// What the queue wrote; once that was written over, its ring is where it was.
  void learn_ring() {
    const std::uint64_t word = words().ring.load();
    if (is_overwritten_) return;
    const bool is_small = (word & 63) == ipc::layout::kSmallestRingLog;
    ring_ = is_small ? Heap::here()->at(word & ~63ULL) : nullptr;
  }
  void write(Input& input, std::byte* begin, std::size_t size) {
    const std::size_t begin_of_lock = offsetof(QueueWords, lock);
    const bool in_words = begin == queue_.block().data();
    std::size_t at = input.below(size);
    for (const std::byte byte : input.take_bytes(input.take<std::uint8_t>() % 33)) {
      const bool in_lock =
          in_words && at >= begin_of_lock && at < begin_of_lock + sizeof(sync::RobustLock);
      if (in_words && at / 8 == offsetof(QueueWords, ring) / 8) is_overwritten_ = true;
      if (at < size && !in_lock) begin[at] = byte;
      ++at;
    }
  }

  Queue& queue_;
  std::byte* ring_ = nullptr;  // of the smallest size
  bool is_overwritten_ = false;
};

void play(Input input) {
  Queue queue = Queue::create({.max_items = input.take<std::uint8_t>() % 4U});
  Scribbled shared(queue);
  for (int acts = 0; acts < 32 && !input.empty(); ++acts) {
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
          shared.scribble(input);
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
