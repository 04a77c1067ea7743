// A client's slots at a request queue: its bell, what it is doing, and where its replies are
// written.
//
//   offset    field
//        0    ClientSlotsHeader
//             for each slot: SlotCell
//             for each slot: its reply, every array aligned to kLeafAlignment,
//                            or the text of an error
//
// Replies are written here, not into the batch: a client that reads them late does not hold up the
// batch of others.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "shoal/serve/row_spec.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/doorbell.h"
#include "shoal/sync/reply_word.h"

namespace shoal::serve {

enum class ReplyStatus : std::uint32_t {
  kOk,
  kModelError,        // the slot holds the text
  kDeadlineExceeded,  // it had passed when the batch left
};

struct ClientSlotsHeader {
  sync::Doorbell done;  // rung when a reply is there
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t id;
  std::uint32_t slots;
  char zero[112];
  // By the client: 1 + the buffer whose rows it is about to claim or writes; 0: none.
  alignas(128) sync::SystemAtomics::Word claiming;
  // By the client, taken back by the server with each reply: it can add nothing to a batch.
  sync::SystemAtomics::Word waiting;
};
static_assert(sizeof(ClientSlotsHeader) == 384);

struct alignas(64) SlotCell {
  sync::ReplyWord word;
  ReplyStatus status;
  std::uint32_t text_bytes;
  std::uint32_t batch_rows;  // of the batch that it was answered in
  std::uint64_t version;     // of the weights that it was answered with
};
static_assert(sizeof(SlotCell) == 64);

/// The segment, mapped; a resource.
///
/// Threads, processes: one client (one thread at a time) and the server.
/// Memory ordering: who sees `claiming` cleared, or name another buffer, sees what the client wrote
/// before ([claiming]). `waiting` is a hint.
/// Death: of a client: the server unmaps it. Of the server: it goes with the client.
class ClientSlots {
 public:
  static constexpr std::size_t kMaxTextBytes = 8192;

  /// Throws SystemError when memory is short.
  static std::unique_ptr<ClientSlots> create(std::uint32_t id, const RowSpec& outputs,
                                             std::uint32_t slots);
  /// Throws Error when the segment is none for such replies.
  static std::unique_ptr<ClientSlots> attach(os::Fd fd, const RowSpec& outputs);

  std::uint32_t id() const noexcept { return id_; }
  std::uint32_t slots() const noexcept { return slots_; }
  int fd() const noexcept { return arena_.fd(); }
  void close_fd() noexcept { arena_.close_fd(); }

  sync::Doorbell& done() const noexcept { return header_->done; }
  SlotCell& cell(std::uint32_t slot) const noexcept { return cells_[slot]; }
  std::byte* output(std::uint32_t slot, std::size_t leaf) const noexcept {
    return outputs_ + std::size_t{slot} * stride_ + leaf_offsets_[leaf];
  }
  std::size_t leaf_bytes(std::size_t leaf) const noexcept { return leaf_bytes_[leaf]; }
  std::size_t leaves() const noexcept { return leaf_bytes_.size(); }

  /// The server's: cut to the end of kMaxTextBytes, between two characters of UTF-8.
  void set_text(std::uint32_t slot, std::string_view text) const noexcept;
  std::string_view text(std::uint32_t slot) const noexcept;

  void announce_claim(std::uint32_t buffer) const noexcept {
    // The claim that follows publishes it to whoever closes the buffer. Release, since whoever sees
    // it assumes that the claim before it has ended.
    header_->claiming.store(buffer + 1, std::memory_order_release);  // [claiming]
  }
  void end_claim() const noexcept {
    header_->claiming.store(0, std::memory_order_release);  // [claiming]
  }
  bool is_claiming(std::uint32_t buffer) const noexcept {
    return header_->claiming.load(std::memory_order_acquire) == buffer + 1;  // [claiming]
  }
  // Relaxed: a hint that decides when a batch leaves, not what is in it.
  void set_waiting(bool waiting) const noexcept {
    header_->waiting.store(waiting ? 1 : 0, std::memory_order_relaxed);
  }
  bool waiting() const noexcept { return header_->waiting.load(std::memory_order_relaxed) != 0; }

 private:
  ClientSlots(shm::Arena arena, const RowSpec& outputs, std::uint32_t id, std::uint32_t slots);

  shm::Arena arena_;
  std::uint32_t id_;  // these two do not change when the header does
  std::uint32_t slots_;
  ClientSlotsHeader* header_;
  SlotCell* cells_;
  std::byte* outputs_;
  std::size_t stride_;
  std::vector<std::size_t> leaf_offsets_;
  std::vector<std::size_t> leaf_bytes_;
};

}  // namespace shoal::serve
