// Who belongs to a group, who of it is there, and who is not.
//
// Threads: functions of their arguments.
#pragma once

#include <string>
#include <vector>

#include "shoal/group/launch.h"
#include "shoal/group/member.h"
#include "shoal/group/messages.h"
#include "shoal/group/rendezvous/reception.h"

namespace shoal::group {

/// Of the members of each host, rank 0's first. Throws Error, which begins with `who`, where ranks are
/// there twice, or missing.
Welcome welcome_of(const std::vector<std::vector<Member>>& hosts, int size, const std::string& who);

/// Whether each rank is a member, in order, and on one host.
bool has_all(const Welcome& welcome, int size);

/// How many of them were admitted.
int admitted(const std::vector<Guest>& guests);

/// Why one that says so does not belong on the host of this launch; empty: it does.
std::string local_objection(const Launch& launch, const Greeting& guest,
                            const std::vector<Guest>& others);
/// Why one that says so is no first rank of another host; empty: it is.
std::string remote_objection(const Launch& launch, const Greeting& guest);

/// "local ranks 1, 2": those of this host that are not among its guests.
std::string missing_locals(const Launch& launch, const std::vector<Guest>& guests);
/// "ranks 4, 5": those of all that are neither here nor among the hosts of the guests.
std::string missing_ranks(const Launch& launch, const std::vector<Member>& here,
                          const std::vector<Guest>& guests);

}  // namespace shoal::group
