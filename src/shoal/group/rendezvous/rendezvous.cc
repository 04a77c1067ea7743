#include "shoal/group/rendezvous/rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/group/rendezvous/approach.h"
#include "shoal/group/rendezvous/host_ranks.h"
#include "shoal/group/rendezvous/hosts.h"
#include "shoal/group/rendezvous/patience.h"
#include "shoal/group/rendezvous/roster.h"
#include "shoal/group/seal.h"

namespace shoal::group {

JoinOptions JoinOptions::from_environment() {
  JoinOptions options;
  options.secret = secret_of_environment();
  if (const char* star = std::getenv("SHOAL_GROUP_STAR"))
    options.star = std::string_view(star) == "1";
  return options;
}

Meeting meet(const Launch& launch, const JoinOptions& options, std::size_t arena_bytes) {
  validate(launch);
  Patience patience(launch, options);
  const bool loopback = launch.one_host() || rank_0_is_on_loopback(launch, patience);
  if (!loopback)
    require_secret(launch.address, options.secret,
                   fmt::format("join a group of {} ranks on several hosts", launch.size),
                   "for all ranks");
  Approach approach(launch, options, patience);
  const Member me{launch.rank, this_host(), static_cast<int>(::getpid())};
  if (launch.local_rank > 0) return follow_first_rank(launch, me, approach);

  HostRanks locals(launch, patience);
  std::vector<Member> here{me};
  for (Member& member : locals.members()) here.push_back(std::move(member));
  Meeting meeting;
  const Welcome welcome =
      launch.one_host()
          ? welcome_of({here}, launch.size, patience.describe())
          : Hosts(
                launch, options, patience, approach,
                {.members = here, .check = [&] { locals.check(); }, .rank_0_on_loopback = loopback})
                .meet(meeting);
  meeting.members = welcome.members;
  meeting.hosts = welcome.hosts;
  if (launch.local_size > 1) meeting.arena = shm::Arena::create("group", arena_bytes);
  for (Neighbour& child : locals.welcome(welcome, meeting.arena))
    meeting.children.push_back(std::move(child));
  return meeting;
}

}  // namespace shoal::group
