// For tests: atomics, futexes and locks of the Relacy model checker. It runs the very templates of
// the headers over them, through thousands of interleavings and every value that a relaxed load may
// return. A lost wake-up is a deadlock to it, a missing release/acquire pair a data race.
//
// Include it last: Relacy redefines keywords.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <streambuf>
#include <string>

#include "shoal/sync/atomics.h"
#include "shoal/sync/robust_lock.h"

// What it redefines is taken back at once.
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

namespace shoal::sync::testing {

inline rl::memory_order to_relacy(std::memory_order order) {
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
enum class Fault {
  kNone,
  kRelaxedOrders,
  kNoWake,
  kTornExchange,  // a compare_exchange is a load and a store, between which others may come
};

/// A word of the model, with the kernel's side of its futex: looking at the word and going to sleep
/// are one step under the lock of the futex's hash bucket, and so is waking.
template <Fault kFault, class T = std::uint32_t>
class ModelWord {
 public:
  T load(std::memory_order order) const {
    return const_cast<rl::atomic<T>&>(value_)($).load(effective(order));
  }
  void store(T value, std::memory_order order) { value_($).store(value, effective(order)); }
  T fetch_or(T bits, std::memory_order order) { return value_($).fetch_or(bits, effective(order)); }
  T fetch_and(T bits, std::memory_order order) {
    return value_($).fetch_and(bits, effective(order));
  }
  T fetch_add(T value, std::memory_order order) {
    return value_($).fetch_add(value, effective(order));
  }
  T exchange(T value, std::memory_order order) {
    return value_($).exchange(value, effective(order));
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                             std::memory_order failure) {
    if (kFault == Fault::kTornExchange) return exchange_in_two_steps(expected, desired);
    return value_($).compare_exchange_weak(expected, desired, effective(success),
                                           effective(failure));
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order success,
                               std::memory_order failure) {
    if (kFault == Fault::kTornExchange) return exchange_in_two_steps(expected, desired);
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
  void wake(bool all) {
    bucket_.lock($);
    if (all) {
      sleepers_.notify_all($);
    } else {
      sleepers_.notify_one($);
    }
    bucket_.unlock($);
  }

 private:
  static rl::memory_order effective(std::memory_order order) {
    return kFault == Fault::kRelaxedOrders ? rl::mo_relaxed : to_relacy(order);
  }

  bool exchange_in_two_steps(T& expected, T desired) {
    const T found = value_($).load(rl::mo_acquire);
    if (found != expected) {
      expected = found;
      return false;
    }
    value_($).store(desired, rl::mo_release);
    return true;
  }

  rl::atomic<T> value_{T{0}};
  rl::mutex bucket_;
  rl::condition_variable sleepers_;
};

template <Fault kFault>
struct ModelAtomics {
  using Word = ModelWord<kFault>;
  using Word64 = ModelWord<kFault, std::uint64_t>;

  static os::FutexOutcome wait(const Word& word, std::uint32_t expected, os::Deadline deadline) {
    return const_cast<Word&>(word).sleep(expected, deadline != os::kNoDeadline);
  }
  static void wake_all(Word& word) {
    if (kFault != Fault::kNoWake) word.wake(true);
  }
  static void wake_one(Word& word) {
    if (kFault != Fault::kNoWake) word.wake(false);
  }
};

/// Stands for RobustLock; nobody dies here.
class ModelLock {
 public:
  void init() {}
  LockOutcome spin_lock() { return lock(); }
  LockOutcome lock() {
    mutex_.lock($);
    return LockOutcome::kLocked;
  }
  void unlock() { mutex_.unlock($); }

 private:
  rl::mutex mutex_;
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
void expect_clean(rl::scheduler_type_e scheduler, unsigned iterations = 300'000) {
  // Iterations of the random scheduler; the other ends by itself.
  Report report;
  EXPECT_EQ(simulate<Model>(scheduler, iterations, report), rl::test_result_success)
      << report.text();
}

template <class Model>
rl::test_result_e result_of(unsigned iterations = 20'000) {
  Report report;
  return simulate<Model>(rl::random_scheduler_type, iterations, report);
}

}  // namespace shoal::sync::testing
