// The parent's side of the channels of a zygote's workers. All of them together cost the parent one
// descriptor, and one more for each 64 workers.
//
//   worker 0 ──┐ shared end of a SOCK_SEQPACKET pair
//   worker 1 ──┼──────────────▶ ChannelMultiplexer ──▶ ChannelPeer 0, 1, … (queues)
//   worker … ──┘ each message tagged with its worker
//
//   worker i ◀── a mailbox of its own ◀─────────── MailboxSender, one for 64 workers
//
// The pair has no name, and a mailbox takes messages from its sender alone (os/socket/mailbox.h).
// So a process can send here only if it inherited one of these descriptors, or was given one.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "shoal/os/socket/mailbox.h"
#include "shoal/os/socket/socket.h"
#include "shoal/process/channel.h"
#include "shoal/process/supervise/event_loop.h"
#include "shoal/process/zygote/credit_cells.h"

namespace shoal::process {

/// What the channels of one zygote process's workers share: the senders of their mailboxes, their
/// credit cells, and which of its slots are free; a resource.
///
/// Threads: any.
/// Processes: the parent's; the zygote and its workers map the cells.
/// Death: of a worker: its slot is given back by ChannelPeer::end().
class ChannelLine {
 public:
  /// Throws SystemError.
  ChannelLine() = default;

  const std::string& name() const noexcept { return name_; }
  CreditCells& cells() noexcept { return cells_; }
  /// The sender for this slot, which is taken; made when the first of its 64 workers needs it.
  /// Throws SystemError.
  const os::MailboxSender& sender(int slot);

  /// How many workers it can have at a time; 0 before the zygote has said so.
  void open(int capacity);
  int capacity() const;
  std::size_t free_slots() const;
  int take_slot();  // -1: all are taken
  void give_back(int slot);

  static std::string sender_name(const std::string& line, int slot);
  static std::string mailbox_name(const std::string& line, std::uint64_t request);

 private:
  const std::string name_ = os::unique_socket_name();
  CreditCells cells_ = CreditCells::create();
  mutable std::mutex mutex_;
  std::array<os::MailboxSender, CreditCells::kCount / os::MailboxSender::kMaxMailboxes> senders_;
  int capacity_ = 0;
  std::vector<int> free_slots_;
};

/// The parent's end of one worker's channel, which the multiplexer and the channel share; a
/// resource.
///
/// Threads: push(), close_from_worker() and end() in the multiplexer's event loop; the rest as
/// Channel's.
/// Processes: the parent's.
/// Death: of the worker: recv() returns what it sent before, then kClosed.
class ChannelPeer {
 public:
  ChannelPeer(std::shared_ptr<ChannelLine> line, int slot, std::uint64_t request);
  ~ChannelPeer();
  ChannelPeer(const ChannelPeer&) = delete;
  ChannelPeer& operator=(const ChannelPeer&) = delete;

  std::uint64_t request() const noexcept { return request_; }
  int slot() const noexcept { return slot_; }

  /// Stores a message, or the error that kept it from being received.
  void push(std::variant<os::Message, std::exception_ptr> item);
  void close_from_worker();
  /// To be called when the worker has ended: its slot is free for another one.
  void end();

  os::SendOutcome send(std::span<const std::byte> bytes, std::span<const int> fds,
                       os::Deadline deadline);
  os::RecvOutcome recv(os::Message& message, os::Deadline deadline);
  bool hung_up() const;
  void close() noexcept;

 private:
  const std::shared_ptr<ChannelLine> line_;
  const std::string mailbox_;
  const os::MailboxSender& sender_;
  const int slot_;
  const std::uint64_t request_;
  CreditCell& cell_;
  Credit credit_;             // the sender's
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::deque<std::variant<os::Message, std::exception_ptr>> items_;
  bool worker_closed_ = false;
  bool closed_ = false;  // by this side: what still comes is dropped
  bool ended_ = false;
};

/// What carries the parent's end of a channel through the multiplexer.
/// Threads, processes, death: as ChannelPeer.
class MultiplexedCarrier final : public Channel::Carrier {
 public:
  explicit MultiplexedCarrier(std::shared_ptr<ChannelPeer> peer) : peer_(std::move(peer)) {}
  ~MultiplexedCarrier() override { peer_->close(); }

  os::SendOutcome send(std::span<const std::byte> bytes, std::span<const int> fds,
                       os::Deadline deadline) override {
    return peer_->send(bytes, fds, deadline);
  }
  os::RecvOutcome recv(os::Message& message, os::Deadline deadline) override {
    return peer_->recv(message, deadline);
  }
  bool hung_up() const override { return peer_->hung_up(); }
  void shutdown() noexcept override { peer_->close(); }

 private:
  std::shared_ptr<ChannelPeer> peer_;
};

/// Receives the messages of all workers of a zygote and its sub-zygotes, and hands each to its
/// ChannelPeer; a resource.
///
/// Threads: add() from any; the rest in the event loop's.
/// Processes: the parent's.
/// Death: the socket ends when the zygote, its sub-zygotes and all their workers are gone.
class ChannelMultiplexer {
 public:
  explicit ChannelMultiplexer(EventLoop& loop) : loop_(loop) {}

  /// Makes the pair and begins to receive; returns the workers' end.
  os::SeqPacket open();

  /// Before the worker is started.
  void add(const std::shared_ptr<ChannelPeer>& peer);
  void remove(std::uint64_t request);

  /// Hands out all messages that have come by now.
  void drain();
  void close();

 private:
  void take(os::Message message, std::exception_ptr error);

  EventLoop& loop_;
  os::SeqPacket socket_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::weak_ptr<ChannelPeer>> peers_;
};

}  // namespace shoal::process
