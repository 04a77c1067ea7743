#include "shoal/group/host_port.h"

#include <gtest/gtest.h>

#include "shoal/os/error.h"

namespace shoal::group {
namespace {

TEST(HostPort, IsTakenApart) {
  EXPECT_EQ(parse_host_port("node1:7000").host, "node1");
  EXPECT_EQ(parse_host_port("node1:0").port, 0);
  EXPECT_EQ(parse_host_port("[::1]:80").host, "::1");
  EXPECT_EQ(parse_host_port("[::1]:80").port, 80);
}

TEST(HostPort, WhatIsNoneIsAnError) {
  for (const char* bad :
       {"", "7000", "host:", ":7000", "host:x", "host:70000", "host:-1", "host:80x", "host:80 ",
        "::1:80", "fe80::1:80", "[::1:80", "[]:80", "[::1]80", "[::1]"})
    EXPECT_THROW(parse_host_port(bad), InvalidArgument) << bad;
}

}  // namespace
}  // namespace shoal::group
