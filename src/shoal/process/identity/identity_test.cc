#include "shoal/process/identity/identity.h"

#include <gtest/gtest.h>

#include <thread>

#include "shoal/os/testing/child.h"
#include "shoal/process/identity/welcome.h"

namespace shoal::process {
namespace {

// In a child, for what a plain process shares with its children stays open until it ends.
TEST(Identity, APlainProcessIsWorkerZeroOfOne) {
  os::testing::Child child([] {
    EXPECT_FALSE(started_worker().has_value());
    const Place place = this_worker().place();
    EXPECT_EQ(place.index, 0);
    EXPECT_EQ(place.num_workers, 1);
    EXPECT_FALSE(place.is_worker);
    EXPECT_EQ(this_worker().env_index(), Identity::kNoEnv);
    this_worker().counter("plain").add();
    EXPECT_EQ(this_worker().counter("plain").value(), 1);
    EXPECT_TRUE(this_worker().lease_port());
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(child.join(), os::ProcessEnd{});
}

TEST(Identity, KnowsTheEnvironmentThatRunsAndItsSeed) {
  const Identity identity({.index = 1, .num_workers = 2, .first_env = 4, .num_envs = 2});
  identity.set_seed(4, 40);
  identity.set_seed(6, 60);  // another worker's
  identity.enter(4);
  EXPECT_EQ(identity.env_index(), 4);
  EXPECT_EQ(identity.seed(identity.env_index()), 40u);
  EXPECT_FALSE(identity.seed(5).has_value());
  EXPECT_FALSE(identity.seed(6).has_value());
  EXPECT_FALSE(identity.seed(3).has_value());
  identity.leave();
  EXPECT_FALSE(identity.seed(identity.env_index()).has_value());
}

TEST(Identity, TheInnermostScopeOfAThreadDecides) {
  const Identity process({.index = 1}), outer({.index = 2}), inner({.index = 3});
  become(process);
  EXPECT_EQ(this_worker(), process);
  {
    const IdentityScope in_outer(outer);
    this_worker().enter(7);
    {
      const IdentityScope in_inner(inner);
      EXPECT_EQ(this_worker(), inner);
      EXPECT_EQ(this_worker().env_index(), Identity::kNoEnv);
      std::thread([&] { EXPECT_EQ(this_worker(), process); }).join();
    }
    EXPECT_EQ(this_worker(), outer);
    EXPECT_EQ(this_worker().env_index(), 7);
  }
  EXPECT_EQ(this_worker(), process);
  become({});
  EXPECT_FALSE(started_worker().has_value());
}

TEST(Identity, ThreadsOfOneWorkerRunEnvironmentsOfTheirOwn) {
  const Identity identity({.num_envs = 2});
  const IdentityScope here(identity);
  identity.enter(0);
  std::thread([&] {
    const IdentityScope there(identity);
    identity.enter(1);
    EXPECT_EQ(this_worker().env_index(), 1);
  }).join();
  EXPECT_EQ(this_worker().env_index(), 0);
}

TEST(Identity, GroupsCountApart) {
  const Identity one, other;
  one.counter("steps").add(2);
  EXPECT_EQ(other.counter("steps").value(), 0);
  const Identity same({}, one.shared_state());
  EXPECT_EQ(same.counter("steps").value(), 2);
  EXPECT_NE(one.key(), same.key());
}

TEST(Welcome, IsToldFromOtherMessages) {
  EXPECT_FALSE(is_welcome({}));
  const std::byte other[8]{};
  EXPECT_FALSE(is_welcome(other));
}

}  // namespace
}  // namespace shoal::process
