#include "shoal/shm/counters.h"

#include <fmt/format.h>

#include <cstring>

#include "shoal/os/error.h"

namespace shoal::shm {
namespace {

constexpr std::uint32_t kMagic = 0x544e4353;  // "SCNT"

struct alignas(64) CountersHeader {
  std::uint32_t magic;
  std::uint32_t count;
};
static_assert(sizeof(CountersHeader) == 64);

CounterSlot* first_slot(std::span<std::byte> memory) {
  return reinterpret_cast<CounterSlot*>(memory.data() + sizeof(CountersHeader));
}

void check_memory(std::span<std::byte> memory, std::size_t count) {
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % alignof(CounterSlot) != 0) {
    throw InvalidArgument("a counter table must begin at a multiple of 64 bytes");
  }
  if (memory.size() < Counters::bytes(count)) {
    throw InvalidArgument(fmt::format("{} counters take {} bytes, there are {}", count,
                                      Counters::bytes(count), memory.size()));
  }
}

}  // namespace

std::size_t Counters::bytes(std::size_t count) noexcept {
  return sizeof(CountersHeader) + count * sizeof(CounterSlot);
}

Counters Counters::create(std::span<std::byte> memory, std::span<const std::string> names) {
  check_memory(memory, names.size());
  CounterSlot* slots = first_slot(memory);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    if (name.empty() || name.size() > CounterSlot::kMaxNameBytes) {
      throw InvalidArgument(fmt::format("a counter named \"{}\": a name has 1 to {} bytes", name,
                                        CounterSlot::kMaxNameBytes));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (names[j] == name) throw InvalidArgument(fmt::format("two counters named \"{}\"", name));
    }
    slots[i].value.store(0, std::memory_order_relaxed);
    std::memset(slots[i].name, 0, sizeof slots[i].name);
    std::memcpy(slots[i].name, name.data(), name.size());
  }
  const CountersHeader header{kMagic, static_cast<std::uint32_t>(names.size())};
  std::memcpy(memory.data(), &header, sizeof header);
  return Counters(std::span<CounterSlot>(slots, names.size()));
}

Counters Counters::attach(std::span<std::byte> memory) {
  check_memory(memory, 0);
  CountersHeader header;
  std::memcpy(&header, memory.data(), sizeof header);
  if (header.magic != kMagic) throw Error("there is no counter table in this memory");
  check_memory(memory, header.count);
  return Counters(std::span<CounterSlot>(first_slot(memory), header.count));
}

std::optional<Counter> Counters::find(std::string_view name) const noexcept {
  for (CounterSlot& slot : slots_) {
    if (name == slot.name) return Counter(&slot);
  }
  return std::nullopt;
}

}  // namespace shoal::shm
