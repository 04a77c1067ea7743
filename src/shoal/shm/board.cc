#include "shoal/shm/board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "shoal/os/clock.h"
#include "shoal/os/error.h"

namespace shoal::shm {

struct Board::Header {
  char magic[8];
  std::uint32_t version;
  std::int32_t pid;
  std::uint64_t born;
  std::uint64_t started_ns;
  std::atomic<std::uint32_t> ended;
  std::uint32_t zero;
  char kind[24];
  char title[64];
};

namespace {

constexpr char kMagic[8] = {'S', 'H', 'O', 'A', 'L', 'B', 'R', 'D'};
constexpr std::size_t kCountersAt = 128;

template <std::size_t size>
void write_text(char (&to)[size], std::string_view text) noexcept {
  const std::size_t bytes = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), bytes);
  std::memset(to + bytes, 0, size - bytes);
}

template <std::size_t size>
std::string read_text(const char (&from)[size]) {
  return std::string(from, ::strnlen(from, size));
}

}  // namespace

// Zeroed, 64-byte aligned, of the header and the counters.
std::span<std::byte> Board::memory_for(std::size_t counters) {
  const std::size_t bytes = kCountersAt + Counters::bytes(counters);
  try {
    arena_ = Arena::create(kBoardName, bytes);
    return {arena_.base(), bytes};
  } catch (const Error&) {
    unseen_ = std::vector<CounterSlot>((bytes + sizeof(CounterSlot) - 1) / sizeof(CounterSlot));
    return {reinterpret_cast<std::byte*>(unseen_.data()), bytes};
  }
}

Board::Board(std::string_view kind, std::span<const std::string> names)
    : counters_([&] {
        const std::span<std::byte> memory = memory_for(names.size());
        header_ = reinterpret_cast<Header*>(memory.data());
        return Counters::create(memory.subspan(kCountersAt), names.size());
      }()) {
  static_assert(sizeof(Header) == kCountersAt);
  for (const std::string& name : names) static_cast<void>(counters_.find_or_add(name));
  header_->version = kBoardVersion;
  header_->pid = ::getpid();
  header_->born = start_of_process(header_->pid);
  header_->started_ns = os::now_ns();
  set_kind(kind);
  std::memcpy(header_->magic, kMagic, sizeof kMagic);
}

Board::Board(Board&& other) noexcept
    : arena_(std::move(other.arena_)),
      unseen_(std::move(other.unseen_)),
      header_(std::exchange(other.header_, nullptr)),
      counters_(other.counters_) {}

Board::~Board() {
  if (header_ != nullptr) end();
}

void Board::end() noexcept {
  if (header_->pid == ::getpid()) header_->ended.store(1, std::memory_order_relaxed);
}

void Board::set_kind(std::string_view kind) noexcept { write_text(header_->kind, kind); }

void Board::set_title(std::string_view title) noexcept { write_text(header_->title, title); }

BoardReading Board::read(os::Fd fd) {
  const os::Memfd memfd = os::Memfd::open(std::move(fd));
  const std::size_t least = kArenaHeaderBytes + kCountersAt + Counters::bytes(0);
  if (memfd.bytes() < least) {
    throw Error(fmt::format("this is no board of Shoal's: it has {} bytes", memfd.bytes()));
  }
  const os::Mapping mapping = os::Mapping::map(memfd, "a board", os::Mapping::Access::kReadOnly);
  const std::span<std::byte> data = mapping.span().subspan(kArenaHeaderBytes);
  Header header;
  std::memcpy(static_cast<void*>(&header), data.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    throw Error("this is no board of Shoal's");
  }
  if (header.version != kBoardVersion) {
    throw Error(fmt::format("a board of version {}; this Shoal reads version {}", header.version,
                            kBoardVersion));
  }
  BoardReading reading{.pid = header.pid,
                       .born = header.born,
                       .started_ns = header.started_ns,
                       .ended = header.ended.load(std::memory_order_relaxed) != 0,
                       .kind = read_text(header.kind),
                       .title = read_text(header.title),
                       .counters = {}};
  const Counters counters = Counters::attach(data.subspan(kCountersAt));
  for (std::size_t i = 0; i < counters.size(); ++i) {
    reading.counters.emplace_back(counters[i].name(), counters[i].value());
  }
  return reading;
}

std::uint64_t start_of_process(pid_t pid) noexcept {
  char path[32];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/stat", pid).out = '\0';
  const os::Fd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return 0;
  char text[1024];
  const ssize_t bytes = ::read(file.get(), text, sizeof text - 1);
  if (bytes <= 0) return 0;
  text[bytes] = '\0';
  const char* at = std::strrchr(text, ')');  // a program's name may have spaces and parentheses
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at + 1, nullptr, 10);
}

}  // namespace shoal::shm
