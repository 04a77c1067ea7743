#include "shoal/process/identity/shared_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "shoal/os/error.h"

namespace shoal::process {
namespace {

constexpr std::uint32_t kMagic = 0x4c415653;  // "SVAL"
constexpr std::size_t kHeadBytes = sizeof(SharedValuesHeader) + sizeof(sync::RobustLock);
constexpr std::size_t kEntryHeadBytes = sizeof(std::uint64_t) + 2 * sizeof(std::uint32_t);

std::size_t half_bytes(std::size_t capacity) noexcept {
  return (sizeof(std::uint64_t) + capacity + 63) / 64 * 64;
}

struct Entry {
  std::uint64_t version;
  std::string_view name;
  std::span<const std::byte> value;
  std::span<const std::byte> whole;
};

/// Takes the first entry off `entries`; nothing when there is none left, or only bytes that no
/// writer of ours left.
std::optional<Entry> take(std::span<const std::byte>& entries) {
  if (entries.size() < kEntryHeadBytes) return {};
  Entry entry;
  std::uint32_t name_bytes;
  std::uint32_t value_bytes;
  std::memcpy(&entry.version, entries.data(), 8);
  std::memcpy(&name_bytes, entries.data() + 8, 4);
  std::memcpy(&value_bytes, entries.data() + 12, 4);
  const std::size_t bytes = kEntryHeadBytes + std::size_t{name_bytes} + value_bytes;
  if (bytes > entries.size()) return {};
  entry.name = {reinterpret_cast<const char*>(entries.data() + kEntryHeadBytes), name_bytes};
  entry.value = entries.subspan(kEntryHeadBytes + name_bytes, value_bytes);
  entry.whole = entries.first(bytes);
  entries = entries.subspan(bytes);
  return entry;
}

std::optional<Entry> find(std::span<const std::byte> entries, std::string_view name) {
  while (const auto entry = take(entries)) {
    if (entry->name == name) return entry;
  }
  return {};
}

bool fits(const std::optional<Entry>& found, std::optional<std::uint64_t> expected) {
  return !expected || *expected == (found ? found->version : 0);
}

void append(std::vector<std::byte>& to, const void* data, std::size_t count) {
  const auto* bytes = static_cast<const std::byte*>(data);
  to.insert(to.end(), bytes, bytes + count);
}

void append_entry(std::vector<std::byte>& to, std::uint64_t version, std::string_view name,
                  std::span<const std::byte> value) {
  const auto name_bytes = static_cast<std::uint32_t>(name.size());
  const auto value_bytes = static_cast<std::uint32_t>(value.size());
  append(to, &version, sizeof version);
  append(to, &name_bytes, sizeof name_bytes);
  append(to, &value_bytes, sizeof value_bytes);
  append(to, name.data(), name.size());
  append(to, value.data(), value.size());
}

}  // namespace

HeldLock::HeldLock(sync::RobustLock& lock, const char* what) : lock_(lock) {
  // kOwnerDied needs no repair: what these locks protect is whole at every line of its writers.
  if (lock_.lock(os::deadline_after(SharedValues::kLockTimeout)) == sync::LockOutcome::kTimedOut) {
    throw TimedOut(fmt::format(
        "{} could not be locked within {} s: the process that holds the lock does not run (is it "
        "stopped, by SIGSTOP or a debugger?)",
        what, SharedValues::kLockTimeout.count()));
  }
}

std::size_t SharedValues::bytes(std::size_t capacity) noexcept {
  return kHeadBytes + 2 * half_bytes(capacity);
}

SharedValues::SharedValues(SharedValuesHeader* header, std::size_t capacity) noexcept
    : header_(header),
      lock_(reinterpret_cast<sync::RobustLock*>(reinterpret_cast<std::byte*>(header) +
                                                sizeof(SharedValuesHeader))),
      capacity_(capacity) {}

SharedValues SharedValues::create(std::span<std::byte> memory, std::size_t capacity) {
  if (memory.size() < bytes(capacity)) {
    throw InvalidArgument(fmt::format("shared values of {} bytes take {} bytes, there are {}",
                                      capacity, bytes(capacity), memory.size()));
  }
  auto* header = reinterpret_cast<SharedValuesHeader*>(memory.data());
  header->capacity = capacity;
  const SharedValues values(header, capacity);
  values.lock_->init();
  header->magic = kMagic;
  return values;
}

SharedValues SharedValues::attach(std::span<std::byte> memory) {
  auto* header = reinterpret_cast<SharedValuesHeader*>(memory.data());
  const bool known = memory.size() >= kHeadBytes && header->magic == kMagic;
  const std::uint64_t capacity = known ? header->capacity : 0;  // what is checked is what is used
  if (!known || capacity > memory.size() || memory.size() < bytes(capacity)) {
    throw Error("there is no table of shared values in this memory");
  }
  return {header, capacity};
}

std::byte* SharedValues::half(std::uint64_t generation) const noexcept {
  return reinterpret_cast<std::byte*>(header_) + kHeadBytes +
         (generation % 2) * half_bytes(capacity_);
}

// The entries of the half in force; the caller holds the lock.
std::span<const std::byte> SharedValues::entries() const {
  // relaxed, here and below: the lock orders it
  const std::byte* in_force = half(header_->generation.load(std::memory_order_relaxed));
  std::uint64_t used;
  std::memcpy(&used, in_force, sizeof used);
  return {in_force + sizeof used, used <= capacity_ ? used : 0};
}

void SharedValues::publish(std::span<const std::byte> entries) const {
  const std::uint64_t next = header_->generation.load(std::memory_order_relaxed) + 1;
  const std::uint64_t used = entries.size();
  std::byte* other = half(next);
  std::memcpy(other, &used, sizeof used);
  std::copy(entries.begin(), entries.end(), other + sizeof used);
  // release: a killed process has done a prefix of its program, so the half is written before this
  header_->generation.store(next, std::memory_order_release);
}

std::optional<SharedValue> SharedValues::get(std::string_view name) const {
  const HeldLock held(*lock_, "the shared values");
  const auto found = find(entries(), name);
  if (!found) return {};
  return SharedValue{{found->value.begin(), found->value.end()}, found->version};
}

std::vector<std::string> SharedValues::names() const {
  const HeldLock held(*lock_, "the shared values");
  std::vector<std::string> names;
  for (auto left = entries(); const auto entry = take(left);) names.emplace_back(entry->name);
  return names;
}

bool SharedValues::set(std::string_view name, std::span<const std::byte> value,
                       std::optional<std::uint64_t> expected) const {
  const NamedBytes one{name, value};
  return set({&one, 1}, expected);
}

bool SharedValues::set(std::span<const NamedBytes> values,
                       std::optional<std::uint64_t> expected) const {
  for (const NamedBytes& value : values) {
    if (value.name.size() + value.bytes.size() <= capacity_) continue;  // fits an entry's fields
    throw InvalidArgument(fmt::format(
        "the value \"{}\" takes {} bytes and all shared values together may take {}: share what is "
        "small, or make the table larger with worker=shoal.WorkerOptions(shared_bytes=…)",
        value.name.substr(0, 100), value.bytes.size(), capacity_));
  }
  const HeldLock held(*lock_, "the shared values");
  const bool as_expected = values.empty() || fits(find(entries(), values.front().name), expected);
  if (!as_expected) return false;
  const std::uint64_t version = header_->generation.load(std::memory_order_relaxed) + 1;
  const auto is_new = [&](const NamedBytes& value) { return !find(entries(), value.name); };
  std::vector<std::byte> next;
  for (auto left = entries(); const auto entry = take(left);) {
    const auto change = std::ranges::find(values, entry->name, &NamedBytes::name);
    if (change == values.end()) {
      append(next, entry->whole.data(), entry->whole.size());
    } else {
      append_entry(next, version, change->name, change->bytes);
    }
  }
  for (const NamedBytes& value : values) {
    if (is_new(value)) append_entry(next, version, value.name, value.bytes);
  }
  if (next.size() > capacity_) {
    throw InvalidArgument(fmt::format(
        "with \"{}\" the shared values would take {} bytes, more than the {} that there are: take "
        "some out, or make the table larger with worker=shoal.WorkerOptions(shared_bytes=…)",
        values.front().name.substr(0, 100), next.size(), capacity_));
  }
  publish(next);
  return true;
}

bool SharedValues::erase(std::string_view name, std::optional<std::uint64_t> expected) const {
  const HeldLock held(*lock_, "the shared values");
  const auto found = find(entries(), name);
  if (!found || !fits(found, expected)) return false;
  std::vector<std::byte> next;
  for (auto left = entries(); const auto entry = take(left);) {
    if (entry->name != name) append(next, entry->whole.data(), entry->whole.size());
  }
  publish(next);
  return true;
}

void SharedValues::clear() const {
  const HeldLock held(*lock_, "the shared values");
  publish({});
}

}  // namespace shoal::process
