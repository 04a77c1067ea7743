// What the stand-in driver keeps, and what its functions have in common (stand_in_driver.cc).
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shoal/shm/cuda/driver_abi.h"

namespace shoal::shm::cuda::testing::stand_in {

using namespace abi;

/// Seen by all processes that have an event open.
struct EventPage {
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint64_t> done;
};

struct Range {
  std::size_t bytes;
  int device;
  int fd;  // of cuMemAlloc; -1 for mapped ones
  long serial;
};

struct Work {
  EventPage* page;
  std::uint64_t target;
  bool waits;  // for the page; else it marks the page
};

}  // namespace shoal::shm::cuda::testing::stand_in

namespace shoal::shm::cuda::abi {
struct ContextImpl {
  int device;
};
struct StreamImpl {
  bool held = false;
  std::deque<testing::stand_in::Work> queue;
};
struct EventImpl {
  int fd;
  testing::stand_in::EventPage* page;
  bool opened;
  bool shared;
  long serial;
};
}  // namespace shoal::shm::cuda::abi

namespace shoal::shm::cuda::testing::stand_in {

struct SharedHandle {  // what an IpcHandle holds
  std::uint64_t magic;
  long serial;
  pid_t pid;
  int fd;
  int device;
  std::size_t bytes;
};
static_assert(sizeof(SharedHandle) <= sizeof(IpcHandle));
constexpr std::uint64_t kMemoryMagic = 0x4d454d;
constexpr std::uint64_t kEventMagic = 0x455654;

struct State {
  std::mutex mutex;
  pid_t initialised = 0;  // by this process
  std::vector<int> devices;
  std::vector<ContextImpl> contexts;
  std::vector<int> retained;
  std::map<std::string, long> counts;
  std::map<std::string, std::pair<int, int>> failures;  // result, passes until then
  std::map<Address, Range> ranges;
  std::map<Address, std::pair<std::size_t, std::string>> opened;  // bytes, handle
  StreamImpl legacy;
  std::set<StreamImpl*> streams;
  long serials = 0;
};

State& state();
inline thread_local std::vector<Context> current;
inline thread_local int capture_mode = 0;  // global, as for every thread at first

/// One call of the driver: the lock, and the failures that a test asked for.
struct Call {
  explicit Call(const char* function) : lock(state().mutex) {
    const auto found = state().failures.find(function);
    if (found != state().failures.end() && --found->second.second <= 0) {
      result = found->second.first;
      state().failures.erase(found);
    } else if (state().initialised != ::getpid()) {
      result = kNotInitialized;
    }
  }
  explicit operator bool() const { return result != kSuccess; }
  std::lock_guard<std::mutex> lock;
  Result result = kSuccess;
};

#define CALL()               \
  const Call call(__func__); \
  if (call) return call.result
#define CALL_IN_CONTEXT() \
  CALL();                 \
  if (current.empty()) return kInvalidContext
/// Of functions that break a graph that is being recorded, unless the thread has said it knows.
#define CALL_BESIDE_GRAPHS()                                   \
  CALL();                                                      \
  if (state().counts["capturing"] != 0 && capture_mode != 2) { \
    ++state().counts["broken_graphs"];                         \
    return kCaptureInvalidated;                                \
  }

/// Named so that reopen() knows it; -1 on failure.
int new_memfd(std::size_t bytes, long serial);

/// nullptr on failure.
void* map(int fd, std::size_t bytes);

/// The descriptor of another process, as long as it has it.
int reopen(const SharedHandle& handle);

StreamImpl& stream_of(Stream stream);

/// Does what the streams that are not held can do.
void advance();

}  // namespace shoal::shm::cuda::testing::stand_in
