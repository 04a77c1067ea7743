// What `shoal stat` and `shoal trace` map of other processes: boards, the cells of workers, recorders.
#include <sys/mman.h>
#include <unistd.h>

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

void write(const os::Mapping& mapping, std::size_t at, std::span<const std::byte> bytes) {
  at = std::min(at, mapping.size());
  std::copy_n(bytes.begin(), std::min(bytes.size(), mapping.size() - at), mapping.data() + at);
}

/// The recorder is this process's own, as far as its head says; the rest is the input's.
void listen(const os::Memfd& memfd, const os::Mapping& mapping, Input& input) {
  auto& header = *reinterpret_cast<trace::RecorderHeader*>(mapping.data());
  header.pid = ::getpid();
  header.born = shm::start_of_process(header.pid);
  const bool stops = header.name[0] == 's';
  trace::Capture capture;
  if (!capture.add(os::Fd(::dup(memfd.fd())))) return;
  while (!input.empty()) {
    const std::size_t at = input.below(mapping.size());
    write(mapping, at, input.take_bytes(64));
    static_cast<void>(capture.poll());
  }
  if (stops) capture.stop();  // it takes its time
}

/// What is mapped: its size (a u8, in pages), and its beginning (a part); then more.
void read(Input input) {
  const auto what = static_cast<What>(input.take<std::uint8_t>() % 3);
  const std::size_t pages = 1 + input.take<std::uint8_t>() % 4;
  const os::Memfd memfd = os::Memfd::create("fuzz", pages * 4096);
  const os::Mapping mapping = os::Mapping::map(memfd, "fuzz");
  const bool in_arena = what != What::kRecorder;
  write(mapping, in_arena ? shm::kArenaHeaderBytes : 0, input.take_part());
  if (what == What::kRecorder) return listen(memfd, mapping, input);
  write(mapping, shm::kArenaHeaderBytes + 128, input.rest());
  if (what == What::kBoard) {
    static_cast<void>(shm::Board::read(os::Fd(::dup(memfd.fd()))));
  } else {
    static_cast<void>(vector::observe_workers(os::Fd(::dup(memfd.fd()))));
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

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return shoal::fuzz::refused_at_most([&] { shoal::fuzz::read({data, size}); });
}
