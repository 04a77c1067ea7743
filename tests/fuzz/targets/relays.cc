// Model services across hosts: what a relay and a listener say to each other, behind the secret.
#include "../input.h"
#include "shoal/os/error.h"
#include "shoal/serve/remote/remote_messages.h"

namespace shoal::fuzz {
namespace {

using serve::RemoteKind;
using serve::RowSpec;

const RowSpec& spec_of(std::size_t which) {
  static const RowSpec specs[] = {
      {},
      {{shm::DType::kF32, {3}}},
      {{shm::DType::kI64, {2}}, {shm::DType::kU8, {5, 0}}, {shm::DType::kU8, {}}}};
  return specs[which % 3];
}

/// Reads all of the arrays, so that a sanitizer sees what lies beyond the message.
std::size_t sum(const RowSpec& spec, const std::vector<const std::byte*>& leaves,
                std::size_t rows) {
  std::size_t all = 0;
  for (std::size_t leaf = 0; leaf < spec.size(); ++leaf)
    for (std::size_t i = 0; i < spec[leaf].bytes() * rows; ++i)
      all += std::to_integer<std::size_t>(leaves[leaf][i]);
  return all;
}

void read_message(const RowSpec& spec, std::span<const std::byte> message) {
  switch (serve::remote_kind_of(message)) {
    case RemoteKind::kOpen: {
      const serve::Open open = serve::Open::decode(serve::read_remote(message).encoded);
      static_cast<void>(serve::may_cross(open.kind.structure));
      static_cast<void>(serve::fits_remote(open.kind.inputs, 2048));
      return;
    }
    case RemoteKind::kOpened:
      return static_cast<void>(serve::Opened::decode(serve::read_remote(message).encoded));
    case RemoteKind::kRefused:
      return static_cast<void>(serve::Refused::decode(serve::read_remote(message).encoded));
    case RemoteKind::kRows: {
      const serve::RowsView view = serve::view_rows(message, spec);
      SHOAL_CHECK(view.tags.size() == serve::batch_of(message).rows, "a row has a tag");
      static_cast<void>(sum(spec, view.leaves, view.tags.size()));
      return;
    }
    case RemoteKind::kReplies: {
      const serve::RepliesView view = serve::view_replies(message, spec);
      SHOAL_CHECK(view.texts.size() == view.tags.size(), "a row has a text");
      static_cast<void>(sum(spec, view.leaves, view.tags.size()));
      for (const std::string_view text : view.texts) static_cast<void>(std::string(text));
      return;
    }
    case RemoteKind::kEnded:
      return static_cast<void>(serve::read_ended(message));
  }
}

void read(Input input) {
  const auto which = input.take<std::uint8_t>();
  if (which >= 128) {
    const serve::Terms terms = serve::read_terms(input.rest());
    const serve::Terms again = serve::read_terms(serve::pack_terms(terms));
    SHOAL_CHECK(again.models == terms.models && again.most_rows == terms.most_rows,
                "terms are what was written");
    return;
  }
  const auto rest = input.rest();
  const Bytes message(rest.begin(), rest.end());  // so that its end is the end of a block
  read_message(spec_of(which), message);
}

Bytes of(std::uint8_t which, const Bytes& message) {
  return Output().put(which).put_bytes(message).take();
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all{
      of(128, serve::pack_terms(
                  {.models = {"a", "b"}, .max_batch = 64, .most_rows = 64, .most_under_way = 2})),
      of(0, serve::pack_ended("it has ended"))};
  const serve::RequestKind kind{
      .model = 1, .pinned = 2, .inputs = spec_of(1), .structure = {std::byte{'('}}};
  all.push_back(
      of(0, serve::pack_remote(RemoteKind::kOpen, 3, serve::Open{kind, 4, Bytes(12)}.encode())));
  all.push_back(
      of(0, serve::pack_remote(RemoteKind::kOpened, 3, serve::Opened{spec_of(2), {}}.encode())));
  all.push_back(
      of(0, serve::pack_remote(RemoteKind::kRefused, 3, serve::Refused{{}, "no", "why"}.encode())));
  const Bytes zeros(64);
  const auto rows = [&](std::size_t, std::uint32_t) { return zeros.data(); };
  const serve::RowTag tags[2] = {{.env = 1, .flags = 1, .age_ns = 5, .left_ns = 6}, {}};
  const serve::ReplyTag replies[2] = {{}, {serve::ReplyStatus::kModelError, 3, 4}};
  for (std::uint8_t which = 0; which < 3; ++which) {
    const serve::RemoteBatch batch{.queue = 1, .rows = 2, .number = 3};
    all.push_back(of(which, serve::pack_rows(batch, tags, spec_of(which), rows)));
    all.push_back(
        of(which, serve::pack_replies(batch, replies, spec_of(which), rows,
                                      [](std::uint32_t) { return std::string_view("why"); })));
  }
  return all;
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return shoal::fuzz::refused_at_most([&] { shoal::fuzz::read({data, size}); });
}
