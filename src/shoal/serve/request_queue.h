// The requests of one kind: for one model, with rows of one shape. Rows of one request queue go
// into batches together.
//
//   offset    field
//        0    RequestQueueHeader
//             for each buffer: BufferHeader, then RowCell[max_rows]
//             for each array of a row: for each buffer: [max_rows, *shape], as the model sees it
//
// One buffer is open: clients claim rows of it and write them in place, so nothing is gathered
// afterwards. When its batch leaves, a free buffer is opened. There is one buffer more than can be
// in use, and a few more for batches that left while a row of theirs was still being written.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shoal/serve/row_spec.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/doorbell.h"
#include "shoal/sync/row_claims.h"

namespace shoal::serve {

/// One row of a buffer: what its claimer says of it, beside the row itself.
struct alignas(64) RowCell {
  static constexpr std::uint32_t kReset = 1;  // the environment's state begins anew with this row

  sync::RowWord word;
  std::uint32_t client_slots;
  std::uint32_t slot;
  std::uint32_t generation;
  std::uint64_t submitted_ns;
  std::uint64_t deadline_ns;  // 0: none
  std::int32_t env;           // of the client's; whose recurrent state the row goes with
  std::uint32_t flags;
};
static_assert(sizeof(RowCell) == 64);

struct alignas(128) BufferHeader {
  sync::RowClaims claims;
};

struct RequestQueueHeader {
  sync::Doorbell opened;  // rung when a buffer is opened
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t id;
  std::uint32_t buffers;
  std::uint32_t max_rows;
  std::uint32_t tells_when_waiting;  // whether max_delay is not 0: the quorum counts
  char zero[104];
  alignas(128) sync::SystemAtomics::Word open;  // 1 + the open buffer; 0: none
};
static_assert(sizeof(RequestQueueHeader) == 384);

/// What the requests of one queue have in common; a value.
struct RequestKind {
  std::uint32_t model = 0;
  std::uint64_t pinned = 0;  // the version of the weights that the rows ask for; 0: the latest
  RowSpec inputs;
  std::vector<std::byte> structure;  // how the face above packs a row's arrays; opaque here
  bool operator==(const RequestKind&) const = default;
};

/// The segment, mapped; a resource.
///
/// Threads, processes: clients claim, write and publish rows; the server opens and closes.
/// Memory ordering: `open` is stored with release after the buffer's claims were opened, and loaded
/// with acquire ([open]).
/// Death: of a client: the server drops the rows that it had claimed (sync::RowClaims). Of the
/// server: the segment goes with it, and with the clients that have it mapped.
class RequestQueue {
 public:
  struct Layout {
    std::uint32_t buffers = 3;
    std::uint32_t max_rows = 1;
  };

  /// All buffers closed. Throws InvalidArgument, and SystemError when memory is short.
  static std::unique_ptr<RequestQueue> create(std::uint32_t id, RequestKind kind, Layout layout,
                                              bool tells_when_waiting);
  /// Throws Error when the segment is none for rows of this kind.
  static std::unique_ptr<RequestQueue> attach(os::Fd fd, RequestKind kind);

  const RequestKind& kind() const noexcept { return kind_; }
  std::uint32_t id() const noexcept { return header_->id; }
  std::uint32_t max_rows() const noexcept { return layout_.max_rows; }
  std::uint32_t buffers() const noexcept { return layout_.buffers; }
  bool tells_when_waiting() const noexcept { return header_->tells_when_waiting != 0; }
  int fd() const noexcept { return arena_.fd(); }

  sync::Doorbell& opened() const noexcept { return header_->opened; }
  /// 1 + the open buffer; 0: none.
  std::uint32_t open() const noexcept {
    return header_->open.load(std::memory_order_acquire);  // [open]
  }
  void set_open(std::uint32_t open) const noexcept {
    header_->open.store(open, std::memory_order_release);  // [open]
  }
  sync::RowClaims& claims(std::uint32_t buffer) const noexcept { return heads_[buffer]->claims; }
  RowCell& cell(std::uint32_t buffer, std::uint32_t row) const noexcept {
    return cells_[buffer][row];
  }
  /// Row `row` of array `leaf` in `buffer`; the rows of a buffer lie one behind the other.
  std::byte* input(std::uint32_t buffer, std::size_t leaf, std::uint32_t row) const noexcept {
    return leaves_[leaf] + (std::size_t{buffer} * layout_.max_rows + row) * leaf_bytes_[leaf];
  }
  std::size_t leaf_bytes(std::size_t leaf) const noexcept { return leaf_bytes_[leaf]; }
  std::size_t leaves() const noexcept { return leaves_.size(); }

 private:
  RequestQueue(shm::Arena arena, RequestKind kind, Layout layout);

  shm::Arena arena_;
  RequestKind kind_;
  Layout layout_;
  RequestQueueHeader* header_;
  std::vector<BufferHeader*> heads_;
  std::vector<RowCell*> cells_;
  std::vector<std::byte*> leaves_;
  std::vector<std::size_t> leaf_bytes_;
};

}  // namespace shoal::serve
