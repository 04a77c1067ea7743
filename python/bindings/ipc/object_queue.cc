#include "ipc/object_queue.h"

#include <utility>
#include <vector>

#include "bytes.h"
#include "objects/plain_codec.h"
#include "shoal/ipc/heap/block.h"
#include "waiting.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

using ipc::Message;
using ipc::Offset;
using ipc::QueueOutcome;
using ipc::QueueWait;

/// From here on, copying takes longer than letting go of the GIL.
constexpr std::size_t kLongCopy = 64 * 1024;
constexpr os::Deadline kNow = os::Deadline::min();

/// A give_up of QueueWait that throws what a signal handler raised.
bool give_up_by_signal() {
  check_signals();
  return false;
}

/// `attempt(wait)` without the GIL; raises what a signal handler raised.
template <class Attempt>
QueueOutcome without_gil(os::Deadline deadline, const ipc::Token* peer, Attempt attempt) {
  const nb::gil_scoped_release unlocked;
  return attempt(QueueWait{deadline, peer, give_up_by_signal});
}

/// First with the GIL, without waiting: it is the shortest way, and mostly enough.
template <class Attempt>
QueueOutcome at_once_or_wait(os::Deadline deadline, const ipc::Token* peer, Attempt attempt) {
  const QueueOutcome outcome = attempt(QueueWait{kNow, peer});
  if (outcome != QueueOutcome::kTimedOut || deadline == kNow) return outcome;
  return without_gil(deadline, peer, attempt);
}

nb::object pickle_loads(Message& message) {
  static PyObject* loads = nullptr;  // for ever; under the GIL, and found twice does no harm
  if (loads == nullptr) {
    loads = nb::object(nb::module_::import_("pickle").attr("loads")).release().ptr();
  }
  const nb::handle load(loads);
  if (!message.block()) {
    const auto bytes = message.bytes();
    return load(to_bytes(bytes));
  }
  // The message lives as long as anything that was unpickled in place.
  return load(nb::cast(std::move(message.block())));
}

}  // namespace

os::Deadline queue_deadline(bool block, std::optional<double> timeout) {
  return !block || (timeout && *timeout <= 0) ? kNow : deadline(timeout);
}

QueueOutcome ObjectQueue::put_message(MessageForm form, std::span<const std::byte> bytes,
                                      std::span<const Offset> blocks, os::Deadline deadline,
                                      const ipc::Token* peer) {
  const auto attempt = [&](const QueueWait& how) {
    return queue_.put(static_cast<std::uint16_t>(form), bytes, blocks, how);
  };
  if (bytes.size() >= kLongCopy) return without_gil(deadline, peer, attempt);
  return at_once_or_wait(deadline, peer, attempt);
}

QueueOutcome ObjectQueue::put(nb::handle object, os::Deadline deadline, const ipc::Token* peer) {
  if (PyBytes_CheckExact(object.ptr())) {
    const auto kept = nb::borrow<nb::bytes>(object);
    return put_message(MessageForm::kBytes, view(kept), {}, deadline, peer);
  }
  std::vector<Offset> blocks;
  PlainCodec codec;
  if (codec.encode(object)) {
    for (const ipc::Block& block : codec.blocks()) blocks.push_back(block.offset());
    return put_message(MessageForm::kPlain, codec.bytes(), blocks, deadline, peer);
  }
  const nb::object pickled =
      nb::module_::import_("shoal.multiprocessing.reduction").attr("pickled")(object);
  const auto data = nb::cast<nb::bytes>(pickled[0]);
  const auto held = nb::cast<nb::list>(pickled[1]);
  for (const nb::handle block : held) blocks.push_back(nb::cast<ipc::Block&>(block).offset());
  return put_message(MessageForm::kPickle, view(data), blocks, deadline, peer);
}

QueueOutcome ObjectQueue::put_raw(std::span<const std::byte> bytes, os::Deadline deadline,
                                  const ipc::Token* peer) {
  return put_message(MessageForm::kRaw, bytes, {}, deadline, peer);
}

QueueOutcome ObjectQueue::get(Message& message, os::Deadline deadline, const ipc::Token* peer) {
  return at_once_or_wait(deadline, peer,
                         [&](const QueueWait& how) { return queue_.get(message, how); });
}

QueueOutcome ObjectQueue::poll(os::Deadline deadline, const ipc::Token* peer) {
  return at_once_or_wait(deadline, peer, [&](const QueueWait& how) { return queue_.poll(how); });
}

QueueOutcome ObjectQueue::join() {
  return at_once_or_wait(os::kNoDeadline, nullptr,
                         [&](const QueueWait& how) { return queue_.join(how); });
}

nb::object ObjectQueue::object_of(Message& message) {
  const auto bytes = message.bytes();
  switch (static_cast<MessageForm>(message.tag())) {
    case MessageForm::kPlain:
      return PlainCodec::decode(bytes);
    case MessageForm::kBytes:
      return to_bytes(bytes);
    case MessageForm::kRaw:
    case MessageForm::kPickle:
      break;
  }
  return pickle_loads(message);
}

nb::bytes ObjectQueue::bytes_of(Message& message) {
  const auto bytes = message.bytes();
  const auto form = static_cast<MessageForm>(message.tag());
  if (form == MessageForm::kPlain || form == MessageForm::kBytes) {
    return nb::cast<nb::bytes>(nb::module_::import_("pickle").attr("dumps")(object_of(message), 5));
  }
  return to_bytes(bytes);
}

}  // namespace shoal::python
