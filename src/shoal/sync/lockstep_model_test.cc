// Lockstep, and the exchange through two alternating buffers that group::HostExchange makes of it,
// under the Relacy model checker, as in model_test.cc.
#include <gtest/gtest.h>

#include "shoal/sync/lockstep.h"

// Last, since it redefines keywords.
#include "shoal/sync/testing/model.h"

namespace shoal::sync {
namespace {

using namespace testing;

/// Each member writes its place of the round's buffer, arrives, waits, and reads all places. With
/// two buffers nobody overwrites what another still reads; with one it does, which the checker
/// notices.
template <Fault kFault, unsigned kMembers, unsigned kBuffers>
struct ExchangeModel : rl::test_suite<ExchangeModel<kFault, kMembers, kBuffers>, kMembers> {
  static constexpr int kRounds = 3;
  using Steps = BasicLockstep<ModelAtomics<kFault>>;
  typename Steps::Door doors[kMembers];
  rl::var<int> places[kBuffers][kMembers];

  void thread(unsigned me) {
    Steps steps(doors, kMembers, me);
    for (int round = 0; round < kRounds; ++round) {
      auto& buffer = places[static_cast<unsigned>(round) % kBuffers];
      buffer[me]($) = round * 10 + static_cast<int>(me);
      steps.arrive();
      while (steps.park(os::kNoDeadline) != WaitOutcome::kReady) {
      }
      for (unsigned other = 0; other < kMembers; ++other)
        RL_ASSERT(buffer[other]($) == round * 10 + static_cast<int>(other));
    }
  }
};

TEST(LockstepModel, TwoBuffersAreEnoughForAnExchangeARound) {
  expect_clean<ExchangeModel<Fault::kNone, 2, 2>>(rl::random_scheduler_type);
  expect_clean<ExchangeModel<Fault::kNone, 3, 2>>(rl::random_scheduler_type);
  expect_clean<ExchangeModel<Fault::kNone, 2, 2>>(rl::fair_context_bound_scheduler_type);
}

TEST(LockstepModel, OneBufferIsNotEnoughWhichIsNoticed) {
  EXPECT_NE((result_of<ExchangeModel<Fault::kNone, 2, 1>>()), rl::test_result_success);
}

TEST(LockstepModel, ALostWakeUpIsNoticed) {
  EXPECT_EQ((result_of<ExchangeModel<Fault::kNoWake, 2, 2>>()), rl::test_result_deadlock);
}

TEST(LockstepModel, AMissingOrderIsNoticed) {
  EXPECT_EQ((result_of<ExchangeModel<Fault::kRelaxedOrders, 2, 2>>()), rl::test_result_data_race);
}

}  // namespace
}  // namespace shoal::sync
