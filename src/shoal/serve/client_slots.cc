#include "shoal/serve/client_slots.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shoal/shm/layout.h"

namespace shoal::serve {
namespace {

constexpr std::uint32_t kMagic = 0x544f4c53;  // "SLOT"
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kMaxSlots = 1u << 20;

struct Offsets {
  std::size_t cells = 0, outputs = 0, bytes = 0, stride = 0;
};

Offsets offsets_of(const RowSpec& outputs, std::uint32_t slots) {
  shm::LayoutBuilder builder;
  Offsets offsets;
  offsets.stride = std::max(row_bytes(outputs), ClientSlots::kMaxTextBytes);
  builder.add<ClientSlotsHeader>();
  offsets.cells = builder.add<SlotCell>(slots);
  offsets.outputs = builder.add_bytes(offsets.stride * slots, 4096);
  offsets.bytes = builder.bytes(4096);
  return offsets;
}

}  // namespace

ClientSlots::ClientSlots(shm::Arena arena, const RowSpec& outputs, std::uint32_t id,
                         std::uint32_t slots)
    : arena_(std::move(arena)), id_(id), slots_(slots), header_(arena_.at<ClientSlotsHeader>(0)) {
  const Offsets offsets = offsets_of(outputs, slots);
  cells_ = arena_.at<SlotCell>(offsets.cells, slots);
  outputs_ = arena_.base() + offsets.outputs;
  stride_ = offsets.stride;
  std::size_t at = 0;
  for (const shm::TensorSpec& leaf : outputs) {
    leaf_offsets_.push_back(at);
    leaf_bytes_.push_back(leaf.bytes());
    at += aligned_bytes(leaf);
  }
}

std::unique_ptr<ClientSlots> ClientSlots::create(std::uint32_t id, const RowSpec& outputs,
                                                 std::uint32_t slots) {
  slots = std::clamp(slots, 1u, kMaxSlots);
  shm::Arena arena = shm::Arena::create("shoal-serve-slots", offsets_of(outputs, slots).bytes);
  std::unique_ptr<ClientSlots> made(new ClientSlots(std::move(arena), outputs, id, slots));
  made->header_->magic = kMagic;
  made->header_->version = kVersion;
  made->header_->id = id;
  made->header_->slots = slots;
  return made;
}

std::unique_ptr<ClientSlots> ClientSlots::attach(os::Fd fd, const RowSpec& outputs) {
  shm::Arena arena = shm::Arena::attach(std::move(fd));
  const auto* header =
      arena.size() < sizeof(ClientSlotsHeader) ? nullptr : arena.at<ClientSlotsHeader>(0);
  const bool known = header != nullptr && header->magic == kMagic && header->version == kVersion;
  const std::uint32_t slots = known ? header->slots : 0;
  if (!known || slots > kMaxSlots || offsets_of(outputs, slots).bytes > arena.size()) {
    throw Error("these are no slots of a model service for replies of " + describe(outputs));
  }
  arena.close_fd();
  const std::uint32_t id = header->id;
  return std::unique_ptr<ClientSlots>(new ClientSlots(std::move(arena), outputs, id, slots));
}

void ClientSlots::set_text(std::uint32_t slot, std::string_view text) const noexcept {
  if (text.size() > kMaxTextBytes) {
    text.remove_prefix(text.size() - kMaxTextBytes);
    const auto goes_on = [](char byte) {
      return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
    };
    text = {std::ranges::find_if_not(text, goes_on), text.end()};
  }
  cells_[slot].text_bytes = static_cast<std::uint32_t>(text.size());
  std::memcpy(outputs_ + std::size_t{slot} * stride_, text.data(), text.size());
}

std::string_view ClientSlots::text(std::uint32_t slot) const noexcept {
  const std::size_t bytes = std::min<std::size_t>(cells_[slot].text_bytes, kMaxTextBytes);
  return {reinterpret_cast<const char*>(outputs_ + std::size_t{slot} * stride_), bytes};
}

}  // namespace shoal::serve
