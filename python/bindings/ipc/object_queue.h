// Python objects through a queue of messages.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "shoal/ipc/queue/queue.h"

namespace shoal::python {

/// How the bytes of a message stand for an object.
enum class MessageForm : std::uint16_t {
  kRaw,     // bytes that were sent as such (send_bytes)
  kPlain,   // by PlainCodec
  kBytes,   // a bytes object, as it is
  kPickle,  // by shoal.multiprocessing.reduction
};

/// Threads: with the GIL, which is given back while somebody waits; Ctrl-C ends a wait.
class ObjectQueue {
 public:
  explicit ObjectQueue(ipc::Queue queue) : queue_(std::move(queue)) {}

  ipc::Queue& queue() noexcept { return queue_; }

  /// Pickles first, and raises what goes wrong there; no kInterrupted: an exception is raised.
  ipc::QueueOutcome put(nanobind::handle object, os::Deadline deadline,
                        const ipc::Token* peer = nullptr);
  ipc::QueueOutcome put_raw(std::span<const std::byte> bytes, os::Deadline deadline,
                            const ipc::Token* peer = nullptr);

  /// A message, still as bytes.
  ipc::QueueOutcome get(ipc::Message& message, os::Deadline deadline,
                        const ipc::Token* peer = nullptr);
  ipc::QueueOutcome poll(os::Deadline deadline, const ipc::Token* peer = nullptr);
  ipc::QueueOutcome join();

  /// The object of a message; of raw bytes, the object that they are the pickle of.
  static nanobind::object object_of(ipc::Message& message);
  /// The message as one that reads bytes sees it: what was sent as such, or a pickle.
  static nanobind::bytes bytes_of(ipc::Message& message);

 private:
  ipc::QueueOutcome put_message(MessageForm form, std::span<const std::byte> bytes,
                                std::span<const ipc::Offset> blocks, os::Deadline deadline,
                                const ipc::Token* peer);
  ipc::Queue queue_;
};

/// `block` and `timeout` in seconds, as queue.Queue takes them.
os::Deadline queue_deadline(bool block, std::optional<double> timeout);

}  // namespace shoal::python
