// What a relay and a listener say to each other over a connection of group/connection.
//
//   relay ◀─ terms (in the admission) ─ listener
//   relay ── kOpen ──────────────────▶ listener    a queue for rows of a kind, with one of them
//   relay ◀─ kOpened or kRefused ───── listener
//   relay ── kRows ──────────────────▶ listener    a batch
//   relay ◀─ kReplies ──────────────── listener    all of that batch's
//   relay ◀─ kEnded ────────────────── listener    the server that answered has ended
//
//   kRows:      kind (1) │ RemoteBatch │ a RowTag a row │ for each array: its rows
//   kReplies:   kind (1) │ RemoteBatch │ a ReplyTag a row │ for each array: its rows │ texts of those that failed
//
// Both sides have little-endian numbers; nothing is aligned. Every read_…() and view_…() throws Error
// for what the other side cannot have written.
//
// Threads: values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/group/connection/hello.h"
#include "shoal/serve/client_slots.h"
#include "shoal/serve/messages.h"
#include "shoal/serve/row_spec.h"

namespace shoal::serve {

enum class RemoteKind : std::uint8_t {
  kOpen = group::kFirstOfOwn,
  kOpened,
  kRefused,
  kRows,
  kReplies,
  kEnded,
};

/// What a connection to a service is for, in its hello.
inline constexpr std::string_view kAskModels = "ask models";
/// Of a message, in bytes.
inline constexpr std::size_t kLongestRemote = std::size_t{1} << 30;

/// What a relay is told when it is let in.
struct Terms {
  std::vector<std::string> models;
  std::uint32_t max_batch = 1;
  std::chrono::nanoseconds max_delay{0};
  std::uint32_t instances = 1;
  bool restarts = false;                // another server takes the place of one that died
  std::chrono::nanoseconds timeout{0};  // of requests that name none; 0: none
  std::uint32_t most_rows = 1;          // of a kRows
  std::uint32_t most_under_way = 1;     // kRows of a queue that have no kReplies yet
};

/// Which batch, of which of the relay's queues.
struct RemoteBatch {
  std::uint32_t queue = 0;
  std::uint32_t rows = 0;
  std::uint64_t number = 0;
};

struct RowTag {
  static constexpr std::uint32_t kReset = 1;

  std::int32_t env = 0;  // of the relay's
  std::uint32_t flags = 0;
  std::uint64_t age_ns = 0;   // since it was submitted
  std::uint64_t left_ns = 0;  // until its deadline; 0: it has none
};
static_assert(sizeof(RowTag) == 24);

struct ReplyTag {
  ReplyStatus status = ReplyStatus::kOk;
  std::uint32_t text_bytes = 0;  // where it failed
  std::uint64_t version = 0;     // of the weights
};
static_assert(sizeof(ReplyTag) == 16);

RemoteKind remote_kind_of(std::span<const std::byte> message);

std::vector<std::byte> pack_terms(const Terms& terms);
Terms read_terms(std::span<const std::byte> content);

/// An Open, Opened or Refused of messages.h, for a queue of the relay's.
std::vector<std::byte> pack_remote(RemoteKind kind, std::uint32_t queue,
                                   std::span<const std::byte> encoded);
struct RemoteMessage {
  std::uint32_t queue = 0;
  std::vector<std::byte> encoded;
};
RemoteMessage read_remote(std::span<const std::byte> message);

std::vector<std::byte> pack_ended(const std::string& why);
std::string read_ended(std::span<const std::byte> message);

/// Whether so many rows are no more than a message may have.
bool fits_remote(const RowSpec& spec, std::uint32_t rows) noexcept;

/// Where array `leaf` of row `row` lies.
using RowSource = std::function<const std::byte*(std::size_t leaf, std::uint32_t row)>;

/// A RowSource of rows that lie one behind the other is asked for its row 0 alone.
std::vector<std::byte> pack_rows(const RemoteBatch& batch, std::span<const RowTag> tags,
                                 const RowSpec& spec, const RowSource& rows);
/// What is null in `rows` stays zero; `texts`: of the rows whose tags say that they have one.
std::vector<std::byte> pack_replies(
    const RemoteBatch& batch, std::span<const ReplyTag> tags, const RowSpec& spec,
    const RowSource& rows, const std::function<std::string_view(std::uint32_t row)>& texts);

/// Of kRows and kReplies.
RemoteBatch batch_of(std::span<const std::byte> message);

/// Borrow the message.
struct RowsView {
  std::vector<RowTag> tags;
  std::vector<const std::byte*> leaves;  // the first row of each array
};
RowsView view_rows(std::span<const std::byte> message, const RowSpec& spec);

struct RepliesView {
  std::vector<ReplyTag> tags;
  std::vector<const std::byte*> leaves;
  std::vector<std::string_view> texts;  // by row
};
RepliesView view_replies(std::span<const std::byte> message, const RowSpec& spec);

/// Whether the structure of a call or an answer may cross: as text, which runs no code where it is read.
/// The face above pickles what it cannot write so.
bool may_cross(std::span<const std::byte> structure) noexcept;

}  // namespace shoal::serve
