#include "shoal/trace/capture.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/shm/board.h"
#include "shoal/trace/ticks.h"

namespace shoal::trace {
namespace {

/// For a writer that has seen that it may record, to have done so.
constexpr std::chrono::milliseconds kLastWrites{2};
constexpr std::size_t kMaxCommand = 80;
constexpr std::size_t kSlotBytes = sync::EventRing::kSlotWords * sizeof(sync::EventRing::Word);
/// Beyond them nobody's name is looked up: there are no such processes.
constexpr std::size_t kMostThreads = 4096;

std::uint64_t lease_end() noexcept {
  return os::now_ns() +
         static_cast<std::uint64_t>(std::chrono::nanoseconds(Capture::kLease).count());
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string command_of(pid_t pid) {
  std::string command = content_of(fmt::format("/proc/{}/cmdline", pid));
  std::replace(command.begin(), command.end(), '\0', ' ');
  command.resize(std::min(command.size(), kMaxCommand));
  while (!command.empty() && command.back() == ' ') command.pop_back();
  return command;
}

std::string thread_name(pid_t pid, std::uint32_t thread) {
  std::string name = content_of(fmt::format("/proc/{}/task/{}/comm", pid, thread));
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

/// Also of times that no clock of ours has shown.
std::int64_t whole(double ns) noexcept {
  constexpr double kMost = 9.2e18;
  return ns == ns ? static_cast<std::int64_t>(std::clamp(ns, -kMost, kMost)) : 0;
}

/// A copy, so that what is checked cannot change after the check.
struct Checked {
  pid_t pid;
  std::uint64_t born;
  std::string name;
  std::size_t slots;
};

Checked check(const os::Mapping& mapping) {
  if (mapping.size() < kRecorderHeaderBytes ||
      std::memcmp(mapping.data(), "SHOALTRC", sizeof RecorderHeader::magic) != 0) {
    throw Error(fmt::format("this is no recorder of Shoal's: it has {} bytes", mapping.size()));
  }
  const auto& header = *reinterpret_cast<const RecorderHeader*>(mapping.data());
  if (header.version != kRecorderVersion) {
    throw Error(fmt::format("a recorder of version {}; this Shoal reads version {}", header.version,
                            kRecorderVersion));
  }
  const std::uint64_t slots = header.slots;
  if (!std::has_single_bit(slots) || slots > kRecorderSlots ||
      slots > (mapping.size() - kRecorderHeaderBytes) / kSlotBytes) {
    throw Error(fmt::format("a recorder of {} slots in {} bytes", slots, mapping.size()));
  }
  return {
      header.pid, header.born, {header.name, ::strnlen(header.name, sizeof header.name)}, slots};
}

}  // namespace

Capture::~Capture() {
  // relaxed: it is a hint, here and below
  for (Source& source : sources_) source.header->until_ns.store(0, std::memory_order_relaxed);
}

bool Capture::add(os::Fd fd) {
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) throw SystemError("look at a recorder");
  const std::pair<std::uint64_t, std::uint64_t> file(status.st_dev, status.st_ino);
  const auto same = [&](const Source& source) { return source.file == file; };
  if (std::any_of(sources_.begin(), sources_.end(), same)) return false;

  os::Memfd memfd = os::Memfd::open(std::move(fd));
  os::Mapping mapping = os::Mapping::map(memfd, "a recorder");
  const Checked checked = check(mapping);
  if (shm::start_of_process(checked.pid) != checked.born) return false;
  if (::flock(memfd.fd(), LOCK_EX | LOCK_NB) != 0) {
    throw InvalidState(fmt::format(
        "process {} is being traced by somebody else; try again when that has ended", checked.pid));
  }
  const std::size_t used = kRecorderHeaderBytes + checked.slots * kSlotBytes;
  if (const int error = memfd.populate(0, used); error != 0) {
    throw SystemError(fmt::format("allocate the ring of process {}", checked.pid), error);
  }
  auto* header = reinterpret_cast<RecorderHeader*>(mapping.data());
  auto* words = reinterpret_cast<sync::EventRing::Word*>(mapping.data() + kRecorderHeaderBytes);
  Source source{.memfd = std::move(memfd),
                .mapping = std::move(mapping),
                .file = file,
                .header = header,
                .ring = sync::EventRing(&header->next, words, checked.slots),
                .read = 0,
                .process = processes_.size()};
  source.read = source.ring.next();
  processes_.push_back({.pid = checked.pid,
                        .born = checked.born,
                        .name = checked.name.empty() ? command_of(checked.pid) : checked.name,
                        .threads = {},
                        .events = {},
                        .lost = 0});
  header->until_ns.store(lease_end(), std::memory_order_relaxed);
  sources_.push_back(std::move(source));
  return true;
}

void Capture::keep(CapturedProcess& process, const Event& event) {
  if (event.span == Span::kNone) return;
  if (process.threads.count(event.thread) == 0 && process.threads.size() < kMostThreads) {
    process.threads[event.thread] = thread_name(process.pid, event.thread);
  }
  process.events.push_back(event);
  ++kept_;
}

void Capture::drain(Source& source, bool last) {
  CapturedProcess& process = processes_[source.process];
  const std::uint64_t end = source.ring.next();
  const std::uint64_t slots = source.ring.slots();
  if (end < source.read) return;    // it has been written over
  if (end - source.read > slots) {  // what was overwritten needs no look
    process.lost += end - slots - source.read;
    source.read = end - slots;
  }
  for (sync::EventRing::Record record; source.read < end && kept_ < kMaxEvents; ++source.read) {
    switch (source.ring.read(source.read, record)) {
      case sync::EventRing::Outcome::kRead:
        keep(process, Event::unpack(record));
        break;
      case sync::EventRing::Outcome::kNotYet:
        // One that was left out never comes: it holds the others up for half a lap.
        if (!last && end - source.read < slots / 2) return;
        [[fallthrough]];
      case sync::EventRing::Outcome::kLost:
        ++process.lost;
        break;
    }
  }
}

// The best of a few: the thread may be interrupted between the two.
Capture::Moment Capture::Moment::now() noexcept {
  Moment best;
  for (std::uint64_t least = ~std::uint64_t{0}, tries = 0; tries < 5; ++tries) {
    const std::uint64_t before = trace::ticks();
    const std::uint64_t ns = os::now_ns();
    const std::uint64_t after = trace::ticks();
    if (after - before >= least) continue;
    least = after - before;
    best = {before + least / 2, ns};
  }
  return best;
}

void Capture::turn_ticks_into_ns() noexcept {
  const Moment end = Moment::now();
  const double ns_of_a_tick =
      static_cast<double>(end.ns - begin_.ns) /
      static_cast<double>(std::max<std::uint64_t>(end.ticks - begin_.ticks, 1));
  for (CapturedProcess& process : processes_) {
    for (Event& event : process.events) {
      if (!std::exchange(event.in_ticks, false)) continue;
      const auto since =
          static_cast<double>(static_cast<std::int64_t>(event.start_ns - begin_.ticks));
      event.start_ns = begin_.ns + static_cast<std::uint64_t>(whole(since * ns_of_a_tick));
      event.duration_ns =
          static_cast<std::uint64_t>(whole(static_cast<double>(event.duration_ns) * ns_of_a_tick));
    }
  }
}

bool Capture::poll() {
  const std::uint64_t until = lease_end();
  for (Source& source : sources_) {
    source.header->until_ns.store(until, std::memory_order_relaxed);
    drain(source, false);
  }
  return kept_ < kMaxEvents;
}

void Capture::stop() {
  for (Source& source : sources_) source.header->until_ns.store(0, std::memory_order_relaxed);
  std::this_thread::sleep_for(kLastWrites);
  for (Source& source : sources_) {
    drain(source, true);
    // Its memory goes back, but for the header's page.
    static_cast<void>(
        source.memfd.punch(kRecorderHeaderBytes, source.mapping.size() - kRecorderHeaderBytes));
  }
  sources_.clear();
  turn_ticks_into_ns();
}

}  // namespace shoal::trace
