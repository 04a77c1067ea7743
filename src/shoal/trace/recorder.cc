#include "shoal/trace/recorder.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/memory/mapping.h"
#include "shoal/os/memory/memfd.h"
#include "shoal/shm/board.h"
#include "shoal/trace/event.h"
#include "shoal/trace/ticks.h"

namespace shoal::trace {

std::atomic<Recorder*> process_recorder = nullptr;

namespace {

constexpr char kMagic[8] = {'S', 'H', 'O', 'A', 'L', 'T', 'R', 'C'};

/// Records of ticks between two looks at the clock, for whether anybody still listens.
constexpr std::uint64_t kRecordsPerLook = 256;

thread_local std::uint32_t own_thread = 0;

/// Nobody has renewed `until`: its listener was killed.
void turn_off(RecorderHeader& header, std::uint64_t until) noexcept {
  // relaxed: a hint; one who begins to listen meanwhile writes it again
  header.until_ns.compare_exchange_strong(until, 0, std::memory_order_relaxed);
}

void push(Recorder& recorder, Event event) noexcept {
  if (own_thread == 0) own_thread = static_cast<std::uint32_t>(::gettid());
  event.thread = own_thread;
  recorder.ring.push(event.pack());
}

#if defined(__x86_64__)
/// "Invariant TSC": the same rate in all states of the processor.
bool counter_is_steady() noexcept {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) != 0 && (edx & 1u << 8) != 0;
}
#endif

struct Opened {
  os::Memfd memfd;
  os::Mapping mapping;
  Recorder recorder;
};

/// Opening is rare, and the child of a fork may find it locked by a thread that it does not have.
struct Opening {
  std::mutex mutex;
  Opened* opened = nullptr;

  Opening() {
    ::pthread_atfork([] { opening().mutex.lock(); }, [] { opening().mutex.unlock(); },
                     [] {
                       // The parent's stays mapped, and nobody writes to it.
                       process_recorder.store(nullptr, std::memory_order_relaxed);
                       own_thread = 0;
                       if (opening().opened != nullptr) opening().opened->memfd = os::Memfd();
                       opening().opened = nullptr;
                       opening().mutex.unlock();
                     });
  }

  static Opening& opening() {
    static auto* instance = new Opening;  // threads may record until the very end
    return *instance;
  }
};

Opened* make() {
  constexpr std::size_t kBytes = kRecorderHeaderBytes + kRecorderSlots *
                                                            sync::EventRing::kSlotWords *
                                                            sizeof(sync::EventRing::Word);
  os::Memfd memfd = os::Memfd::create_sparse(kRecorderName, kBytes);
  if (memfd.populate(0, kRecorderHeaderBytes) != 0) return nullptr;
  os::Mapping mapping = os::Mapping::map(memfd, kRecorderName);
  auto* header = new (mapping.data()) RecorderHeader{};
  header->version = kRecorderVersion;
  header->pid = ::getpid();
  header->born = shm::start_of_process(header->pid);
  header->slots = kRecorderSlots;
  std::memcpy(header->magic, kMagic, sizeof kMagic);
  auto* words = reinterpret_cast<sync::EventRing::Word*>(mapping.data() + kRecorderHeaderBytes);
  return new Opened{std::move(memfd),
                    std::move(mapping),
                    {header, sync::EventRing(&header->next, words, kRecorderSlots)}};
}

}  // namespace

void open() noexcept { open({}); }

void open(std::string_view name) noexcept {
  Opening& opening = Opening::opening();
  const std::lock_guard lock(opening.mutex);
  if (opening.opened == nullptr) {
    try {
      opening.opened = make();
    } catch (const Error&) {
    }
    if (opening.opened == nullptr) return;
    process_recorder.store(&opening.opened->recorder, std::memory_order_release);  // [recorder]
  }
  if (name.empty()) return;
  auto& text = opening.opened->recorder.header->name;
  std::memcpy(text, name.data(), std::min(name.size(), sizeof text - 1));
}

void record(Span span, std::uint64_t start_ns, std::uint64_t end_ns, std::uint64_t arg) noexcept {
  Recorder* recorder = process_recorder.load(std::memory_order_acquire);  // [recorder]
  if (recorder == nullptr) return;
  // relaxed: a hint
  const std::uint64_t until = recorder->header->until_ns.load(std::memory_order_relaxed);
  if (until < end_ns) {
    if (until != 0) turn_off(*recorder->header, until);
    return;
  }
  push(*recorder, {.span = span,
                   .arg = static_cast<std::uint32_t>(arg),
                   .start_ns = start_ns,
                   .duration_ns = end_ns - std::min(end_ns, start_ns)});
}

std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  static const bool steady = counter_is_steady();
  return steady ? __rdtsc() : os::now_ns();
#elif defined(__aarch64__)
  std::uint64_t now;
  asm volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#else
  return os::now_ns();
#endif
}

void record_ticks(Span span, std::uint64_t start, std::uint64_t end, std::uint64_t arg) noexcept {
  Recorder* recorder = process_recorder.load(std::memory_order_acquire);  // [recorder]
  if (recorder == nullptr) return;
  if (recorder->ring.next() % kRecordsPerLook == 0) {
    // relaxed: a hint
    const std::uint64_t until = recorder->header->until_ns.load(std::memory_order_relaxed);
    if (until < os::now_ns()) {
      if (until != 0) turn_off(*recorder->header, until);
      return;
    }
  }
  push(*recorder, {.span = span,
                   .arg = static_cast<std::uint32_t>(arg),
                   .start_ns = start,
                   .duration_ns = end - std::min(end, start),
                   .in_ticks = true});
}

}  // namespace shoal::trace
