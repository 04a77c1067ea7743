// The orderings of lock, semaphore, event, condition and barrier under the Relacy model checker, as
// in model_test.cc.
#include <gtest/gtest.h>

#include "shoal/sync/barrier.h"
#include "shoal/sync/condition.h"
#include "shoal/sync/event.h"
#include "shoal/sync/owned_lock.h"
#include "shoal/sync/semaphore.h"

// Last, since it redefines keywords.
#include "shoal/sync/testing/model.h"

namespace shoal::sync {
namespace {

using namespace testing;

constexpr auto all_live = [](Owner) { return true; };

/// Three take turns twice; one of them also gives up waits.
template <Fault kFault>
struct TurnsModel : rl::test_suite<TurnsModel<kFault>, 3> {
  BasicOwnedLock<ModelAtomics<kFault>> lock;
  rl::var<int> turns;

  void before() { turns($) = 0; }

  void thread(unsigned index) {
    for (int turn = 0; turn < 2; ++turn) {
      const auto deadline = index == 0 && turn == 0 ? os::Deadline::min() : os::kNoDeadline;
      while (lock.park(index + 1, deadline) != WaitOutcome::kReady) {
      }
      turns($) = turns($) + 1;
      RL_ASSERT(lock.release());
    }
  }

  void after() { RL_ASSERT(turns($) == 6); }
};

/// The owner dies with the lock; two find it so, and both get it, one by recovery.
template <Fault kFault>
struct RecoveryModel : rl::test_suite<RecoveryModel<kFault>, 2> {
  static constexpr Owner kDead = 9;
  BasicOwnedLock<ModelAtomics<kFault>> lock;
  rl::var<int> turns;

  void before() {
    turns($) = 0;
    RL_ASSERT(lock.try_acquire(kDead));
  }

  void thread(unsigned index) {
    if (!lock.recover(kDead, index + 1)) {
      while (lock.park(index + 1, os::kNoDeadline) != WaitOutcome::kReady) {
      }
    }
    turns($) = turns($) + 1;
    RL_ASSERT(lock.release());
  }

  void after() { RL_ASSERT(turns($) == 2); }
};

/// One writes and sets; two wait; the first also clears.
template <Fault kFault>
struct EventModel : rl::test_suite<EventModel<kFault>, 3> {
  BasicEvent<ModelAtomics<kFault>> event;
  rl::var<int> written;

  void thread(unsigned index) {
    if (index == 0) {
      written($) = 7;
      event.set();
      event.clear();
      return;
    }
    while (event.park(0, os::kNoDeadline) != WaitOutcome::kReady) {
    }
    RL_ASSERT(written($) == 7);
  }
};

/// Two permits, `kHolders` places for whose they are, three that take one and give it back.
template <Fault kFault, std::uint32_t kHolders>
struct PermitModel : rl::test_suite<PermitModel<kFault, kHolders>, 3> {
  using Atomics = ModelAtomics<kFault>;
  struct {
    BasicSemaphore<Atomics, ModelLock> permits;
    typename Atomics::Word64 holders[kHolders + 1];
  } shared;
  rl::atomic<int> inside;

  void before() {
    shared.permits.init(1, 1, kHolders);
    inside($).store(0, rl::mo_relaxed);
  }

  void thread(unsigned index) {
    const Owner me = index + 1;
    while (shared.permits.park(me, os::kNoDeadline) != WaitOutcome::kReady) {
    }
    RL_ASSERT(inside($).fetch_add(1, rl::mo_relaxed) == 0);
    inside($).fetch_sub(1, rl::mo_relaxed);
    RL_ASSERT(shared.permits.release(me));
  }

  void after() { RL_ASSERT(shared.permits.value() == 1); }
};

/// Two releases at once wake two sleepers, one wake-up or not.
template <Fault kFault>
struct SignalModel : rl::test_suite<SignalModel<kFault>, 3> {
  BasicSemaphore<ModelAtomics<kFault>, ModelLock> signal;

  void before() { signal.init(0, 9, 0); }

  void thread(unsigned index) {
    if (index == 0) {
      RL_ASSERT(signal.release(1));
      RL_ASSERT(signal.release(1));
      return;
    }
    while (signal.park(index + 1, os::kNoDeadline) != WaitOutcome::kReady) {
    }
  }
};

/// Two wait for a number under a lock; one writes it and notifies each.
template <Fault kFault, std::uint32_t kSlots>
struct NotifyModel : rl::test_suite<NotifyModel<kFault, kSlots>, 3> {
  using Atomics = ModelAtomics<kFault>;
  struct {
    BasicCondition<Atomics, ModelLock> condition;
    struct {
      typename Atomics::Word state, owner;
      typename Atomics::Word64 ticket;
    } waiters[kSlots];
  } shared;
  ModelLock lock;
  rl::var<int> number;

  void before() {
    shared.condition.init(kSlots);
    number($) = 0;
  }

  void thread(unsigned index) {
    static_cast<void>(lock.lock());
    if (index == 0) {
      number($) = 1;
      shared.condition.notify(1, all_live);
      shared.condition.notify(1, all_live);
    }
    while (number($) == 0) {
      const auto place = shared.condition.enter(index + 1, all_live);
      lock.unlock();
      while (shared.condition.park(place, os::kNoDeadline) != WaitOutcome::kReady) {
      }
      RL_ASSERT(shared.condition.leave(place));
      static_cast<void>(lock.lock());
    }
    lock.unlock();
  }
};

/// Two meet twice and read what the other wrote.
template <Fault kFault>
struct MeetingModel : rl::test_suite<MeetingModel<kFault>, 2> {
  using Atomics = ModelAtomics<kFault>;
  struct {
    BasicBarrier<Atomics, ModelLock> barrier;
    typename Atomics::Word64 members[4];
  } shared;
  rl::var<int> written[2];

  void before() { shared.barrier.init(2, 2); }

  void thread(unsigned index) {
    for (int round = 0; round < 2; ++round) {
      written[index]($) = round;
      meet(index);
      RL_ASSERT(written[1 - index]($) == round);
      meet(index);
    }
  }

  void meet(unsigned index) {
    const Arrival arrival = shared.barrier.arrive(index + 1);
    if (arrival.kind == ArrivalKind::kLast) {
      RL_ASSERT(shared.barrier.complete(arrival.round));
      return;
    }
    RL_ASSERT(arrival.kind == ArrivalKind::kFirst);
    while (shared.barrier.park(arrival.round, os::kNoDeadline) != WaitOutcome::kReady) {
    }
    RL_ASSERT(shared.barrier.state(arrival.round) == RoundState::kComplete);
  }
};

// Random only where a wait has a deadline: Relacy's exhaustive scheduler loses those threads.
TEST(OwnersModel, OnlyOneHasTheLockAndSeesWhatTheOneBeforeWrote) {
  expect_clean<TurnsModel<Fault::kNone>>(rl::random_scheduler_type);
}

TEST(OwnersModel, ADeadOwnersLockIsRecoveredOnce) {
  expect_clean<RecoveryModel<Fault::kNone>>(rl::random_scheduler_type);
  expect_clean<RecoveryModel<Fault::kNone>>(rl::fair_context_bound_scheduler_type);
}

TEST(OwnersModel, EverySetEndsEveryWait) {
  expect_clean<EventModel<Fault::kNone>>(rl::random_scheduler_type);
  expect_clean<EventModel<Fault::kNone>>(rl::fair_context_bound_scheduler_type);
}

TEST(OwnersModel, APermitIsOnesAtATimeAndEveryReleaseIsFound) {
  expect_clean<PermitModel<Fault::kNone, 0>>(rl::random_scheduler_type, 50'000);
  expect_clean<PermitModel<Fault::kNone, 2>>(rl::random_scheduler_type, 50'000);
  expect_clean<SignalModel<Fault::kNone>>(rl::random_scheduler_type, 50'000);
}

TEST(OwnersModel, NoNotificationIsLost) {
  expect_clean<NotifyModel<Fault::kNone, 2>>(rl::random_scheduler_type, 50'000);
  expect_clean<NotifyModel<Fault::kNone, 1>>(rl::random_scheduler_type, 50'000);
}

TEST(OwnersModel, AMeetingPublishesWhatEachWrote) {
  expect_clean<MeetingModel<Fault::kNone>>(rl::random_scheduler_type, 50'000);
}

TEST(OwnersModel, ALostWakeUpIsNoticed) {
  EXPECT_EQ(result_of<TurnsModel<Fault::kNoWake>>(), rl::test_result_deadlock);
  EXPECT_EQ(result_of<EventModel<Fault::kNoWake>>(), rl::test_result_deadlock);
  EXPECT_EQ(result_of<SignalModel<Fault::kNoWake>>(), rl::test_result_deadlock);
  EXPECT_EQ((result_of<NotifyModel<Fault::kNoWake, 2>>()), rl::test_result_deadlock);
  EXPECT_EQ(result_of<MeetingModel<Fault::kNoWake>>(), rl::test_result_deadlock);
}

TEST(OwnersModel, AMissingOrderIsNoticed) {
  EXPECT_EQ(result_of<TurnsModel<Fault::kRelaxedOrders>>(), rl::test_result_data_race);
  EXPECT_EQ(result_of<RecoveryModel<Fault::kRelaxedOrders>>(), rl::test_result_data_race);
  EXPECT_EQ(result_of<EventModel<Fault::kRelaxedOrders>>(), rl::test_result_data_race);
}

}  // namespace
}  // namespace shoal::sync
