#include "shoal/process/zygote/worker_carrier.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/poll.h"

namespace shoal::process {
namespace {

// The longest sleep for credit before a look whether the parent is still there.
constexpr std::chrono::seconds kParkSlice{1};

}  // namespace

WorkerCarrier::WorkerCarrier(os::Mailbox mailbox, os::SeqPacket up, CreditCell& cell,
                             std::uint64_t request)
    : mailbox_(std::move(mailbox)),
      up_(std::move(up)),
      cell_(cell),
      request_(request),
      credit_(cell_.up, kUpWindow) {}

os::SendOutcome WorkerCarrier::send(std::span<const std::byte> bytes, std::span<const int> fds,
                                    os::Deadline deadline) {
  if (closed_) return os::SendOutcome::kClosed;
  for (;;) {
    const std::uint32_t taken = cell_.up.generation();
    if (credit_.is_there(taken)) break;
    if (hung_up()) return os::SendOutcome::kClosed;
    const os::Deadline slice = std::min(deadline, os::deadline_after(kParkSlice));
    if (cell_.up.park(taken, slice) == sync::WaitOutcome::kTimedOut && slice == deadline) {
      return os::SendOutcome::kTimedOut;
    }
  }
  for (;;) {
    const os::SendOutcome outcome = up_.send(bytes, fds, os::Clock::now(), request_);
    if (outcome == os::SendOutcome::kSent) credit_.spend();
    if (outcome != os::SendOutcome::kTimedOut || os::Clock::now() >= deadline) return outcome;
    wait_for_room(deadline);
  }
}

// Waits for room in the socket that all workers share. Room that is freed wakes one waiter, not
// all: a thousand workers that answer at once would do nothing but wake up.
void WorkerCarrier::wait_for_room(os::Deadline deadline) {
  constexpr std::chrono::milliseconds kLook{50};  // whoever was woken may have died
  epoll_event event{};
  event.events = EPOLLOUT | EPOLLEXCLUSIVE;
  if (!room_) {
    room_ = os::Fd(::epoll_create1(EPOLL_CLOEXEC));
    if (!room_ || ::epoll_ctl(room_.get(), EPOLL_CTL_ADD, up_.fd(), &event) != 0) {
      throw SystemError("wait for room in a worker's channel");
    }
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(os::time_left(deadline));
  static_cast<void>(
      ::epoll_wait(room_.get(), &event, 1, static_cast<int>(std::min(left, kLook).count())));
}

os::RecvOutcome WorkerCarrier::recv(os::Message& message, os::Deadline deadline) {
  while (!parent_closed_ && !closed_) {
    const os::Deadline slice = std::min(deadline, os::deadline_after(kParkSlice));
    const os::RecvOutcome outcome = mailbox_.recv(message, slice);
    if (outcome == os::RecvOutcome::kMessage) {
      cell_.down.ring();
      if (message.tag != kClosedTag) return outcome;
      parent_closed_ = true;
    } else if (slice == deadline) {
      return outcome;
    } else if (hung_up()) {
      parent_closed_ = true;
    }
  }
  message = {};
  return os::RecvOutcome::kClosed;
}

bool WorkerCarrier::hung_up() const {
  return parent_closed_ || closed_ || os::poll_one(up_.fd(), 0, os::Clock::now());
}

void WorkerCarrier::shutdown() noexcept {
  if (std::exchange(closed_, true)) return;
  try {
    static_cast<void>(up_.send({}, {}, os::deadline_after(kParkSlice), request_ | kClosedTag));
  } catch (const Error&) {
    // The parent learns of the process's end all the same.
  }
}

}  // namespace shoal::process
