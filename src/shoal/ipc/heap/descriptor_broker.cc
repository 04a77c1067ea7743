#include "shoal/ipc/heap/descriptor_broker.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/log.h"
#include "shoal/os/process/signals.h"
#include "shoal/os/socket/socket.h"

namespace shoal::ipc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A process that does not answer for so long is stopped or in trouble.
constexpr auto kPatience = seconds(20);
/// How often the broker looks for blocks whose holders were killed.
constexpr auto kLook = milliseconds(1000);
/// A client of the broker sends at once; one that does not shall not hold up the others for long.
constexpr auto kClientPatience = seconds(1);

enum class Wish : std::uint64_t { kLeave = 1, kFetch = 2, kLook = 3, kJoin = 4 };

struct Request {
  std::uint64_t heap;
  Wish wish;
  Offset block;
  std::uint64_t serial;
};

struct Reply {
  std::uint64_t slot;
  std::uint64_t found;
};

struct Address {
  sockaddr_un name{};
  socklen_t bytes = 0;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&name); }
};

Address address_of(std::uint64_t heap_id) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::string text = fmt::format("shoal-broker-{:016x}", heap_id);
  std::memcpy(address.name.sun_path + 1, text.data(), text.size());  // a 0 first: abstract
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

os::Fd new_socket() {
  os::Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) throw SystemError("create a socket for descriptors of the family");
  return fd;
}

/// The broker of this process.
class Broker {
 public:
  Broker(std::shared_ptr<Heap> heap, os::Fd listener)
      : heap_(std::move(heap)), listener_(std::move(listener)) {}

  void serve() noexcept {
    for (;;) {
      try {
        if (ready()) answer(os::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
        tidy();
      } catch (const std::exception& error) {
        os::log(os::LogLevel::kWarning, "ipc", "the broker for descriptors: {}", error.what());
      }
    }
  }

  std::mutex& mutex() noexcept { return mutex_; }

  /// In a forked child, with the mutex held.
  void forget() noexcept {
    listener_.reset();
    kept_.clear();
  }

 private:
  bool ready() {
    pollfd wanted{listener_.get(), POLLIN, 0};
    const bool empty = [&] {
      const std::lock_guard lock(mutex_);
      return kept_.empty();
    }();
    return ::poll(&wanted, 1, empty ? -1 : static_cast<int>(kLook.count())) > 0;
  }

  void answer(os::Fd fd) {
    if (!fd) {  // too many are open: the client waits
      ::poll(nullptr, 0, 10);
      return;
    }
    os::SeqPacket link(std::move(fd));
    os::Message message;
    if (link.recv(message, os::deadline_after(kClientPatience)) != os::RecvOutcome::kMessage ||
        message.bytes.size() != sizeof(Request)) {
      return;
    }
    Request request;
    std::memcpy(&request, message.bytes.data(), sizeof request);
    if (request.heap != heap_->id()) return;
    Reply reply{heap_->self().packed(), 0};
    std::optional<os::Fd> found;
    {
      const std::lock_guard lock(mutex_);
      const auto key = std::pair(request.block, request.serial);
      if (request.wish == Wish::kLeave && message.fds.size() == 1) {
        kept_[key] = std::move(message.fds[0]);
        reply.found = 1;
      }
      if (const auto at = kept_.find(key); request.wish == Wish::kFetch && at != kept_.end()) {
        found = os::Fd::duplicate(at->second.get());
        reply.found = 1;
      }
    }
    if (request.wish == Wish::kLook) return;
    const int sent = found ? found->get() : request.wish == Wish::kJoin ? heap_->fd() : -1;
    static_cast<void>(link.send(std::as_bytes(std::span(&reply, 1)),
                                std::span(&sent, sent >= 0 ? 1U : 0U),
                                os::deadline_after(kClientPatience)));
  }

  void tidy() {
    {
      const std::lock_guard lock(mutex_);
      if (kept_.empty()) return;
    }
    heap_->sweep();
    const std::lock_guard lock(mutex_);
    std::erase_if(kept_, [&](const auto& entry) {
      return !heap_->lives(entry.first.first, entry.first.second);
    });
  }

  std::shared_ptr<Heap> heap_;
  os::Fd listener_;
  std::mutex mutex_;  // kept_; held during a fork; before the heap's own
  std::map<std::pair<Offset, std::uint64_t>, os::Fd> kept_;
};

/// The broker that this process has, which is never destroyed: its thread runs until the end.
struct Here {
  std::mutex mutex;
  Broker* broker = nullptr;
};

Here& here() {
  static Here* const instance = [] {
    static Here* made = new Here;
    // Registered after the heap's handlers, so it takes its locks before they do.
    pthread_atfork(
        [] {
          made->mutex.lock();
          if (made->broker != nullptr) made->broker->mutex().lock();
        },
        [] {
          if (made->broker != nullptr) made->broker->mutex().unlock();
          made->mutex.unlock();
        },
        [] {
          if (made->broker != nullptr) {
            made->broker->forget();
            made->broker->mutex().unlock();
            made->broker = nullptr;
          }
          made->mutex.unlock();
        });
    return made;
  }();
  return *instance;
}

/// Sends a request to the broker; nothing when there is none.
std::optional<Reply> ask(const Request& request, int fd, os::Fd* answer) {
  const Address address = address_of(request.heap);
  os::Fd socket = new_socket();
  while (::connect(socket.get(), address.get(), address.bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED) return std::nullopt;
    throw SystemError("reach the broker for descriptors of the family");
  }
  os::SeqPacket link(std::move(socket));  // refuses a stranger's
  const auto deadline = os::deadline_after(kPatience);
  const auto sent =
      link.send(std::as_bytes(std::span(&request, 1)), std::span(&fd, fd >= 0 ? 1U : 0U), deadline);
  if (sent == os::SendOutcome::kClosed) return std::nullopt;
  if (request.wish == Wish::kLook) return Reply{};
  os::Message message;
  const auto got =
      sent == os::SendOutcome::kSent ? link.recv(message, deadline) : os::RecvOutcome::kTimedOut;
  if (got == os::RecvOutcome::kTimedOut) {
    throw TimedOut(
        fmt::format("the process that keeps the family's descriptors did not answer for {} s",
                    kPatience.count()));
  }
  if (got == os::RecvOutcome::kClosed || message.bytes.size() != sizeof(Reply)) return std::nullopt;
  Reply reply;
  std::memcpy(&reply, message.bytes.data(), sizeof reply);
  if (answer != nullptr && !message.fds.empty()) *answer = std::move(message.fds[0]);
  return reply;
}

void start_detached(std::function<void()> body) { std::thread(std::move(body)).detach(); }

}  // namespace

bool open_descriptor_broker(const StartThread& start) {
  const auto heap = Heap::here();
  Here& mine = here();
  const std::lock_guard lock(mine.mutex);
  if (mine.broker != nullptr) return true;
  const Address address = address_of(heap->id());
  os::Fd listener = new_socket();
  if (::bind(listener.get(), address.get(), address.bytes) != 0) {
    if (errno == EADDRINUSE) return false;
    throw SystemError("name the socket for descriptors of the family");
  }
  if (::listen(listener.get(), SOMAXCONN) != 0) {
    throw SystemError("listen for those who need descriptors");
  }
  Broker* const broker = new Broker(heap, std::move(listener));
  mine.broker = broker;
  const auto blocked = os::BlockSignals::all();  // in that thread, too: they are for the others
  (start ? start : start_detached)([broker] { broker->serve(); });
  return true;
}

ProcessSlot leave_descriptor(const Block& block, int fd) {
  constexpr int kTries = 10;
  const Request request{block.heap()->id(), Wish::kLeave, block.offset(), block.serial()};
  for (int i = 0; i < kTries; ++i) {
    if (const auto reply = ask(request, fd, nullptr)) {
      if (reply->found != 0) return ProcessSlot::from(reply->slot);
    }
    open_descriptor_broker();
  }
  throw Error("no process of the family keeps descriptors for the others");
}

os::Fd fetch_descriptor(Offset block, std::uint64_t serial) {
  const auto heap = Heap::here();
  os::Fd found;
  static_cast<void>(ask({heap->id(), Wish::kFetch, block, serial}, -1, &found));
  return found;
}

void join_family(std::uint64_t heap_id) {
  if (Heap::exists()) {
    if (Heap::here()->id() == heap_id) return;
    throw InvalidState(
        "this process has a family of its own already (it has made queues, locks or tensors of "
        "shoal.multiprocessing): what processes of another family share cannot be used here");
  }
  os::Fd heap;
  static_cast<void>(ask({heap_id, Wish::kJoin, 0, 0}, -1, &heap));
  if (!heap) throw Error("the family of processes whose objects came here has ended");
  static_cast<void>(Heap::attach(std::move(heap)));
}

void look_at_descriptors() noexcept {
  try {
    const auto heap = Heap::here();
    static_cast<void>(ask({heap->id(), Wish::kLook, 0, 0}, -1, nullptr));
  } catch (const std::exception&) {
    // It looks within a second anyway.
  }
}

}  // namespace shoal::ipc
