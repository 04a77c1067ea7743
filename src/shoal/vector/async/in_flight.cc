#include "shoal/vector/async/in_flight.h"

#include <fmt/format.h>

#include <algorithm>

#include "shoal/vector/async_errors.h"

namespace shoal::vector {
namespace {

constexpr std::size_t kMostNamed = 8;

std::string enumerate(const std::vector<std::string>& names) {
  std::string text = names.size() == 1 ? "environment " : "environments ";
  const std::size_t named = std::min(names.size(), kMostNamed);
  for (std::size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == names.size();
    if (i > 0) text += last ? " and " : ", ";
    text += names[i];
  }
  if (names.size() > named) text += fmt::format(" and {} more", names.size() - named);
  return text;
}

}  // namespace

std::string describe_envs(std::span<const std::int64_t> ids) {
  std::vector<std::string> names;
  for (const std::int64_t id : ids) names.push_back(fmt::format("{}", id));
  return enumerate(names);
}

void refuse_busy(std::span<const std::int64_t> busy) {
  if (busy.empty()) return;
  const bool one = busy.size() == 1;
  throw AlreadyInFlight(fmt::format(
      "send: {} {} in flight already; recv() until {} back, then send again. Nothing was sent",
      describe_envs(busy), one ? "is" : "are", one ? "it is" : "they are"));
}

void check_env_ids(const char* call, std::span<const std::int64_t> ids,
                   std::span<std::uint8_t> seen) {
  const auto num_envs = static_cast<std::int64_t>(seen.size());
  std::vector<std::int64_t> outside, twice;
  std::size_t checked = 0;
  for (; checked < ids.size(); ++checked) {
    const std::int64_t id = ids[checked];
    if (id < 0 || id >= num_envs) {
      outside.push_back(id);
    } else if (seen[static_cast<std::size_t>(id)]++ == 1) {
      twice.push_back(id);
    }
  }
  for (const std::int64_t id : ids) {
    if (id >= 0 && id < num_envs) seen[static_cast<std::size_t>(id)] = 0;
  }
  if (!outside.empty()) {
    throw InvalidArgument(fmt::format("{}: there is no {}; their ids are 0 to {}", call,
                                      describe_envs(outside), num_envs - 1));
  }
  if (!twice.empty()) {
    throw InvalidArgument(
        fmt::format("{}: {} came twice; send each at most once until recv() has returned it", call,
                    describe_envs(twice)));
  }
}

bool InFlight::sendable(std::span<const std::int64_t> ids) noexcept {
  // An environment that is skipped for 2^32 looks is mistaken for one that came twice.
  ++looks_;
  bool all = true;
  for (const std::int64_t id : ids) {
    if (static_cast<std::uint64_t>(id) >= envs_.size()) return false;
    Env& env = envs_[static_cast<std::size_t>(id)];
    all = all && env.was_reset && !env.in_flight && env.look != looks_;
    env.look = looks_;
  }
  return all;
}

void InFlight::require_sendable(std::span<const std::int64_t> ids) const {
  std::vector<std::int64_t> busy, fresh;
  for (const std::int64_t id : ids) {
    const Env& env = envs_[static_cast<std::size_t>(id)];
    if (env.in_flight) busy.push_back(id);
    if (!env.was_reset) fresh.push_back(id);
  }
  refuse_busy(busy);
  if (!fresh.empty()) {
    throw NotReset(fmt::format(
        "send: {} {} not been reset yet; call reset() or async_reset() first. Nothing was sent",
        describe_envs(fresh), fresh.size() == 1 ? "has" : "have"));
  }
}

std::vector<std::int64_t> InFlight::ids() const {
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < envs_.size(); ++i) {
    if (envs_[i].in_flight) ids.push_back(static_cast<std::int64_t>(i));
  }
  return ids;
}

std::string InFlight::describe_late(std::span<const std::int64_t> ids, std::uint64_t now_ns) const {
  std::vector<std::string> names;
  for (const std::int64_t id : ids) {
    const double seconds =
        static_cast<double>(now_ns - envs_[static_cast<std::size_t>(id)].sent_ns) * 1e-9;
    names.push_back(fmt::format("{} (for {:.3g} s)", id, seconds));
  }
  return enumerate(names);
}

}  // namespace shoal::vector
