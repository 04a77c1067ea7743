#include "shoal/process/zygote/channel_multiplexer.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::process {
namespace {

// How long close() may wait for room in the sender's buffer.
constexpr std::chrono::milliseconds kCloseGrace{100};

}  // namespace

void ChannelLine::open(int capacity) {
  const std::lock_guard lock(mutex_);
  capacity_ = std::clamp(capacity, 0, CreditCells::kCount);
  for (int slot = capacity_ - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

int ChannelLine::capacity() const {
  const std::lock_guard lock(mutex_);
  return capacity_;
}

std::size_t ChannelLine::free_slots() const {
  const std::lock_guard lock(mutex_);
  return free_slots_.size();
}

int ChannelLine::take_slot() {
  const std::lock_guard lock(mutex_);
  if (free_slots_.empty()) return -1;
  const int slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void ChannelLine::give_back(int slot) {
  const std::lock_guard lock(mutex_);
  free_slots_.push_back(slot);
}

const os::MailboxSender& ChannelLine::sender(int slot) {
  const std::lock_guard lock(mutex_);
  os::MailboxSender& sender =
      senders_.at(static_cast<std::size_t>(slot / os::MailboxSender::kMaxMailboxes));
  if (!sender) sender = os::MailboxSender::create(sender_name(name_, slot));
  return sender;
}

std::string ChannelLine::sender_name(const std::string& line, int slot) {
  return fmt::format("{}/s{}", line, slot / os::MailboxSender::kMaxMailboxes);
}

std::string ChannelLine::mailbox_name(const std::string& line, std::uint64_t request) {
  return fmt::format("{}/{}", line, request);
}

ChannelPeer::ChannelPeer(std::shared_ptr<ChannelLine> line, int slot, std::uint64_t request)
    : line_(std::move(line)),
      mailbox_(ChannelLine::mailbox_name(line_->name(), request)),
      sender_(line_->sender(slot)),
      slot_(slot),
      request_(request),
      cell_(line_->cells().at(slot)),
      credit_(cell_.down, kDownWindow) {}

ChannelPeer::~ChannelPeer() { end(); }

void ChannelPeer::push(std::variant<os::Message, std::exception_ptr> item) {
  const std::lock_guard lock(mutex_);
  if (closed_) {
    if (!ended_) cell_.up.ring();  // taken, by nobody
    return;
  }
  items_.push_back(std::move(item));
  changed_.notify_all();
}

void ChannelPeer::close_from_worker() {
  const std::lock_guard lock(mutex_);
  worker_closed_ = true;
  changed_.notify_all();
}

void ChannelPeer::end() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(ended_, true)) return;
  cell_.down
      .ring();  // whoever waits for it to take a message; the next to have the cell counts anew
  line_->give_back(slot_);
  changed_.notify_all();
}

os::SendOutcome ChannelPeer::send(std::span<const std::byte> bytes, std::span<const int> fds,
                                  os::Deadline deadline) {
  for (;;) {
    const std::uint32_t taken = cell_.down.generation();  // before the look at ended_
    if (hung_up()) return os::SendOutcome::kClosed;
    if (credit_.is_there(taken)) break;
    if (cell_.down.park(taken, deadline) == sync::WaitOutcome::kTimedOut) {
      return os::SendOutcome::kTimedOut;
    }
  }
  const os::SendOutcome outcome = sender_.send(mailbox_, bytes, fds, deadline);
  if (outcome == os::SendOutcome::kSent) credit_.spend();
  return outcome;
}

os::RecvOutcome ChannelPeer::recv(os::Message& message, os::Deadline deadline) {
  message = {};
  std::unique_lock lock(mutex_);
  const auto decided = [this] { return !items_.empty() || worker_closed_ || closed_ || ended_; };
  if (deadline == os::kNoDeadline) {
    changed_.wait(lock, decided);
  } else {
    changed_.wait_until(lock, deadline, decided);
  }
  if (items_.empty()) {
    return decided() ? os::RecvOutcome::kClosed : os::RecvOutcome::kTimedOut;
  }
  auto item = std::move(items_.front());
  items_.pop_front();
  if (!ended_) cell_.up.ring();  // under the lock: after end() the cell is another worker's
  if (auto* error = std::get_if<std::exception_ptr>(&item)) std::rethrow_exception(*error);
  message = std::move(std::get<os::Message>(item));
  return os::RecvOutcome::kMessage;
}

bool ChannelPeer::hung_up() const {
  const std::lock_guard lock(mutex_);
  return worker_closed_ || closed_ || ended_;
}

void ChannelPeer::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true) || ended_) return;
    for (std::size_t i = 0; i < items_.size(); ++i) cell_.up.ring();
    items_.clear();
    changed_.notify_all();
  }
  try {
    static_cast<void>(sender_.send(mailbox_, {}, {}, os::deadline_after(kCloseGrace), kClosedTag));
  } catch (const Error&) {
    // Only a lack of kernel memory leads here; the worker is killed with its WorkerProcess.
  }
}

os::SeqPacket ChannelMultiplexer::open() {
  auto [ours, workers] = os::SeqPacket::pair();
  const int bytes = 256 * 1024;  // the kernel doubles it, within net.core.wmem_max
  ::setsockopt(workers.fd(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  socket_ = std::move(ours);
  loop_.watch(socket_.fd(), POLLIN, [this] { drain(); });
  return std::move(workers);
}

void ChannelMultiplexer::add(const std::shared_ptr<ChannelPeer>& peer) {
  const std::lock_guard lock(mutex_);
  peers_[peer->request()] = peer;
}

void ChannelMultiplexer::remove(std::uint64_t request) {
  const std::lock_guard lock(mutex_);
  peers_.erase(request);
}

void ChannelMultiplexer::drain() {
  constexpr int kMaxErrors = 16;  // in a row: the kernel's, not one message's
  for (int errors = 0; socket_ && errors < kMaxErrors;) {
    os::Message message;
    std::exception_ptr error;
    try {
      const auto outcome = socket_.recv(message, os::Clock::now());
      if (outcome == os::RecvOutcome::kTimedOut) return;
      if (outcome == os::RecvOutcome::kClosed) {
        close();
        return;
      }
    } catch (const Error&) {
      error = std::current_exception();  // of one message: a lack of descriptors, or of memory
    }
    errors = error ? errors + 1 : 0;
    take(std::move(message), std::move(error));
  }
}

void ChannelMultiplexer::take(os::Message message, std::exception_ptr error) {
  std::shared_ptr<ChannelPeer> peer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(message.tag & ~kClosedTag);
    if (found != peers_.end()) peer = found->second.lock();
  }
  if (!peer) return;  // nobody holds that worker any more
  if (error) {
    peer->push(std::move(error));
  } else if ((message.tag & kClosedTag) != 0) {
    peer->close_from_worker();
  } else {
    peer->push(std::move(message));
  }
}

void ChannelMultiplexer::close() {
  if (socket_) loop_.unwatch(socket_.fd());
  socket_.close();
}

}  // namespace shoal::process
