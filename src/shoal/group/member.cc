#include "shoal/group/member.h"

#include <unistd.h>

#include <array>

namespace shoal::group {

std::string this_host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace shoal::group
