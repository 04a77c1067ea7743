// shoal._core.ipc: queues and connections, the bases of those of shoal.multiprocessing.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include "bindings.h"
#include "ipc/object_queue.h"
#include "shoal/ipc/heap/block.h"
#include "shoal/ipc/queue/queue.h"
#include "shoal/os/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using ipc::Block;
using ipc::Message;
using ipc::QueueOutcome;
using ipc::Token;

[[noreturn]] void raise(PyObject* type, const char* text = nullptr) {
  if (text == nullptr) {
    PyErr_SetNone(type);
  } else {
    PyErr_SetString(type, text);
  }
  throw nb::python_error();
}

[[noreturn]] void raise_of_queue(const char* name) {
  raise(nb::module_::import_("queue").attr(name).ptr());
}

/// Of arguments as Python's own queues take them: `block` is anything, `timeout` any real number.
os::Deadline deadline_of(nb::handle block, nb::handle timeout) {
  const int waits = PyObject_IsTrue(block.ptr());
  if (waits < 0) throw nb::python_error();
  if (waits == 0 || timeout.is_none()) return queue_deadline(waits != 0, {});
  const double seconds = PyFloat_AsDouble(timeout.ptr());
  if (seconds == -1.0 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return queue_deadline(true, seconds);
}

void put(ObjectQueue& self, nb::handle object, nb::handle block, nb::handle timeout) {
  if (self.put(object, deadline_of(block, timeout)) != QueueOutcome::kDone) {
    raise_of_queue("Full");
  }
}

nb::object get(ObjectQueue& self, nb::handle block, nb::handle timeout) {
  Message message;
  if (self.get(message, deadline_of(block, timeout)) != QueueOutcome::kDone) {
    raise_of_queue("Empty");
  }
  return ObjectQueue::object_of(message);
}

nb::bytes get_bytes(ObjectQueue& self) {
  Message message;
  static_cast<void>(self.get(message, os::kNoDeadline));
  return ObjectQueue::bytes_of(message);
}

/// In one call of Python's: no signal's handler comes between a message and its place in `into`.
void take_all_bytes(ObjectQueue& self, nb::handle into) {
  const nb::object append = into.attr("append");
  Message message;
  while (self.get(message, queue_deadline(false, {})) == QueueOutcome::kDone) {
    append(ObjectQueue::bytes_of(message));
  }
}

class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_;
};

void bind_queue(nb::module_& module) {
  nb::class_<ObjectQueue>(module, "Queue", "Objects from any process of the family to any other.")
      .def(
          "__init__",
          [](ObjectQueue* self, std::uint32_t max_items, std::uint64_t max_bytes) {
            new (self)
                ObjectQueue(ipc::Queue::create({.max_items = max_items, .max_bytes = max_bytes}));
          },
          nb::kw_only(), "max_items"_a = 0, "max_bytes"_a = 0,
          "A new one. put() waits while it holds max_items items, or messages of max_bytes bytes "
          "without the tensors and arrays in them (0: no limit).")
      .def(
          "__init__",
          [](ObjectQueue* self, const Block& block) { new (self) ObjectQueue(ipc::Queue(block)); },
          "block"_a, "That of another process. Raises shoal.Error for a block that is none.")
      .def("put", put, "obj"_a.none(), "block"_a = true, "timeout"_a = nb::none(),
           "Puts an object; what cannot be pickled raises here. Raises queue.Full after `timeout` "
           "seconds (None: never), or at once without `block`.")
      .def("get", get, "block"_a = true, "timeout"_a = nb::none(),
           "Takes the oldest object. Raises queue.Empty after `timeout` seconds (None: never), or "
           "at "
           "once without `block`; ValueError after close().")
      .def(
          "put_bytes",
          [](ObjectQueue& self, nb::handle data) {
            const Buffer buffer(data);
            static_cast<void>(self.put_raw(buffer.bytes(), os::kNoDeadline));
          },
          "data"_a, "Puts bytes as they are, for get_bytes().")
      .def("get_bytes", get_bytes,
           "The oldest message as bytes: of put_bytes(), or the pickle of an object.")
      .def("take_all_bytes", take_all_bytes, "into"_a,
           "Appends all messages that are there to a deque, as get_bytes() has them. None is lost "
           "where a signal's handler raises.")
      .def(
          "poll",
          [](ObjectQueue& self, std::optional<double> timeout) {
            return self.poll(queue_deadline(true, timeout)) == QueueOutcome::kDone;
          },
          "timeout"_a = 0.0,
          "Waits until there is an object, for `timeout` seconds (None: for ever).")
      .def("qsize", [](ObjectQueue& self) { return self.queue().size(); })
      .def("empty", [](ObjectQueue& self) { return self.queue().size() == 0; })
      .def("full",
           [](ObjectQueue& self) {
             const std::uint32_t most = self.queue().options().max_items;
             return most != 0 && self.queue().size() >= most;
           })
      .def(
          "count_done", [](ObjectQueue& self) { return self.queue().task_done(); },
          "Counts a task as done; False when all are.")
      .def(
          "wait_done", [](ObjectQueue& self) { static_cast<void>(self.join()); },
          "Waits until all objects that were put are counted as done.")
      .def(
          "fileno", [](ObjectQueue& self) { return self.queue().fileno(); },
          "A descriptor of this process that is readable while there are objects.")
      .def_prop_ro("block", [](ObjectQueue& self) { return self.queue().block(); });
}

/// One end of a pipe.
class PyConnection {
 public:
  PyConnection(std::optional<Block> in, std::optional<Block> out, Block own, Token peer)
      : own_(std::move(own)), peer_(peer) {
    if (in) in_ = std::make_unique<ObjectQueue>(ipc::Queue(std::move(*in)));
    if (out) out_ = std::make_unique<ObjectQueue>(ipc::Queue(std::move(*out)));
  }
  ~PyConnection() { close(); }

  bool closed() const noexcept { return !own_; }
  bool readable() const noexcept { return in_ != nullptr && !broken_; }
  bool writable() const noexcept { return out_ != nullptr; }

  void close() noexcept {
    if (closed()) return;
    own_ = Block();  // if it was the last of this end, the peer finds out by being nudged
    if (in_) in_->queue().nudge();
    if (out_) out_->queue().nudge();
    // The queues stay: another thread may be in them.
  }

  void send(nb::handle object) {
    const Token peer = peer_;
    check_sent(writer().put(object, os::kNoDeadline, &peer));
  }
  void send_bytes(std::span<const std::byte> bytes) {
    const Token peer = peer_;
    check_sent(writer().put_raw(bytes, os::kNoDeadline, &peer));
  }
  void recv(Message& message) {
    const Token peer = peer_;
    if (reader().get(message, os::kNoDeadline, &peer) == QueueOutcome::kClosed) {
      raise(PyExc_EOFError);
    }
  }
  nb::bytes recv_bytes(std::optional<std::int64_t> most) {
    if (most && *most < 0) {
      check_open();
      throw InvalidArgument("negative maxlength");
    }
    Message message;
    recv(message);
    const nb::bytes bytes = ObjectQueue::bytes_of(message);
    if (most && bytes.size() > static_cast<std::size_t>(*most)) {
      if (writable()) {
        broken_ = true;
      } else {
        close();
      }
      raise(PyExc_OSError, "bad message length");
    }
    return bytes;
  }
  bool poll(std::optional<double> timeout) {
    const Token peer = peer_;
    return reader().poll(queue_deadline(true, timeout), &peer) != QueueOutcome::kTimedOut;
  }
  int fileno() {
    check_open();
    const Token peer = peer_;
    return in_ ? in_->queue().fileno(&peer) : out_->queue().fileno();
  }

  /// What another process makes the same end of: (in, out, own, peer's offset, peer's serial).
  nb::tuple parts() const {
    check_open();
    return nb::make_tuple(in_ ? nb::cast(in_->queue().block()) : nb::none(),
                          out_ ? nb::cast(out_->queue().block()) : nb::none(), own_, peer_.block,
                          peer_.serial);
  }

 private:
  void check_open() const {
    if (closed()) raise(PyExc_OSError, "handle is closed");
  }
  ObjectQueue& reader() const {
    check_open();
    if (!readable()) raise(PyExc_OSError, "connection is write-only");
    return *in_;
  }
  ObjectQueue& writer() const {
    check_open();
    if (!writable()) raise(PyExc_OSError, "connection is read-only");
    return *out_;
  }
  static void check_sent(QueueOutcome outcome) {
    if (outcome == QueueOutcome::kClosed) {
      throw SystemError("send to the other end of a pipe, which nobody holds any more", EPIPE);
    }
  }

  std::unique_ptr<ObjectQueue> in_, out_;
  Block own_;
  Token peer_;
  bool broken_ = false;
};

void bind_connection(nb::module_& module) {
  nb::class_<PyConnection>(module, "Connection", "One end of a pipe.")
      .def(
          "__init__",
          [](PyConnection* self, std::optional<Block> in, std::optional<Block> out, Block own,
             std::uint64_t peer_offset, std::uint64_t peer_serial) {
            new (self) PyConnection(std::move(in), std::move(out), std::move(own),
                                    {peer_offset, peer_serial});
          },
          "reader"_a.none(), "writer"_a.none(), "own"_a, "peer_offset"_a, "peer_serial"_a,
          "From the blocks of its queues, the one that says that this end is held, and that of the "
          "other end.")
      .def("send", &PyConnection::send, "obj"_a.none(),
           "Sends an object. Raises BrokenPipeError when nobody holds the other end.")
      .def(
          "recv",
          [](PyConnection& self) {
            Message message;
            self.recv(message);
            return ObjectQueue::object_of(message);
          },
          "The next object. Raises EOFError when there is none and nobody holds the other end.")
      .def(
          "send_raw",
          [](PyConnection& self, nb::handle data) {
            const Buffer buffer(data);
            self.send_bytes(buffer.bytes());
          },
          "data"_a, "send_bytes() of a whole contiguous buffer.")
      .def("recv_bytes", &PyConnection::recv_bytes, "maxlength"_a = nb::none(),
           "The next message as bytes. Raises EOFError as recv(), OSError for one that is longer.")
      .def("poll", &PyConnection::poll, "timeout"_a = 0.0,
           "Waits until recv() would not, for `timeout` seconds (None: for ever).")
      .def("fileno", &PyConnection::fileno,
           "A descriptor of this process that is readable while recv() would not wait.")
      .def("close", &PyConnection::close)
      .def("parts", &PyConnection::parts)
      .def_prop_ro("closed", &PyConnection::closed)
      .def_prop_ro("readable", &PyConnection::readable)
      .def_prop_ro("writable", &PyConnection::writable);
}

}  // namespace

void bind_ipc_queue(nb::module_& parent) {
  nb::module_ module = nb::cast<nb::module_>(parent.attr("ipc"));
  bind_queue(module);
  bind_connection(module);
}

}  // namespace shoal::python
