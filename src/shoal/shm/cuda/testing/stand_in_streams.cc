// The stand-in driver's streams and events.
#include <cstring>

#include "shoal/shm/cuda/testing/stand_in_state.h"

using namespace shoal::shm::cuda::testing::stand_in;

extern "C" {

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
