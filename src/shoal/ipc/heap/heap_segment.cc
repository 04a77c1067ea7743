#include "shoal/ipc/heap/heap_segment.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <random>

#include "shoal/os/limits/limits.h"
#include "shoal/os/memory/memory_use.h"

namespace shoal::ipc {
namespace {

using namespace layout;

constexpr std::uint64_t kHeaderBytes = 16 * 1024;
static_assert(sizeof(HeapHeader) <= kHeaderBytes);
constexpr std::uint64_t kSmallestHeap = std::uint64_t{16} << 20;
constexpr std::uint64_t kLargestHeap = std::uint64_t{8} << 40;
const char* const kName = "shoal heap";

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) noexcept {
  return (value + to - 1) / to * to;
}

std::uint64_t machine_bytes() noexcept {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// What RLIMIT_AS leaves; UINT64_MAX when unlimited.
std::uint64_t address_space_left() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  const std::uint64_t used = os::memory_use(::getpid()).virtual_bytes;
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

void set_geometry(HeapHeader& header, std::uint64_t bytes) {
  header.bytes = bytes;
  header.slots_at = kHeaderBytes;
  header.slots = bytes >= (std::uint64_t{256} << 20) ? 16384 : 1024;
  header.refs_at = round_up(header.slots_at + header.slots * sizeof(ProcessWords), kPage);
  header.refs = bytes / 16 / sizeof(RefWords);
  header.runs_at = round_up(header.refs_at + header.refs * sizeof(RefWords), kPage);
  const std::uint64_t rest = bytes - header.runs_at - kPage;
  header.pages = std::min<std::uint64_t>(rest / (kPage + sizeof(RunWords)), UINT32_MAX - 1);
  header.data_at = round_up(header.runs_at + header.pages * sizeof(RunWords), kPage);
}

std::uint64_t random_id() {
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) | 1;
}

os::Mapping map(const os::Memfd& memfd) {
  try {
    return os::Mapping::map(memfd, kName);
  } catch (const SystemError& error) {
    throw SystemError(fmt::format("map the {} bytes of the heap that processes share (ulimit -v "
                                  "leaves {} bytes of address space)",
                                  memfd.bytes(), address_space_left()),
                      error.error_number());
  }
}

}  // namespace

HeapSegment::HeapSegment(os::Memfd memfd, os::Mapping mapping)
    : memfd_(std::move(memfd)),
      mapping_(std::move(mapping)),
      runs_(header().runs_at, header().pages),
      data_at_(header().data_at) {}

HeapSegment HeapSegment::create(std::uint64_t bytes) {
  if (bytes == 0) bytes = std::clamp(4 * machine_bytes(), kSmallestHeap, kLargestHeap);
  const std::uint64_t limit = std::min(address_space_left() / 2, os::max_file_bytes());
  bytes = round_up(std::max(std::min(bytes, limit), kSmallestHeap), kPage);
  os::Memfd memfd;
  os::Mapping mapping;
  for (;; bytes = round_up(bytes / 2, kPage)) {
    try {
      memfd = os::Memfd::create_sparse(kName, bytes);
      mapping = map(memfd);
      break;
    } catch (const SystemError&) {
      if (bytes / 2 < kSmallestHeap) throw;
    }
  }
  if (const int error = memfd.populate(0, kHeaderBytes); error != 0) {
    throw OutOfMemory(
        fmt::format("allocate {} bytes for the heap that processes share", kHeaderBytes), error);
  }
  auto* header = new (mapping.data()) HeapHeader{};
  header->magic = kMagic;
  header->version = kVersion;
  header->header_bytes = kHeaderBytes;
  header->id = random_id();
  set_geometry(*header, bytes);
  header->lock.init();
  return HeapSegment(std::move(memfd), std::move(mapping));
}

HeapSegment HeapSegment::attach(os::Fd fd) {
  const int number = fd.get();
  os::Memfd memfd = os::Memfd::open(std::move(fd));
  if (memfd.bytes() < kSmallestHeap) {
    throw Error(
        fmt::format("descriptor {} is no heap of Shoal: it has {} bytes", number, memfd.bytes()));
  }
  os::Mapping mapping = map(memfd);
  const HeapHeader& header = *reinterpret_cast<const HeapHeader*>(mapping.data());
  if (header.magic != kMagic) {
    throw Error(fmt::format("descriptor {} is no heap of Shoal: it begins with {:#x}", number,
                            header.magic));
  }
  HeapHeader expected{};
  set_geometry(expected, memfd.bytes());
  const auto geometry = [](const HeapHeader& of) {
    return std::array{of.bytes, of.slots_at, of.slots, of.refs_at,
                      of.refs,  of.runs_at,  of.pages, of.data_at};
  };
  if (header.version != kVersion || header.header_bytes != kHeaderBytes ||
      geometry(header) != geometry(expected)) {
    throw Error(
        fmt::format("descriptor {} is a heap of version {}, this process has version {}: "
                    "all processes of a family need the same Shoal",
                    number, header.version, kVersion));
  }
  return HeapSegment(std::move(memfd), std::move(mapping));
}

void HeapSegment::make_ready(Transaction& change, std::uint64_t ready_place, std::uint64_t table_at,
                             std::uint64_t entry_bytes, std::uint64_t count) const {
  const std::uint64_t ready = change.get(ready_place);
  if (count <= ready) [[likely]]
    return;
  const std::uint64_t begin = (table_at + ready * entry_bytes) / kPage * kPage;
  const std::uint64_t end = round_up(table_at + count * entry_bytes, kPopulateStep);
  if (const int error = memfd_.populate(begin, end - begin); error != 0) {
    throw OutOfMemory(
        fmt::format("allocate {} bytes for the tables of the shared heap", end - begin), error);
  }
  change.set(ready_place, (end - table_at) / entry_bytes);
}

HeapLock::HeapLock(const HeapSegment& segment) noexcept
    : change(segment.header().journal, segment.base()), lock_(segment.header().lock) {
  if (lock_.spin_lock() == sync::LockOutcome::kOwnerDied) {
    segment.header().journal.recover(segment.base());
  }
}

HeapLock::~HeapLock() { lock_.unlock(); }

}  // namespace shoal::ipc
