// Where a program listens, as people write it.
//
// Threads: a value.
#pragma once

#include <string>
#include <string_view>

namespace shoal::group {

struct HostPort {
  std::string host;  // a name or an address, without brackets
  int port = 0;      // 0 to 65535
};

/// "host:port", "[address]:port". Throws InvalidArgument for anything else; an address with colons has
/// to be in brackets.
HostPort parse_host_port(std::string_view text);

}  // namespace shoal::group
