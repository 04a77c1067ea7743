// What `shoal stat` and `shoal trace` map of other processes: boards, the cells of workers, recorders.
#include <time.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "../input.h"
#include "shoal/os/memory/memfd.h"
#include "shoal/shm/board.h"
#include "shoal/trace/capture.h"
#include "shoal/vector/env_board.h"
#include "shoal/vector/sync/control_block.h"

namespace shoal::fuzz {
namespace {

enum class What : std::uint8_t { kBoard, kWorkers, kRecorder };

constexpr std::size_t kSlots = 16;  // of a recorder's ring

/// Zeroed memory of so many pages, up to kMostPages. It is kept: making it takes longer than reading it.
constexpr std::size_t kMostPages = 4;
struct Memory {
  explicit Memory(std::size_t pages)
      : memfd(os::Memfd::create("fuzz", pages * 4096)), mapping(os::Mapping::map(memfd, "fuzz")) {}
  os::Fd fd() const { return os::Fd(::dup(memfd.fd())); }

  static const Memory& zeroed(std::size_t pages) {
    static std::array<std::optional<Memory>, kMostPages> all;
    auto& one = all[pages - 1];
    if (!one) one.emplace(pages);
    std::memset(one->mapping.data(), 0, one->mapping.size());
    return *one;
  }

  const os::Memfd memfd;
  const os::Mapping mapping;
};

void write(const os::Mapping& mapping, std::size_t at, std::span<const std::byte> bytes) {
  at = std::min(at, mapping.size());
  std::copy_n(bytes.begin(), std::min(bytes.size(), mapping.size() - at), mapping.data() + at);
}

/// The recorder is this process's own, as far as its head says; the rest is the input's.
void listen(const Memory& memory, Input& input) {
  static const std::uint64_t born = shm::start_of_process(::getpid());
  const os::Mapping& mapping = memory.mapping;
  auto& header = *reinterpret_cast<trace::RecorderHeader*>(mapping.data());
  header.pid = ::getpid();
  header.born = born;
  const bool stops = header.name[0] == 's';
  trace::Capture capture;
  if (!capture.add(memory.fd())) return;
  while (!input.empty()) {
    const std::size_t at = input.below(mapping.size());
    write(mapping, at, input.take_bytes(64));
    static_cast<void>(capture.poll());
  }
  if (stops) capture.stop();
}

/// What is mapped: its size (a u8, in pages), and its beginning (a part); then more.
void read(Input input) {
  const auto what = static_cast<What>(input.take<std::uint8_t>() % 3);
  const std::size_t pages = 1 + input.take<std::uint8_t>() % kMostPages;
  const Memory& memory = Memory::zeroed(pages);
  const os::Mapping& mapping = memory.mapping;
  const bool in_arena = what != What::kRecorder;
  write(mapping, in_arena ? shm::kArenaHeaderBytes : 0, input.take_part());
  if (what == What::kRecorder) return listen(memory, input);
  write(mapping, shm::kArenaHeaderBytes + 128, input.rest());
  if (what == What::kBoard) {
    static_cast<void>(shm::Board::read(memory.fd()));
  } else {
    static_cast<void>(vector::observe_workers(memory.fd()));
  }
}

std::span<const std::byte> content_of(int fd, std::size_t from, std::size_t bytes) {
  static std::vector<os::Mapping> kept;
  kept.push_back(os::Mapping::map(os::Memfd::open(os::Fd(::dup(fd))), "a seed"));
  return kept.back().span().subspan(from, bytes);
}

}  // namespace

std::vector<Bytes> seeds() {
  const std::vector<std::string> names{"steps", "pid of worker 0"};
  const shm::Board board("vector environment", names);
  const auto block =
      vector::ControlBlock::create(2, 4, vector::AutoresetMode::kNextStep, 1, 4096, 4096);
  trace::RecorderHeader header{};
  std::memcpy(header.magic, "SHOALTRC", sizeof header.magic);
  header.version = trace::kRecorderVersion;
  header.slots = kSlots;
  header.name[0] = 's';
  sync::EventRing::Record records[2] = {};
  records[0] =
      trace::Event{.span = trace::Span::kStep, .thread = 5, .start_ns = 7, .in_ticks = true}.pack();
  const auto of_memory = [](What what, std::span<const std::byte> content) {
    return Output()
        .put(what)
        .put(std::uint8_t{3})
        .put_part(content.first(128))
        .put_bytes(content.subspan(128));
  };
  std::vector<Bytes> all;
  all.push_back(
      of_memory(What::kBoard, content_of(board.fd(), shm::kArenaHeaderBytes, 384)).take());
  all.push_back(
      of_memory(What::kWorkers, content_of(block.fd(), shm::kArenaHeaderBytes, 1300)).take());
  all.push_back(Output()
                    .put(What::kRecorder)
                    .put(std::uint8_t{1})
                    .put_part(std::as_bytes(std::span(&header, 1)))
                    .put(std::uint16_t{4096})
                    .put(std::uint64_t{1})
                    .put(records)
                    .put(std::uint64_t{0})
                    .put(std::uint16_t{256})
                    .put(std::uint64_t{2})
                    .take());
  return all;
}

}  // namespace shoal::fuzz

/// In the place of libc's. Capture::stop() sleeps until writers have seen that it stops, of which there are none here.
extern "C" int nanosleep(const timespec* /*time*/, timespec* /*left*/) { return 0; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return shoal::fuzz::refused_at_most([&] { shoal::fuzz::read({data, size}); });
}
