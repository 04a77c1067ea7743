// A rank, as the others know it.
#pragma once

#include <string>

namespace shoal::group {

struct Member {
  int rank = 0;
  std::string host;  // the name of its machine
  int pid = 0;       // there
  bool operator==(const Member&) const = default;
};

/// The name of this machine.
std::string this_host();

}  // namespace shoal::group
