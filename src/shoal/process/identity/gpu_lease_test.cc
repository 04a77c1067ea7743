#include "shoal/process/identity/gpu_lease.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"

namespace shoal::process {
namespace {

/// Devices that no other test of this machine leases.
std::vector<std::string> devices(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(fmt::format("test-{}-{}", ::getpid(), i));
  return names;
}

TEST(GpuLease, DevicesFillEvenly) {
  const auto all = devices(2);
  std::vector<GpuLease> leases;
  for (const auto& [device, place] :
       {std::pair{0, 0}, std::pair{1, 0}, std::pair{0, 1}, std::pair{1, 1}, std::pair{0, 2}}) {
    leases.push_back(GpuLease::take(all));
    EXPECT_EQ(leases.back().device(), all[static_cast<std::size_t>(device)]);
    EXPECT_EQ(leases.back().place(), place);
    EXPECT_TRUE(leases.back());
  }
  leases[1].release();
  EXPECT_FALSE(leases[1]);
  EXPECT_EQ(GpuLease::take(all).device(), all[1]);
}

TEST(GpuLease, ADeadHoldersPlaceIsFree) {
  const auto all = devices(1);
  os::testing::Child holder([&] {
    const GpuLease lease = GpuLease::take(all);
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  static_cast<void>(holder.join());
  EXPECT_EQ(GpuLease::take(all).place(), 0);
}

TEST(GpuLease, AForkedChildHoldsNothing) {
  const auto all = devices(1);
  GpuLease lease = GpuLease::take(all);
  os::testing::Child child([&] { return lease ? 1 : 0; });
  EXPECT_EQ(child.join(), os::ProcessEnd{});
  EXPECT_TRUE(lease);
  EXPECT_EQ(GpuLease::take(all).place(), 1);
}

TEST(GpuLease, NoDevicesAndNoNamesAreRefused) {
  EXPECT_THROW(GpuLease::take({}), InvalidArgument);
  EXPECT_THROW(GpuLease::take(std::vector<std::string>{""}), InvalidArgument);
}

}  // namespace
}  // namespace shoal::process
