#include "shoal/process/identity/shared_state.h"

#include <fmt/format.h>

#include <span>

#include "shoal/os/error.h"

namespace shoal::process {
namespace {

constexpr const char* kName = "shoal shared state";

std::span<std::byte> all(const shm::Arena& arena) { return {arena.base(), arena.size()}; }

}  // namespace

std::shared_ptr<SharedState> SharedState::create(std::size_t value_bytes) {
  constexpr std::size_t kLargest = std::size_t{1} << 30;
  if (value_bytes == 0 || value_bytes > kLargest) {
    throw InvalidArgument(fmt::format("a table of {} bytes for shared values: it takes 1 to {}",
                                      value_bytes, kLargest));
  }
  const std::size_t counter_bytes = shm::Counters::bytes(kCounters);
  shm::Arena arena = shm::Arena::create(kName, counter_bytes + SharedValues::bytes(value_bytes));
  const shm::Counters counters = shm::Counters::create(all(arena).first(counter_bytes), kCounters);
  const SharedValues values = SharedValues::create(all(arena).subspan(counter_bytes), value_bytes);
  return std::shared_ptr<SharedState>(new SharedState(std::move(arena), counters, values));
}

std::shared_ptr<SharedState> SharedState::attach(os::Fd fd) {
  shm::Arena arena = shm::Arena::attach(std::move(fd));
  const std::size_t counter_bytes = shm::Counters::bytes(kCounters);
  if (arena.name() != kName || arena.size() < counter_bytes) {
    throw Error(fmt::format("the arena \"{}\" is not a group's shared_state", arena.name()));
  }
  arena.close_fd();
  const shm::Counters counters = shm::Counters::attach(all(arena).first(counter_bytes));
  const SharedValues values = SharedValues::attach(all(arena).subspan(counter_bytes));
  return std::shared_ptr<SharedState>(new SharedState(std::move(arena), counters, values));
}

shm::Counter SharedState::counter(std::string_view name) {
  if (const auto known = counters_.find(name)) return *known;
  const HeldLock held(values_.lock(), "the table of counters");
  return counters_.find_or_add(name);
}

std::vector<std::pair<std::string, std::int64_t>> SharedState::counters() const {
  std::vector<std::pair<std::string, std::int64_t>> all;
  for (std::size_t i = 0; i < counters_.size(); ++i) {
    all.emplace_back(counters_[i].name(), counters_[i].value());
  }
  return all;
}

}  // namespace shoal::process
