#include "shoal/serve/remote/remote_messages.h"

#include <cstring>

#include "shoal/os/error.h"
#include "shoal/process/codec.h"

namespace shoal::serve {
namespace {

using process::ByteReader;
using process::ByteWriter;
using Bytes = std::vector<std::byte>;

constexpr std::string_view kProtocol = "shoal models 1";
constexpr std::uint32_t kMostModels = 4096;
constexpr std::size_t kHeadBytes = 1 + sizeof(RemoteBatch);
constexpr std::byte kTextBegins{'('};

[[noreturn]] void refuse_remote(const char* what) {
  throw Error(std::string("the other side of a model service sent ") + what);
}

ByteWriter begin_remote(RemoteKind kind) {
  ByteWriter writer;
  writer.number(static_cast<std::uint8_t>(kind));
  return writer;
}

ByteReader open_remote(std::span<const std::byte> message, RemoteKind kind) {
  if (remote_kind_of(message) != kind) refuse_remote("a message of another kind than was expected");
  return ByteReader(message.subspan(1));
}

template <class Tag>
std::size_t bytes_of(const RowSpec& spec, std::uint32_t rows) noexcept {
  std::size_t bytes = sizeof(Tag);
  for (const shm::TensorSpec& leaf : spec) bytes += leaf.bytes();
  return kHeadBytes + bytes * rows;
}

/// The message as far as its tags; the rest is zero.
template <class Tag>
Bytes begin_batch(RemoteKind kind, const RemoteBatch& batch, std::span<const Tag> tags,
                  const RowSpec& spec) {
  Bytes message(bytes_of<Tag>(spec, batch.rows));
  message[0] = static_cast<std::byte>(kind);
  std::memcpy(message.data() + 1, &batch, sizeof batch);
  std::memcpy(message.data() + kHeadBytes, tags.data(), tags.size_bytes());
  return message;
}

/// The tags of a message, and where its arrays begin. `texts`: bytes that may follow these.
template <class Tag>
std::vector<const std::byte*> view_batch(std::span<const std::byte> message, RemoteKind kind,
                                         const RowSpec& spec, std::vector<Tag>& tags,
                                         std::size_t& end) {
  if (remote_kind_of(message) != kind) refuse_remote("a message of another kind than was expected");
  const RemoteBatch batch = batch_of(message);
  const std::size_t most = (message.size() - kHeadBytes) / sizeof(Tag);
  if (batch.rows == 0 || batch.rows > most || bytes_of<Tag>(spec, batch.rows) > message.size())
    refuse_remote("a batch that is cut short");
  tags.resize(batch.rows);
  std::memcpy(tags.data(), message.data() + kHeadBytes, tags.size() * sizeof(Tag));
  std::size_t at = kHeadBytes + tags.size() * sizeof(Tag);
  std::vector<const std::byte*> leaves;
  for (const shm::TensorSpec& leaf : spec) {
    leaves.push_back(message.data() + at);
    at += leaf.bytes() * batch.rows;
  }
  end = at;
  return leaves;
}

}  // namespace

RemoteKind remote_kind_of(std::span<const std::byte> message) {
  const auto kind = static_cast<RemoteKind>(group::kind_byte_of(message));
  if (kind < RemoteKind::kOpen || kind > RemoteKind::kEnded)
    refuse_remote("a message that there is not in this version of Shoal");
  return kind;
}

Bytes pack_terms(const Terms& terms) {
  ByteWriter writer;
  writer.text(kProtocol);
  writer.number(static_cast<std::uint32_t>(terms.models.size()));
  for (const std::string& model : terms.models) writer.text(model);
  writer.number(terms.max_batch);
  writer.number(std::int64_t{terms.max_delay.count()});
  writer.number(terms.instances);
  writer.number(static_cast<std::uint8_t>(terms.restarts));
  writer.number(std::int64_t{terms.timeout.count()});
  writer.number(terms.most_rows);
  writer.number(terms.most_under_way);
  return writer.take();
}

Terms read_terms(std::span<const std::byte> content) {
  ByteReader reader(content);
  if (reader.text() != kProtocol) refuse_remote("terms of another version of Shoal");
  Terms terms;
  const auto models = reader.number<std::uint32_t>();
  if (models == 0 || models > kMostModels) refuse_remote("terms without models");
  for (std::uint32_t i = 0; i < models; ++i) terms.models.push_back(reader.text());
  terms.max_batch = reader.number<std::uint32_t>();
  terms.max_delay = std::chrono::nanoseconds(reader.number<std::int64_t>());
  terms.instances = reader.number<std::uint32_t>();
  terms.restarts = reader.number<std::uint8_t>() != 0;
  terms.timeout = std::chrono::nanoseconds(reader.number<std::int64_t>());
  terms.most_rows = reader.number<std::uint32_t>();
  terms.most_under_way = reader.number<std::uint32_t>();
  const bool good = terms.max_batch > 0 && terms.max_delay.count() >= 0 && terms.instances > 0 &&
                    terms.timeout.count() >= 0 && terms.most_rows > 0 && terms.most_under_way > 0;
  if (!good) refuse_remote("terms that no service has");
  return terms;
}

Bytes pack_remote(RemoteKind kind, std::uint32_t queue, std::span<const std::byte> encoded) {
  ByteWriter writer = begin_remote(kind);
  writer.number(queue);
  writer.bytes(encoded);
  return writer.take();
}

RemoteMessage read_remote(std::span<const std::byte> message) {
  ByteReader reader(message.subspan(1));
  RemoteMessage read{.queue = reader.number<std::uint32_t>(), .encoded = reader.bytes()};
  return read;
}

Bytes pack_ended(const std::string& why) {
  ByteWriter writer = begin_remote(RemoteKind::kEnded);
  writer.text(why);
  return writer.take();
}

std::string read_ended(std::span<const std::byte> message) {
  return open_remote(message, RemoteKind::kEnded).text();
}

bool fits_remote(const RowSpec& spec, std::uint32_t rows) noexcept {
  std::size_t bytes = sizeof(RowTag) + ClientSlots::kMaxTextBytes;
  for (const shm::TensorSpec& leaf : spec) {
    if (leaf.bytes() > kLongestRemote) return false;
    bytes += leaf.bytes();
  }
  return bytes <= (kLongestRemote - kHeadBytes) / rows;
}

Bytes pack_rows(const RemoteBatch& batch, std::span<const RowTag> tags, const RowSpec& spec,
                const RowSource& rows) {
  Bytes message = begin_batch(RemoteKind::kRows, batch, tags, spec);
  std::byte* to = message.data() + kHeadBytes + tags.size_bytes();
  for (std::size_t leaf = 0; leaf < spec.size(); ++leaf) {
    const std::size_t bytes = spec[leaf].bytes() * batch.rows;
    if (bytes != 0) std::memcpy(to, rows(leaf, 0), bytes);
    to += bytes;
  }
  return message;
}

Bytes pack_replies(const RemoteBatch& batch, std::span<const ReplyTag> tags, const RowSpec& spec,
                   const RowSource& rows,
                   const std::function<std::string_view(std::uint32_t row)>& texts) {
  Bytes message = begin_batch(RemoteKind::kReplies, batch, tags, spec);
  std::byte* to = message.data() + kHeadBytes + tags.size_bytes();
  for (std::size_t leaf = 0; leaf < spec.size(); ++leaf) {
    const std::size_t bytes = spec[leaf].bytes();
    for (std::uint32_t row = 0; row < batch.rows; ++row, to += bytes) {
      const std::byte* from = rows(leaf, row);
      if (from != nullptr && bytes != 0) std::memcpy(to, from, bytes);
    }
  }
  for (std::uint32_t row = 0; row < batch.rows; ++row) {
    if (tags[row].text_bytes == 0) continue;
    const auto text = std::as_bytes(std::span(texts(row))).first(tags[row].text_bytes);
    message.insert(message.end(), text.begin(), text.end());
  }
  return message;
}

RemoteBatch batch_of(std::span<const std::byte> message) {
  if (message.size() < kHeadBytes) refuse_remote("a batch that is cut short");
  RemoteBatch batch;
  std::memcpy(&batch, message.data() + 1, sizeof batch);
  return batch;
}

RowsView view_rows(std::span<const std::byte> message, const RowSpec& spec) {
  RowsView view;
  std::size_t end = 0;
  view.leaves = view_batch(message, RemoteKind::kRows, spec, view.tags, end);
  if (end != message.size()) refuse_remote("a batch of rows that is too long");
  return view;
}

RepliesView view_replies(std::span<const std::byte> message, const RowSpec& spec) {
  RepliesView view;
  std::size_t at = 0;
  view.leaves = view_batch(message, RemoteKind::kReplies, spec, view.tags, at);
  for (const ReplyTag& tag : view.tags) {
    if (tag.status > ReplyStatus::kDeadlineExceeded || tag.text_bytes > message.size() - at ||
        tag.text_bytes > ClientSlots::kMaxTextBytes)
      refuse_remote("a reply that there cannot be");
    view.texts.emplace_back(reinterpret_cast<const char*>(message.data()) + at, tag.text_bytes);
    at += tag.text_bytes;
  }
  if (at != message.size()) refuse_remote("a batch of replies that is too long");
  return view;
}

bool may_cross(std::span<const std::byte> structure) noexcept {
  return structure.empty() || structure.front() == kTextBegins;
}

}  // namespace shoal::serve
