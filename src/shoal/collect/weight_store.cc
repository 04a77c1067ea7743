#include "shoal/collect/weight_store.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/shm/header.h"

namespace shoal::collect {
namespace {

using sync::VersionedSlots;

constexpr char kMagic[] = {'S', 'H', 'O', 'A', 'L', 'W', 'T', 'S'};
constexpr std::size_t kSlotsOffset = 128;

std::size_t arena_bytes(std::size_t bytes, std::uint32_t slots) {
  return kSlotsOffset +
         VersionedSlots::words_needed(bytes, slots) * sizeof(sync::SystemAtomics::Word64);
}

/// The header of an arena, checked before it is believed.
WeightStoreHeader header_of(const shm::Arena& arena) {
  const auto header =
      shm::header_of<WeightStoreHeader>(arena, kMagic, kWeightStoreVersion, "weights");
  const bool fits = header.slots >= VersionedSlots::kMinSlots && header.bytes > 0 &&
                    header.bytes < arena.size() && header.slots < arena.size() &&
                    arena_bytes(header.bytes, header.slots) <= arena.size();
  if (!fits)
    throw Error(fmt::format("attach weights: {} slots of {} bytes do not fit into an arena of {}",
                            header.slots, header.bytes, arena.size()));
  return header;
}

VersionedSlots slots_in(const shm::Arena& arena) {
  const WeightStoreHeader header = header_of(arena);
  auto* words = arena.at<sync::SystemAtomics::Word64>(
      kSlotsOffset, VersionedSlots::words_needed(header.bytes, header.slots));
  return {words, header.bytes, header.slots};
}

}  // namespace

WeightStore::WeightStore(shm::Arena arena) : arena_(std::move(arena)), slots_(slots_in(arena_)) {}

WeightStore WeightStore::create(std::size_t bytes, std::uint32_t slots) {
  if (bytes == 0 || bytes > std::numeric_limits<std::size_t>::max() / 2 / (std::size_t{slots} + 1))
    throw InvalidArgument(fmt::format("weights of {} bytes cannot be shared", bytes));
  if (slots < VersionedSlots::kMinSlots)
    throw InvalidArgument(
        fmt::format("weights need {} slots or more, so that one can be read while "
                    "the next is written; got {}",
                    VersionedSlots::kMinSlots, slots));
  shm::Arena arena = shm::Arena::create("shoal weights", arena_bytes(bytes, slots));
  WeightStoreHeader header{
      .magic = {}, .version = kWeightStoreVersion, .slots = slots, .bytes = bytes};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  *arena.at<WeightStoreHeader>(0) = header;
  return WeightStore(std::move(arena));
}

WeightStore WeightStore::attach(os::Fd fd) {
  return WeightStore(shm::Arena::attach(std::move(fd)));
}

std::uint64_t WeightStore::publish(std::span<const std::byte> weights) {
  require_size(weights.size(), "publish");
  return slots_.write(weights.data());
}

std::uint64_t WeightStore::read(std::span<std::byte> weights) const {
  require_size(weights.size(), "read");
  return slots_.read(weights.data());
}

void WeightStore::require_size(std::size_t bytes, const char* what) const {
  if (bytes != this->bytes())
    throw InvalidArgument(
        fmt::format("{} weights of {} bytes: the store holds {}", what, bytes, this->bytes()));
}

}  // namespace shoal::collect
