#include "shoal/process/identity/port_lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"
#include "shoal/process/identity/lease_socket.h"
#include "shoal/shm/arena.h"

namespace shoal::process {
namespace {

using os::testing::Child;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A few ports that nothing else on this machine uses now.
PortRange quiet_range(int count) {
  const PortRange all = PortRange::standard();
  const int start = all.first + (::getpid() * 37) % (all.last - all.first - 2000);
  for (int first = start;; ++first) {
    bool quiet = true;
    for (int port = first; port < first + count; ++port) {
      quiet = quiet && probe_port(SOCK_STREAM, port) == 0 && probe_port(SOCK_DGRAM, port) == 0;
    }
    if (quiet) return {first, first + count - 1};
  }
}

os::Fd bound(int type, int port) {
  os::Fd socket(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
  if (type == SOCK_STREAM) ::listen(socket.get(), 1);
  return socket;
}

std::string error_of_taking(const std::shared_ptr<PortOrder>& order, PortRange range,
                            PortKind kind = PortKind::kTcp) {
  try {
    PortLease::take(order, range, kind);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(PortLease, APortIsLeasedOnceAtATime) {
  const PortRange range = quiet_range(3);
  const auto order = PortOrder::create();
  const auto other_program = PortOrder::create();
  std::set<int> ports;
  std::vector<PortLease> leases;
  for (const auto& each : {order, other_program, order}) {
    leases.push_back(PortLease::take(each, range));
    ports.insert(leases.back().port());
  }
  EXPECT_EQ(ports.size(), 3u);
  EXPECT_GE(*ports.begin(), range.first);
  EXPECT_LE(*ports.rbegin(), range.last);
}

TEST(PortLease, TheHolderMayBindItsPort) {
  const PortLease tcp = PortLease::take(PortOrder::create());
  EXPECT_TRUE(bound(SOCK_STREAM, tcp.port()));
  const PortLease udp = PortLease::take(PortOrder::create(), PortRange::standard(), PortKind::kUdp);
  EXPECT_TRUE(bound(SOCK_DGRAM, udp.port()));
}

TEST(PortLease, TcpAndUdpDoNotMeet) {
  const PortRange range = quiet_range(1);
  const auto order = PortOrder::create();
  const PortLease tcp = PortLease::take(order, range, PortKind::kTcp);
  const PortLease udp = PortLease::take(order, range, PortKind::kUdp);
  EXPECT_EQ(tcp.port(), udp.port());
}

TEST(PortLease, WhatSomebodyBoundWithoutALeaseIsPassedOver) {
  const PortRange range = quiet_range(2);
  const os::Fd server = bound(SOCK_STREAM, range.first);
  ASSERT_TRUE(server);
  const auto order = PortOrder::create();
  const PortLease lease = PortLease::take(order, range);
  EXPECT_EQ(lease.port(), range.last);
  EXPECT_THAT(error_of_taking(order, range), HasSubstr("1 bound without a lease"));
}

TEST(PortLease, AnExhaustedRangeNamesTheHolders) {
  const PortRange range = quiet_range(1);
  const auto order = PortOrder::create();
  const PortLease lease = PortLease::take(order, range);
  EXPECT_THAT(error_of_taking(order, range),
              AllOf(HasSubstr("no tcp port from"), HasSubstr("1 leased"),
                    HasSubstr(std::to_string(range.first) + " by process " +
                              std::to_string(::getpid()) + " (")));
}

TEST(PortLease, RangesThatAreNoneAreRefused) {
  const auto order = PortOrder::create();
  for (const PortRange range : {PortRange{0, 5}, PortRange{5, 4}, PortRange{65000, 65536}}) {
    EXPECT_THROW(PortLease::take(order, range), InvalidArgument);
  }
}

TEST(PortLease, ReleasedPortsAreUsedAgainLast) {
  const PortRange range = quiet_range(4);
  const auto order = PortOrder::create();
  std::vector<int> ports;
  for (int i = 0; i < 8; ++i) {
    PortLease lease = PortLease::take(order, range);
    ports.push_back(lease.port());
    lease.release();
    lease.release();
    EXPECT_FALSE(lease);
  }
  EXPECT_EQ(std::set<int>(ports.begin(), ports.begin() + 4).size(), 4u);
  EXPECT_TRUE(std::equal(ports.begin(), ports.begin() + 4, ports.begin() + 4));
}

TEST(PortLease, AKilledHolderGivesItsPortBack) {
  const PortRange range = quiet_range(1);
  const shm::Arena ready = shm::Arena::create("ready", 64);
  const auto order = PortOrder::create();
  Child holder([&]() -> int {
    const PortLease lease = PortLease::take(order, range);
    *ready.at<volatile int>(0) = 1;
    for (;;) ::pause();
  });
  while (*ready.at<volatile int>(0) == 0) std::this_thread::yield();
  EXPECT_THAT(error_of_taking(order, range),
              HasSubstr("by process " + std::to_string(holder.pid())));
  holder.kill();
  EXPECT_EQ(PortLease::take(order, range).port(), range.first);
}

TEST(PortLease, AForkedChildDoesNotKeepIt) {
  const PortRange range = quiet_range(1);
  const auto order = PortOrder::create();
  PortLease lease = PortLease::take(order, range);
  Child child([&]() -> int {
    lease.release();  // an inert copy
    for (;;) ::pause();
  });
  ASSERT_TRUE(child.wait_until_asleep());
  EXPECT_THAT(error_of_taking(order, range), HasSubstr("1 leased"));
  lease.release();
  EXPECT_EQ(PortLease::take(order, range).port(), range.first);
}

TEST(PortLease, ThreadsAndProcessesGetDifferentPorts) {
  constexpr int kEach = 50;
  const PortRange range = quiet_range(3 * kEach);
  const auto order = PortOrder::create();
  const shm::Arena shared = shm::Arena::create("ports", 3 * kEach * sizeof(int));
  const auto take = [&](int who) {
    std::vector<PortLease> leases;
    for (int i = 0; i < kEach; ++i) {
      leases.push_back(PortLease::take(order, range));
      *shared.at<int>((static_cast<std::size_t>(who * kEach + i)) * sizeof(int)) =
          leases.back().port();
    }
    return leases;
  };
  std::vector<PortLease> own, of_thread;
  std::thread thread([&] { of_thread = take(0); });
  own = take(1);
  thread.join();
  Child child([&] { return static_cast<int>(take(2).size()) - kEach; });
  ASSERT_EQ(child.join(), os::ProcessEnd{});
  const int* ports = shared.at<int>(0, 3 * kEach);
  EXPECT_EQ(std::set<int>(ports, ports + 3 * kEach).size(), static_cast<std::size_t>(3 * kEach));
}

TEST(PortOrder, AnotherMappingGoesOnInTheSameOrder) {
  const auto order = PortOrder::create();
  const auto attached = PortOrder::attach(os::Fd::duplicate(order->fd()));
  EXPECT_EQ(order->ports(100, 120), attached->ports(100, 120));
  const int first = order->ports(100, 120).front();
  order->touch(first);
  EXPECT_EQ(attached->ports(100, 120).back(), first);
}

TEST(PortOrder, WhatIsNoneIsRefused) {
  const shm::Arena other = shm::Arena::create("other", 4096);
  EXPECT_THROW(PortOrder::attach(os::Fd::duplicate(other.fd())), Error);
}

}  // namespace
}  // namespace shoal::process
