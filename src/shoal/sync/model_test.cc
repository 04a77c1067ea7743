// The orderings of doorbell and gather under the Relacy model checker: it runs the very templates
// of the headers over its own atomics, through thousands of interleavings and every value that a
// relaxed load may return. A lost wake-up is a deadlock to it, a missing release/acquire pair a
// data race.
#include <gtest/gtest.h>

#include <ostream>
#include <streambuf>
#include <string>

#include "shoal/sync/doorbell.h"
#include "shoal/sync/gather.h"

// Last, since it redefines keywords; what it redefines is taken back at once.
#include <relacy/relacy.hpp>
#undef VAR
#undef assert
#undef calloc
#undef delete
#undef errno
#undef free
#undef malloc
#undef memory_order_acq_rel
#undef memory_order_acquire
#undef memory_order_consume
#undef memory_order_relaxed
#undef memory_order_release
#undef memory_order_seq_cst
#undef new
#undef realloc

namespace shoal::sync {
namespace {

rl::memory_order to_relacy(std::memory_order order) {
  switch (order) {
    case std::memory_order_relaxed:
      return rl::mo_relaxed;
    case std::memory_order_consume:
      return rl::mo_consume;
    case std::memory_order_acquire:
      return rl::mo_acquire;
    case std::memory_order_release:
      return rl::mo_release;
    case std::memory_order_acq_rel:
      return rl::mo_acq_rel;
    case std::memory_order_seq_cst:
      break;
  }
  return rl::mo_seq_cst;
}

/// What to break, to see that the checker notices.
enum class Fault { kNone, kRelaxedOrders, kNoWake };

/// A word of the model, with the kernel's side of its futex: looking at the word and going to sleep
/// are one step under the lock of the futex's hash bucket, and so is waking.
template <Fault kFault>
class ModelWord {
 public:
  std::uint32_t load(std::memory_order order) const {
    return const_cast<rl::atomic<std::uint32_t>&>(value_)($).load(effective(order));
  }
  void store(std::uint32_t value, std::memory_order order) {
    value_($).store(value, effective(order));
  }
  std::uint32_t fetch_or(std::uint32_t bits, std::memory_order order) {
    return value_($).fetch_or(bits, effective(order));
  }
  bool compare_exchange_weak(std::uint32_t& expected, std::uint32_t desired,
                             std::memory_order success, std::memory_order failure) {
    return value_($).compare_exchange_weak(expected, desired, effective(success),
                                           effective(failure));
  }
  bool compare_exchange_strong(std::uint32_t& expected, std::uint32_t desired,
                               std::memory_order success, std::memory_order failure) {
    return value_($).compare_exchange_strong(expected, desired, effective(success),
                                             effective(failure));
  }

  os::FutexOutcome sleep(std::uint32_t expected, bool timed) {
    bucket_.lock($);
    if (value_($).load(rl::mo_relaxed) != expected) {
      bucket_.unlock($);
      return os::FutexOutcome::kChanged;
    }
    bool woken = true;
    if (timed) {
      woken = sleepers_.wait_for(bucket_, 1, $);
    } else {
      sleepers_.wait(bucket_, $);
    }
    bucket_.unlock($);
    return woken ? os::FutexOutcome::kWoken : os::FutexOutcome::kTimedOut;
  }
  void wake() {
    bucket_.lock($);
    sleepers_.notify_all($);
    bucket_.unlock($);
  }

 private:
  static rl::memory_order effective(std::memory_order order) {
    return kFault == Fault::kRelaxedOrders ? rl::mo_relaxed : to_relacy(order);
  }

  rl::atomic<std::uint32_t> value_{0u};
  rl::mutex bucket_;
  rl::condition_variable sleepers_;
};

template <Fault kFault>
struct ModelAtomics {
  using Word = ModelWord<kFault>;

  static os::FutexOutcome wait(const Word& word, std::uint32_t expected, os::Deadline deadline) {
    return const_cast<Word&>(word).sleep(expected, deadline != os::kNoDeadline);
  }
  static void wake_all(Word& word) {
    if (kFault != Fault::kNoWake) word.wake();
  }
};

/// One rings twice; two wait for each ring and read what was written before it.
template <Fault kFault>
struct RingModel : rl::test_suite<RingModel<kFault>, 3> {
  static constexpr int kRings = 2;
  BasicDoorbell<ModelAtomics<kFault>> door;
  rl::var<int> written[kRings + 1];

  void thread(unsigned index) {
    if (index == 0) {
      for (int ring = 1; ring <= kRings; ++ring) {
        written[ring]($) = ring;
        door.ring();
      }
      return;
    }
    for (std::uint32_t seen = 0; seen < kRings;) {
      if (door.park(seen, os::kNoDeadline) != WaitOutcome::kReady) continue;
      seen = door.generation();
      RL_ASSERT(written[seen]($) == static_cast<int>(seen));
    }
  }
};

/// A caller and two workers, two rounds: a command goes down, results come up, one arrival a round
/// is the last.
template <Fault kFault>
struct RoundModel : rl::test_suite<RoundModel<kFault>, 3> {
  static constexpr std::uint32_t kRounds = 2;
  static constexpr std::uint32_t kWorkers = 2;
  BasicDoorbell<ModelAtomics<kFault>> door;
  BasicGather<ModelAtomics<kFault>> gather;
  rl::var<int> command;
  rl::var<int> results[kWorkers];
  rl::atomic<int> last_arrivals[kRounds + 1];

  void before() {
    for (auto& count : last_arrivals) count($).store(0, rl::mo_relaxed);
  }

  void thread(unsigned index) {
    if (index == 0) {
      call();
    } else {
      work(index - 1);
    }
  }

  void call() {
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      command($) = static_cast<int>(round);
      gather.start(round, kWorkers);
      RL_ASSERT(door.ring() == round);
      while (gather.park(os::kNoDeadline) != WaitOutcome::kReady) {
      }
      for (auto& result : results) RL_ASSERT(result($) == static_cast<int>(round) * 10);
    }
  }

  void work(unsigned worker) {
    for (std::uint32_t seen = 0; seen < kRounds; ++seen) {
      while (door.park(seen, os::kNoDeadline) != WaitOutcome::kReady) {
      }
      results[worker]($) = command($) * 10;
      if (gather.arrive(seen + 1)) last_arrivals[seen + 1]($).fetch_add(1, rl::mo_relaxed);
    }
  }

  void after() {
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      RL_ASSERT(last_arrivals[round]($).load(rl::mo_relaxed) == 1);
    }
  }
};

/// A caller gives up round 1 at any moment and starts round 2 with one arrival; a straggler still
/// arrives for round 1.
template <Fault kFault>
struct GivenUpModel : rl::test_suite<GivenUpModel<kFault>, 3> {
  BasicDoorbell<ModelAtomics<kFault>> door;
  BasicGather<ModelAtomics<kFault>> gather;
  rl::var<int> result;

  void thread(unsigned index) {
    if (index == 0) {
      gather.start(1, 2);
      door.ring();
      static_cast<void>(gather.park(os::Deadline::min()));
      gather.start(2, 1);
      door.ring();
      while (gather.park(os::kNoDeadline) != WaitOutcome::kReady) {
      }
      RL_ASSERT(result($) == 2);
    } else if (index == 1) {
      while (door.park(0, os::kNoDeadline) != WaitOutcome::kReady) {
      }
      static_cast<void>(gather.arrive(1));
    } else {
      while (door.generation() < 2) {
        static_cast<void>(door.park(door.generation() & 1, os::kNoDeadline));
      }
      result($) = 2;
      RL_ASSERT(gather.arrive(2));
    }
  }
};

/// Where Relacy reports to. It replaces operator new while it simulates, so its report must not
/// allocate.
class Report : public std::streambuf {
 public:
  Report() : text_(1 << 20, ' ') { setp(text_.data(), text_.data() + text_.size()); }
  std::string text() const { return text_.substr(0, static_cast<std::size_t>(pptr() - pbase())); }

 private:
  std::string text_;
};

template <class Model>
rl::test_result_e simulate(rl::scheduler_type_e scheduler, unsigned iterations, Report& report) {
  std::ostream output(&report);
  rl::test_params params;
  params.output_stream = &output;
  params.progress_stream = &output;
  params.search_type = scheduler;
  params.iteration_count = iterations;
  rl::simulate<Model>(params);
  return params.test_result;
}

template <class Model>
void expect_clean(rl::scheduler_type_e scheduler) {
  constexpr unsigned kIterations = 300'000;  // of the random scheduler; the other ends by itself
  Report report;
  EXPECT_EQ(simulate<Model>(scheduler, kIterations, report), rl::test_result_success)
      << report.text();
}

template <class Model>
rl::test_result_e result_of() {
  Report report;
  return simulate<Model>(rl::random_scheduler_type, 20'000, report);
}

TEST(Model, EveryRingEndsEveryWaitAndPublishes) {
  expect_clean<RingModel<Fault::kNone>>(rl::random_scheduler_type);
  expect_clean<RingModel<Fault::kNone>>(rl::fair_context_bound_scheduler_type);
}

TEST(Model, EveryRoundIsGatheredAndPublishes) {
  expect_clean<RoundModel<Fault::kNone>>(rl::random_scheduler_type);
  expect_clean<RoundModel<Fault::kNone>>(rl::fair_context_bound_scheduler_type);
}

// Random only: Relacy's exhaustive scheduler loses threads that wait with a timeout.
TEST(Model, AStragglerDoesNotCompleteTheNextRound) {
  expect_clean<GivenUpModel<Fault::kNone>>(rl::random_scheduler_type);
}

TEST(Model, ALostWakeUpIsNoticed) {
  EXPECT_EQ(result_of<RingModel<Fault::kNoWake>>(), rl::test_result_deadlock);
  EXPECT_EQ(result_of<RoundModel<Fault::kNoWake>>(), rl::test_result_deadlock);
}

TEST(Model, AMissingOrderIsNoticed) {
  EXPECT_EQ(result_of<RingModel<Fault::kRelaxedOrders>>(), rl::test_result_data_race);
  EXPECT_EQ(result_of<RoundModel<Fault::kRelaxedOrders>>(), rl::test_result_data_race);
}

}  // namespace
}  // namespace shoal::sync
