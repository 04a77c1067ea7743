// Stands in for libcuda.so.1 on machines without a GPU: device memory is memory of memfds at
// addresses of this process, a stream is a queue that a test can hold, and what must be closed is
// counted. It is as strict as the driver: a context must be current, a process opens a handle once
// at a time and never its own, and what a dead process had not shared is gone.
//
// Beside the driver's functions: stand_in_count(name), stand_in_fail(function, result, nth),
// stand_in_hold(stream), stand_in_go(stream)
// and stand_in_capture(on).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shoal/shm/cuda/driver_abi.h"

using namespace shoal::shm::cuda::abi;

namespace {

constexpr std::size_t kGranularity = 2 << 20;

/// Seen by all processes that have an event open.
struct EventPage {
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint64_t> done;
};

struct Allocation {  // of cuMemCreate, and what it was exported to
  int fd;
  std::size_t bytes;
  int device;
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

}  // namespace

namespace shoal::shm::cuda::abi {
struct ContextImpl {
  int device;
};
struct StreamImpl {
  bool held = false;
  std::deque<Work> queue;
};
struct EventImpl {
  int fd;
  EventPage* page;
  bool opened;
  bool shared;
  long serial;
};
}  // namespace shoal::shm::cuda::abi

namespace {

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

State& state() {
  static State* const made = new State;
  return *made;
}
thread_local std::vector<Context> current;
thread_local int capture_mode = 0;  // global, as for every thread at first

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

std::string name_of(long serial) {
  return "cuda stand-in " + std::to_string(::getpid()) + "-" + std::to_string(serial);
}

int new_memfd(std::size_t bytes, long serial) {
  const int fd = ::memfd_create(name_of(serial).c_str(), MFD_CLOEXEC);
  if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return -1;
  return fd;
}

void* map(int fd, std::size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : at;
}

/// The descriptor of another process, as long as it has it.
int reopen(const SharedHandle& handle) {
  const std::string link =
      "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
  char target[128] = {};
  if (::readlink(link.c_str(), target, sizeof target - 1) < 0) return -1;
  const std::string wanted = "/memfd:cuda stand-in " + std::to_string(handle.pid) + "-" +
                             std::to_string(handle.serial) + " ";
  if (std::string(target).rfind(wanted, 0) != 0) return -1;
  return ::open(link.c_str(), O_RDWR | O_CLOEXEC);
}

StreamImpl& stream_of(Stream stream) { return stream == nullptr ? state().legacy : *stream; }

void advance() {
  const auto run = [](StreamImpl& stream) {
    bool moved = false;
    while (!stream.held && !stream.queue.empty()) {
      const Work work = stream.queue.front();
      if (work.waits && work.page->done.load() < work.target) break;
      if (!work.waits) work.page->done.store(work.target);
      stream.queue.pop_front();
      moved = true;
    }
    return moved;
  };
  for (bool moved = true; moved;) {
    moved = run(state().legacy);
    for (StreamImpl* stream : state().streams) moved = run(*stream) || moved;
  }
}

const std::pair<const Address, Range>* range_around(Address address) {
  auto at = state().ranges.upper_bound(address);
  if (at == state().ranges.begin()) return nullptr;
  --at;
  return address - at->first < at->second.bytes ? &*at : nullptr;
}

Allocation* allocation_of(AllocationHandle handle) { return reinterpret_cast<Allocation*>(handle); }

bool is_device(int device) {
  return device >= 0 && device < static_cast<int>(state().devices.size());
}

}  // namespace

extern "C" {

// --- for tests --------------------------------------------------------------------------------

/// Of contexts, allocations, mappings, reservations, legacy, opened_memory, events, opened_events
/// (as many as there are now); exports, imports, host_waits, stream_waits, copies,
/// broken_graphs (ever).
long stand_in_count(const char* name) {
  const std::lock_guard lock(state().mutex);
  return state().counts[name];
}

/// The nth call of this function from now on returns `result` and does nothing.
void stand_in_fail(const char* function, int result, int nth) {
  const std::lock_guard lock(state().mutex);
  state().failures[function] = {result, nth};
}

/// What is queued on the stream from now on is not done before stand_in_go().
void stand_in_hold(Stream stream) {
  const std::lock_guard lock(state().mutex);
  stream_of(stream).held = true;
}

void stand_in_go(Stream stream) {
  const std::lock_guard lock(state().mutex);
  stream_of(stream).held = false;
  advance();
}

/// Whether all streams record graphs.
void stand_in_capture(int on) {
  const std::lock_guard lock(state().mutex);
  state().counts["capturing"] = on;
}

// --- the driver -------------------------------------------------------------------------------

Result cuInit(unsigned) {
  const std::lock_guard lock(state().mutex);
  State& now = state();
  if (now.initialised == ::getpid()) return kSuccess;
  if (now.initialised != 0) return kNotInitialized;  // forked
  const char* count = std::getenv("SHOAL_STAND_IN_DEVICES");
  const int there = count == nullptr ? 2 : std::atoi(count);
  for (int i = 0; i < there; ++i) now.devices.push_back(i);
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    now.devices.clear();
    for (const char* at = visible; *at != '\0'; ++at) {
      if (*at >= '0' && *at < '0' + there) now.devices.push_back(*at - '0');
    }
  }
  if (now.devices.empty()) return kNoDevice;
  for (int i = 0; i < static_cast<int>(now.devices.size()); ++i) now.contexts.push_back({i});
  now.retained.resize(now.devices.size());
  now.initialised = ::getpid();
  return kSuccess;
}

Result cuGetErrorName(Result result, const char** name) {
  switch (result) {
    case kInvalidValue:
      *name = "CUDA_ERROR_INVALID_VALUE";
      break;
    case kOutOfMemory:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      break;
    case kNotInitialized:
      *name = "CUDA_ERROR_NOT_INITIALIZED";
      break;
    case kNoDevice:
      *name = "CUDA_ERROR_NO_DEVICE";
      break;
    case kInvalidContext:
      *name = "CUDA_ERROR_INVALID_CONTEXT";
      break;
    default:
      *name = "CUDA_ERROR_UNKNOWN";
  }
  return kSuccess;
}

Result cuGetErrorString(Result result, const char** text) {
  *text = result == kOutOfMemory ? "out of memory" : "as the stand-in says";
  return kSuccess;
}

Result cuDeviceGetCount(int* count) {
  CALL();
  *count = static_cast<int>(state().devices.size());
  return kSuccess;
}

Result cuDeviceGet(DeviceOrdinal* device, int index) {
  CALL();
  if (!is_device(index)) return kInvalidValue;
  *device = index;
  return kSuccess;
}

Result cuDeviceGetUuid_v2(Uuid* uuid, DeviceOrdinal device) {
  CALL();
  uuid->fill(0x5a);
  uuid->back() = static_cast<std::uint8_t>(state().devices[static_cast<std::size_t>(device)]);
  return kSuccess;
}

Result cuDeviceGetAttribute(int* value, int, DeviceOrdinal) {
  CALL();
  *value = std::getenv("SHOAL_STAND_IN_NO_DESCRIPTORS") == nullptr ? 1 : 0;
  return kSuccess;
}

Result cuDeviceCanAccessPeer(int* can, DeviceOrdinal, DeviceOrdinal) {
  CALL();
  *can = 1;
  return kSuccess;
}

Result cuDevicePrimaryCtxRetain(Context* context, DeviceOrdinal device) {
  CALL();
  const auto at = static_cast<std::size_t>(device);
  if (state().retained[at]++ == 0) ++state().counts["contexts"];
  *context = &state().contexts[at];
  return kSuccess;
}

Result cuDevicePrimaryCtxRelease_v2(DeviceOrdinal device) {
  CALL();
  if (--state().retained[static_cast<std::size_t>(device)] == 0) --state().counts["contexts"];
  return kSuccess;
}

Result cuCtxGetCurrent(Context* context) {
  CALL();
  *context = current.empty() ? nullptr : current.back();
  return kSuccess;
}

Result cuCtxPushCurrent_v2(Context context) {
  CALL();
  current.push_back(context);
  return kSuccess;
}

Result cuCtxPopCurrent_v2(Context* context) {
  CALL_IN_CONTEXT();
  *context = current.back();
  current.pop_back();
  return kSuccess;
}

Result cuPointerGetAttribute(void* value, int attribute, Address address) {
  CALL();
  const auto* range = range_around(address);
  if (range == nullptr) return kInvalidValue;
  *static_cast<int*>(value) = attribute == 9 ? range->second.device : range->second.fd >= 0;
  return attribute == 9 || attribute == 10 ? kSuccess : kInvalidValue;
}

Result cuMemGetAddressRange_v2(Address* base, std::size_t* bytes, Address address) {
  CALL_IN_CONTEXT();
  const auto* range = range_around(address);
  if (range == nullptr) return kInvalidValue;
  *base = range->first;
  *bytes = range->second.bytes;
  return kSuccess;
}

Result cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, Stream) {
  CALL_IN_CONTEXT();
  ++state().counts["copies"];
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return kSuccess;
}

Result cuMemAlloc_v2(Address* address, std::size_t bytes) {
  CALL_IN_CONTEXT();
  const long serial = ++state().serials;
  const int fd = new_memfd(bytes, serial);
  void* at = fd < 0 ? nullptr : map(fd, bytes);
  if (at == nullptr) return kOutOfMemory;
  *address = reinterpret_cast<Address>(at);
  state().ranges[*address] = {bytes, current.back()->device, fd, serial};
  ++state().counts["legacy"];
  return kSuccess;
}

Result cuMemFree_v2(Address address) {
  CALL();
  const auto at = state().ranges.find(address);
  if (at == state().ranges.end() || at->second.fd < 0) return kInvalidValue;
  ::munmap(reinterpret_cast<void*>(address), at->second.bytes);
  ::close(at->second.fd);
  state().ranges.erase(at);
  --state().counts["legacy"];
  return kSuccess;
}

Result cuMemGetAllocationGranularity(std::size_t* bytes, const AllocationProperties*, int) {
  CALL();
  *bytes = kGranularity;
  return kSuccess;
}

Result cuMemCreate(AllocationHandle* handle, std::size_t bytes, const AllocationProperties* wanted,
                   unsigned long long) {
  CALL();
  if (bytes == 0 || bytes % kGranularity != 0 || !is_device(wanted->location.id)) {
    return kInvalidValue;
  }
  const int fd = new_memfd(bytes, ++state().serials);
  if (fd < 0) return kOutOfMemory;
  *handle = reinterpret_cast<AllocationHandle>(new Allocation{fd, bytes, wanted->location.id});
  ++state().counts["allocations"];
  return kSuccess;
}

Result cuMemRelease(AllocationHandle handle) {
  CALL();
  ::close(allocation_of(handle)->fd);
  delete allocation_of(handle);
  --state().counts["allocations"];
  return kSuccess;
}

Result cuMemExportToShareableHandle(void* out, AllocationHandle handle, int, unsigned long long) {
  CALL();
  const int fd = ::dup(allocation_of(handle)->fd);  // inheritable, as the driver's are
  if (fd < 0) return kOutOfMemory;
  *static_cast<int*>(out) = fd;
  ++state().counts["exports"];
  return kSuccess;
}

Result cuMemImportFromShareableHandle(AllocationHandle* handle, void* descriptor, int) {
  CALL();
  const int fd =
      ::fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(descriptor)), F_DUPFD_CLOEXEC, 0);
  struct stat info{};
  if (fd < 0 || ::fstat(fd, &info) != 0) return kInvalidValue;
  *handle = reinterpret_cast<AllocationHandle>(
      new Allocation{fd, static_cast<std::size_t>(info.st_size), 0});
  ++state().counts["allocations"];
  ++state().counts["imports"];
  return kSuccess;
}

Result cuMemAddressReserve(Address* address, std::size_t bytes, std::size_t, Address,
                           unsigned long long) {
  CALL();
  void* at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return kOutOfMemory;
  *address = reinterpret_cast<Address>(at);
  ++state().counts["reservations"];
  return kSuccess;
}

Result cuMemAddressFree(Address address, std::size_t bytes) {
  CALL();
  ::munmap(reinterpret_cast<void*>(address), bytes);
  --state().counts["reservations"];
  return kSuccess;
}

Result cuMemMap(Address address, std::size_t bytes, std::size_t, AllocationHandle handle,
                unsigned long long) {
  CALL();
  const Allocation& allocation = *allocation_of(handle);
  if (bytes != allocation.bytes || ::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
                                          MAP_SHARED | MAP_FIXED, allocation.fd, 0) == MAP_FAILED) {
    return kInvalidValue;
  }
  state().ranges[address] = {bytes, allocation.device, -1, 0};
  ++state().counts["mappings"];
  return kSuccess;
}

Result cuMemUnmap(Address address, std::size_t bytes) {
  CALL_BESIDE_GRAPHS();
  if (state().ranges.erase(address) == 0) return kInvalidValue;
  ::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  --state().counts["mappings"];
  return kSuccess;
}

Result cuMemSetAccess(Address address, std::size_t bytes, const AccessDescription* access,
                      std::size_t count) {
  CALL();
  const auto at = state().ranges.find(address);
  if (count == 0 || at == state().ranges.end()) return kInvalidValue;
  at->second.device = access[0].location.id;
  ::mprotect(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE);
  return kSuccess;
}

Result cuIpcGetMemHandle(IpcHandle* out, Address address) {
  CALL_IN_CONTEXT();
  const auto at = state().ranges.find(address);
  if (at == state().ranges.end() || at->second.fd < 0) return kInvalidValue;
  const Range& range = at->second;
  const SharedHandle handle{kMemoryMagic, range.serial, ::getpid(),
                            range.fd,     range.device, range.bytes};
  out->fill(std::byte{0});
  std::memcpy(out->data(), &handle, sizeof handle);
  return kSuccess;
}

Result cuIpcOpenMemHandle_v2(Address* address, IpcHandle in, unsigned) {
  CALL_IN_CONTEXT();
  SharedHandle handle;
  std::memcpy(&handle, in.data(), sizeof handle);
  if (handle.magic != kMemoryMagic) return kInvalidValue;
  if (handle.pid == ::getpid()) return kInvalidContext;
  const std::string key(reinterpret_cast<const char*>(in.data()), in.size());
  for (const auto& [at, other] : state().opened) {
    if (other.second == key) return kInvalidHandle;
  }
  const int fd = reopen(handle);
  if (fd < 0) return kInvalidValue;
  void* at = map(fd, handle.bytes);
  ::close(fd);
  if (at == nullptr) return kOutOfMemory;
  *address = reinterpret_cast<Address>(at);
  state().opened[*address] = {handle.bytes, key};
  ++state().counts["opened_memory"];
  return kSuccess;
}

Result cuIpcCloseMemHandle(Address address) {
  CALL_IN_CONTEXT();
  const auto at = state().opened.find(address);
  if (at == state().opened.end()) return kInvalidValue;
  ::munmap(reinterpret_cast<void*>(address), at->second.first);
  state().opened.erase(at);
  --state().counts["opened_memory"];
  return kSuccess;
}

Result cuStreamCreate(Stream* stream, unsigned) {
  CALL_IN_CONTEXT();
  *stream = new StreamImpl;
  state().streams.insert(*stream);
  return kSuccess;
}

Result cuEventCreate(EventHandle* event, unsigned flags) {
  CALL_IN_CONTEXT();
  const bool shared = (flags & kEventInterprocess) != 0;
  if (shared && (flags & kEventDisableTiming) == 0) return kInvalidValue;
  const long serial = ++state().serials;
  const int fd = new_memfd(sizeof(EventPage), serial);
  void* at = fd < 0 ? nullptr : map(fd, sizeof(EventPage));
  if (at == nullptr) return kOutOfMemory;
  *event = new EventImpl{fd, static_cast<EventPage*>(at), false, shared, serial};
  ++state().counts["events"];
  return kSuccess;
}

/// Pages stay mapped: work on a stream may look at them.
Result cuEventDestroy_v2(EventHandle event) {
  CALL_IN_CONTEXT();
  ::close(event->fd);
  --state().counts[event->opened ? "opened_events" : "events"];
  delete event;
  return kSuccess;
}

Result cuEventRecord(EventHandle event, Stream stream) {
  CALL_IN_CONTEXT();
  const std::uint64_t target = event->page->recorded.fetch_add(1) + 1;
  stream_of(stream).queue.push_back({event->page, target, false});
  advance();
  return kSuccess;
}

Result cuEventQuery(EventHandle event) {
  CALL_BESIDE_GRAPHS();
  if (current.empty()) return kInvalidContext;
  advance();
  return event->page->done.load() >= event->page->recorded.load() ? kSuccess : kNotReady;
}

Result cuEventSynchronize(EventHandle event) {
  {
    CALL_IN_CONTEXT();
    ++state().counts["host_waits"];
  }
  for (;;) {
    {
      const std::lock_guard lock(state().mutex);
      advance();
    }
    if (event->page->done.load() >= event->page->recorded.load()) return kSuccess;
    ::usleep(200);
  }
}

Result cuStreamWaitEvent(Stream stream, EventHandle event, unsigned) {
  CALL_IN_CONTEXT();
  ++state().counts["stream_waits"];
  stream_of(stream).queue.push_back({event->page, event->page->recorded.load(), true});
  advance();
  return kSuccess;
}

Result cuStreamIsCapturing(Stream, int* status) {
  CALL_IN_CONTEXT();
  *status = static_cast<int>(state().counts["capturing"]);
  return kSuccess;
}

Result cuThreadExchangeStreamCaptureMode(int* mode) {
  CALL();
  std::swap(*mode, capture_mode);
  return kSuccess;
}

Result cuIpcGetEventHandle(IpcHandle* out, EventHandle event) {
  CALL();
  if (!event->shared) return kInvalidValue;
  const SharedHandle handle{kEventMagic, event->serial,    ::getpid(), event->fd,
                            0,           sizeof(EventPage)};
  out->fill(std::byte{0});
  std::memcpy(out->data(), &handle, sizeof handle);
  return kSuccess;
}

Result cuIpcOpenEventHandle(EventHandle* event, IpcHandle in) {
  CALL_IN_CONTEXT();
  SharedHandle handle;
  std::memcpy(&handle, in.data(), sizeof handle);
  if (handle.magic != kEventMagic) return kInvalidValue;
  if (handle.pid == ::getpid()) return kInvalidContext;
  const int fd = reopen(handle);
  void* at = fd < 0 ? nullptr : map(fd, sizeof(EventPage));
  if (at == nullptr) return kInvalidValue;
  *event = new EventImpl{fd, static_cast<EventPage*>(at), true, false, handle.serial};
  ++state().counts["opened_events"];
  return kSuccess;
}

}  // extern "C"
