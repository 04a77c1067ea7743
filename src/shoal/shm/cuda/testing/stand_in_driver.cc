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

#include <cstdlib>
#include <cstring>

#include "shoal/shm/cuda/testing/stand_in_state.h"

using namespace shoal::shm::cuda::testing::stand_in;

namespace {

constexpr std::size_t kGranularity = 2 << 20;

struct Allocation {  // of cuMemCreate, and what it was exported to
  int fd;
  std::size_t bytes;
  int device;
};

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

}  // extern "C"
