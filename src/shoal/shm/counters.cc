#include "shoal/shm/counters.h"

#include <fmt/format.h>

#include <cstring>

#include "shoal/os/error.h"

namespace shoal::shm {
namespace {

constexpr std::uint32_t kMagic = 0x544e4353;  // "SCNT"

void check_memory(std::span<std::byte> memory, std::size_t capacity) {
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % alignof(CounterSlot) != 0) {
    throw InvalidArgument("a counter table must begin at a multiple of 64 bytes");
  }
  if (memory.size() < Counters::bytes(capacity)) {
    throw InvalidArgument(fmt::format("{} counters take {} bytes, there are {}", capacity,
                                      Counters::bytes(capacity), memory.size()));
  }
}

CountersHeader* header_of(std::span<std::byte> memory) {
  return reinterpret_cast<CountersHeader*>(memory.data());
}

std::span<CounterSlot> slots_of(std::span<std::byte> memory, std::size_t capacity) {
  return {reinterpret_cast<CounterSlot*>(memory.data() + sizeof(CountersHeader)), capacity};
}

}  // namespace

std::size_t Counters::bytes(std::size_t capacity) noexcept {
  return sizeof(CountersHeader) + capacity * sizeof(CounterSlot);
}

Counters Counters::create(std::span<std::byte> memory, std::size_t capacity) {
  check_memory(memory, capacity);
  CountersHeader* header = header_of(memory);
  header->capacity = static_cast<std::uint32_t>(capacity);
  header->count.store(0, std::memory_order_relaxed);
  header->magic = kMagic;
  return {header, slots_of(memory, capacity)};
}

Counters Counters::attach(std::span<std::byte> memory) {
  check_memory(memory, 0);
  CountersHeader* header = header_of(memory);
  if (header->magic != kMagic) throw Error("there is no counter table in this memory");
  const std::size_t capacity = header->capacity;  // read once: what is checked is what is used
  check_memory(memory, capacity);
  return {header, slots_of(memory, capacity)};
}

std::size_t Counters::size() const noexcept {
  const std::size_t count = header_->count.load(std::memory_order_acquire);  // [named]
  return count < slots_.size() ? count : slots_.size();
}

std::optional<Counter> Counters::find(std::string_view name) const noexcept {
  for (CounterSlot& slot : slots_.first(size())) {
    if (name == Counter(&slot).name()) return Counter(&slot);
  }
  return std::nullopt;
}

Counter Counters::find_or_add(std::string_view name) const {
  if (const auto known = find(name)) return *known;
  if (name.empty() || name.size() > CounterSlot::kMaxNameBytes ||
      name.find('\0') != std::string_view::npos) {
    throw InvalidArgument(
        fmt::format("a counter named \"{}\": a name has 1 to {} bytes, none of them 0", name,
                    CounterSlot::kMaxNameBytes));
  }
  const std::size_t count = size();
  if (count == slots_.size()) {
    throw InvalidArgument(fmt::format(
        "no room for a counter \"{}\": there are {} already, which is all that the table holds. "
        "Counters are for a few totals; give values that differ in their name a place of their own",
        name, count));
  }
  CounterSlot& slot = slots_[count];
  slot.value.store(0, std::memory_order_relaxed);
  std::memset(slot.name, 0, sizeof slot.name);
  std::memcpy(slot.name, name.data(), name.size());
  header_->count.store(static_cast<std::uint32_t>(count + 1),
                       std::memory_order_release);  // [named]
  return Counter(&slot);
}

}  // namespace shoal::shm
