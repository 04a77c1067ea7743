#include "shoal/group/rendezvous/roster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>

#include "shoal/os/error.h"

namespace shoal::group {
namespace {

/// Empty: it is of this attempt, and of as many.
std::string other_group(const Launch& launch, const Greeting& guest) {
  if (guest.attempt != launch.attempt)
    return fmt::format("here is attempt '{}', and rank {} is of attempt '{}'", launch.attempt,
                       guest.rank, guest.attempt);
  if (guest.size != launch.size)
    return fmt::format("here is a group of {}, and rank {} is of one of {}", launch.size,
                       guest.rank, guest.size);
  return "";
}

std::string list(const char* what, const std::vector<int>& ranks) {
  return fmt::format("{}{} {}", what, ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

Welcome welcome_of(const std::vector<std::vector<Member>>& hosts, int size,
                   const std::string& who) {
  Welcome welcome;
  for (const auto& members : hosts) {
    auto& ranks = welcome.hosts.emplace_back();
    for (const Member& member : members) {
      ranks.push_back(member.rank);
      welcome.members.push_back(member);
    }
  }
  std::ranges::sort(welcome.members, {}, &Member::rank);
  if (!has_all(welcome, size))
    throw Error(
        who +
        ": ranks are there twice, or missing: the launcher's variables contradict each other");
  return welcome;
}

bool has_all(const Welcome& welcome, int size) {
  const auto count = static_cast<std::size_t>(size);
  std::vector<bool> there(count);
  std::size_t found = 0;
  for (const auto& ranks : welcome.hosts) {
    if (ranks.empty()) return false;
    for (const int rank : ranks) {
      const auto at = static_cast<std::size_t>(rank);
      if (rank < 0 || rank >= size || there[at]) return false;
      there[at] = true;
      ++found;
    }
  }
  if (found != count || welcome.members.size() != count) return false;
  for (std::size_t rank = 0; rank < count; ++rank)
    if (welcome.members[rank].rank != static_cast<int>(rank)) return false;
  return true;
}

int admitted(const std::vector<Guest>& guests) {
  return static_cast<int>(
      std::ranges::count_if(guests, [](const Guest& guest) { return guest.greeting.has_value(); }));
}

std::string local_objection(const Launch& launch, const Greeting& guest,
                            const std::vector<Guest>& others) {
  if (const std::string other = other_group(launch, guest); !other.empty()) return other;
  if (guest.members.size() != 1 || guest.members.front().rank != guest.rank || guest.rank < 0 ||
      guest.rank >= launch.size)
    return fmt::format("rank {} is none of {}", guest.rank, launch.size);
  if (guest.local_rank < 1 || guest.local_rank >= launch.local_size)
    return fmt::format("local rank {} is none of {}", guest.local_rank, launch.local_size);
  for (const Guest& other : others)
    if (other.greeting && other.greeting->local_rank == guest.local_rank)
      return fmt::format("local rank {} is rank {} already, so it is not rank {}", guest.local_rank,
                         other.greeting->rank, guest.rank);
  return "";
}

std::string remote_objection(const Launch& launch, const Greeting& guest) {
  if (const std::string other = other_group(launch, guest); !other.empty()) return other;
  if (guest.members.empty() || guest.members.front().rank != guest.rank)
    return fmt::format("rank {} does not speak for its host", guest.rank);
  for (const Member& member : guest.members)
    if (member.rank < 1 || member.rank >= launch.size)
      return fmt::format("rank {} is none of {}", member.rank, launch.size);
  return "";
}

std::string missing_locals(const Launch& launch, const std::vector<Guest>& guests) {
  std::vector<int> missing;
  for (int local = 1; local < launch.local_size; ++local)
    if (std::ranges::none_of(guests, [&](const Guest& guest) {
          return guest.greeting && guest.greeting->local_rank == local;
        }))
      missing.push_back(local);
  return list("local rank", missing);
}

std::string missing_ranks(const Launch& launch, const std::vector<Member>& here,
                          const std::vector<Guest>& guests) {
  std::vector<bool> there(static_cast<std::size_t>(launch.size));
  const auto mark = [&](const std::vector<Member>& members) {
    for (const Member& member : members) there[static_cast<std::size_t>(member.rank)] = true;
  };
  mark(here);
  for (const Guest& guest : guests)
    if (guest.greeting) mark(guest.greeting->members);
  std::vector<int> missing;
  for (int rank = 0; rank < launch.size; ++rank)
    if (!there[static_cast<std::size_t>(rank)]) missing.push_back(rank);
  return list("rank", missing);
}

}  // namespace shoal::group
