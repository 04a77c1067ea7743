#include "shoal/ipc/pool/task_scheduler.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "shoal/ipc/pool/task_slot.h"
#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"

namespace shoal::ipc {
namespace {

using os::testing::Child;
using os::testing::test_deadline;

TaskBytes bytes(const std::string& text) {
  const auto all = std::as_bytes(std::span(text));
  return {all.begin(), all.end()};
}

std::string text(const TaskBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A worker that answers "<text>!", but for the tasks that its text names.
int work(int fd, int index, int quota) {
  TaskSlot slot(os::Fd(::dup(fd)), index);
  if (slot.send(TaskReport::kReady, 0, {}) != TaskSlot::Outcome::kReady) return 1;
  for (int done = 0; quota == 0 || done < quota;) {
    if (slot.wait(os::kNoDeadline) == TaskSlot::Outcome::kStopped) return 0;
    const auto task = slot.begin();
    if (!task) continue;
    TaskBytes in(task->total_bytes);
    if (slot.read(in) == TaskSlot::Outcome::kStopped) return 0;
    const std::string what = text(in);
    if (what == "die") ::kill(::getpid(), SIGKILL);
    const bool raises = what == "raise";
    const TaskBytes out = bytes(what == "pid" ? std::to_string(::getpid()) : what + "!");
    if (what.starts_with("sleep")) ::usleep(20'000);
    if (slot.send(raises ? TaskReport::kRaised : TaskReport::kDone, task->tag, out) !=
        TaskSlot::Outcome::kReady) {
      return 0;
    }
    ++done;
  }
  return 0;
}

/// A pool as its owner keeps one: with a thread that pumps, and new workers for those that end.
class Pool {
 public:
  explicit Pool(int workers, int quota = 0, std::size_t ring_bytes = 4096)
      : quota_(quota), scheduler_(workers, ring_bytes) {
    for (int i = 0; i < workers; ++i) start(i);
    keeper_ = std::thread([this] { keep(); });
  }
  ~Pool() {
    scheduler_.stop({});
    keeper_.join();
  }

  TaskScheduler& scheduler() { return scheduler_; }
  int deaths() const { return deaths_; }
  pid_t pid(int i) const {
    const std::lock_guard lock(mutex_);
    return pids_.at(i);
  }

  std::shared_ptr<TaskJob> map(const std::vector<std::string>& tasks) {
    auto job = std::make_shared<TaskJob>();
    scheduler_.open(job);
    for (std::uint32_t i = 0; i < tasks.size(); ++i) scheduler_.add(job, i, bytes(tasks[i]));
    scheduler_.seal(job, tasks.size());
    return job;
  }
  void finish() {
    scheduler_.close();
    keeper_.join();
    keeper_ = std::thread([] {});
  }

 private:
  void start(int i) {
    scheduler_.prepare(i, quota_);
    workers_[i] =
        std::make_unique<Child>([this, i] { return work(scheduler_.segment_fd(), i, quota_); });
    scheduler_.occupy(i, workers_[i]->pid());
    const std::lock_guard lock(mutex_);
    pids_[i] = workers_[i]->pid();
  }
  void keep() {
    for (;;) {
      const auto event = scheduler_.pump(os::kNoDeadline);
      if (event.kind == TaskScheduler::Event::kFinished) return;
      if (event.kind != TaskScheduler::Event::kDied) continue;
      workers_[event.slot]->join();
      ++deaths_;
      if (scheduler_.bury(event.slot, bytes("died"))) start(event.slot);
    }
  }

  const int quota_;
  TaskScheduler scheduler_;
  std::map<int, std::unique_ptr<Child>> workers_;  // the keeper's, once it runs
  mutable std::mutex mutex_;
  std::map<int, pid_t> pids_;  // of the workers, for the test; under mutex_
  std::atomic<int> deaths_ = 0;
  std::thread keeper_;
};

TaskJob::Outcome take(const std::shared_ptr<TaskJob>& job, std::uint32_t index) {
  TaskJob::Outcome outcome;
  EXPECT_EQ(job->take(index, outcome, test_deadline()), TaskJob::Wait::kReady);
  return outcome;
}

TEST(TaskScheduler, EveryTaskHasItsOwnResult) {
  Pool pool(2);
  std::vector<std::string> tasks;
  for (int i = 0; i < 3000; ++i) tasks.push_back(std::to_string(i));
  const auto job = pool.map(tasks);
  ASSERT_TRUE(job->wait(test_deadline()));
  for (std::uint32_t i = 0; i < tasks.size(); ++i) {
    const auto outcome = take(job, i);
    ASSERT_TRUE(outcome.ok);
    ASSERT_EQ(text(outcome.bytes), tasks[i] + "!");
  }
  TaskJob::Outcome again;
  EXPECT_EQ(job->take(0, again, test_deadline()), TaskJob::Wait::kExhausted);
}

TEST(TaskScheduler, TasksMuchLongerThanTheRingsArrive) {
  Pool pool(2);
  std::vector<std::string> tasks;
  for (int i = 0; i < 20; ++i) tasks.emplace_back(1000u * i * i, static_cast<char>('a' + i));
  const auto job = pool.map(tasks);
  for (std::uint32_t i = 0; i < tasks.size(); ++i) {
    EXPECT_EQ(text(take(job, i).bytes), tasks[i] + "!");
  }
}

TEST(TaskScheduler, AWorkerThatIsKilledFailsTheTaskThatItHadBegunAlone) {
  Pool pool(2);
  std::vector<std::string> tasks(200, "task");
  for (const int i : {3, 77, 199}) tasks[i] = "die";
  const auto job = pool.map(tasks);
  ASSERT_TRUE(job->wait(test_deadline()));
  for (std::uint32_t i = 0; i < tasks.size(); ++i) {
    const auto outcome = take(job, i);
    EXPECT_EQ(outcome.ok, tasks[i] != "die") << i;
    EXPECT_EQ(text(outcome.bytes), tasks[i] == "die" ? "died" : "task!") << i;
  }
  EXPECT_EQ(pool.deaths(), 3);
}

TEST(TaskScheduler, WorkersKilledFromOutsideAtAnyMomentLoseAndRepeatNothing) {
  Pool pool(2);
  int failed = 0;
  for (int round = 0; round < 10; ++round) {
    const auto job = pool.map(std::vector<std::string>(400, "task"));
    ::kill(pool.pid(round % 2), SIGKILL);
    ASSERT_TRUE(job->wait(test_deadline()));
    TaskJob::Outcome outcome;
    int outcomes = 0;
    while (job->take_any(outcome, test_deadline()) == TaskJob::Wait::kReady) {
      ++outcomes;
      if (!outcome.ok) ++failed;
    }
    EXPECT_EQ(outcomes, 400);
    const int deaths = pool.deaths();
    while (pool.deaths() <= round && deaths <= round) ::usleep(1000);
  }
  EXPECT_LE(failed, pool.deaths());
}

TEST(TaskScheduler, AWorkerLeavesAfterItsQuotaAndIsNoFault) {
  Pool pool(2, /*quota=*/5);
  const auto job = pool.map(std::vector<std::string>(53, "pid"));
  std::map<std::string, int> tasks_of;
  for (std::uint32_t i = 0; i < 53; ++i) {
    const auto outcome = take(job, i);
    ASSERT_TRUE(outcome.ok);
    ++tasks_of[text(outcome.bytes)];
  }
  EXPECT_GE(tasks_of.size(), 11u);
  for (const auto& [pid, tasks] : tasks_of) EXPECT_LE(tasks, 5);
}

TEST(TaskScheduler, WhatABusyWorkerHasNotBegunGoesToOneThatIsFree) {
  Pool pool(2);
  const auto job = pool.map({"sleep", "a", "b", "c", "sleep", "d", "e"});
  ASSERT_TRUE(job->wait(test_deadline()));
  EXPECT_FALSE(job->first_failure());
}

TEST(TaskScheduler, ClosingDoesWhatWasAddedAndThenWorkersLeave) {
  Pool pool(2);
  const auto job = pool.map(std::vector<std::string>(100, "task"));
  pool.finish();
  EXPECT_TRUE(job->finished());
  EXPECT_FALSE(job->first_failure());
  EXPECT_THROW(pool.map({"more"}), InvalidState);
}

TEST(TaskScheduler, StoppingGivesEveryTaskAnOutcome) {
  Pool pool(2);
  const auto job = pool.map(std::vector<std::string>(100, "sleep"));
  pool.scheduler().stop(bytes("stopped"));
  ASSERT_TRUE(job->wait(test_deadline()));
  EXPECT_TRUE(job->first_failure());
}

TEST(TaskScheduler, TheOwnerIsToldOfAFinishedJobOnce) {
  TaskScheduler scheduler(1, 4096);
  const auto job = std::make_shared<TaskJob>();
  scheduler.open(job);
  scheduler.put(job, {0, true, bytes("made up")});
  scheduler.seal(job, 1, /*ticket=*/42);
  const auto event = scheduler.pump(test_deadline());
  EXPECT_EQ(event.kind, TaskScheduler::Event::kNotify);
  EXPECT_EQ(event.ticket, 42u);
  EXPECT_EQ(scheduler.pump(os::Clock::now()).kind, TaskScheduler::Event::kNothing);
}

TEST(TaskScheduler, AnInitializerThatRaisesIsToldOfOnce) {
  TaskScheduler scheduler(1, 4096);
  scheduler.prepare(0, 0);
  Child worker([&] {
    TaskSlot slot(os::Fd(::dup(scheduler.segment_fd())), 0);
    return slot.send(TaskReport::kCannotBegin, 0, bytes("why")) == TaskSlot::Outcome::kReady ? 0
                                                                                             : 1;
  });
  scheduler.occupy(0, worker.pid());
  const auto event = scheduler.pump(test_deadline());
  EXPECT_EQ(event.kind, TaskScheduler::Event::kBroken);
  EXPECT_EQ(text(event.bytes), "why");
  const auto died = scheduler.pump(test_deadline());
  EXPECT_EQ(died.kind, TaskScheduler::Event::kDied);
  EXPECT_FALSE(died.ready);
}

/// Answers one task by a block of the heap that the task named a byte for, and ends.
int answer_in_heap(int fd, const Block& shelf) {
  TaskSlot slot(os::Fd(::dup(fd)), 0, shelf);
  if (slot.send(TaskReport::kReady, 0, {}) != TaskSlot::Outcome::kReady) return 1;
  while (slot.wait(os::kNoDeadline) != TaskSlot::Outcome::kReady) {
  }
  const auto task = slot.begin();
  if (!task) return 2;
  TaskBytes in(task->total_bytes);
  if (slot.read(in) == TaskSlot::Outcome::kStopped) return 3;
  const Block made = Block::allocate(100);
  *made.data() = in.front();
  const Offset name = made.offset();
  const auto payload = std::as_bytes(std::span(&name, 1));
  return slot.send_done(task->tag, payload, {{name}}) == TaskSlot::Outcome::kReady ? 0 : 4;
}

TEST(TaskScheduler, WhatAResultNamesLivesUntilItIsDroppedWhateverBecameOfItsWorker) {
  TaskScheduler scheduler(1, 4096);
  scheduler.prepare(0, 0);
  const Block shelf = scheduler.shelf(0);
  Child worker([&] { return answer_in_heap(scheduler.segment_fd(), shelf); });
  scheduler.occupy(0, worker.pid());
  const auto job = std::make_shared<TaskJob>();
  scheduler.open(job);
  Block argument = Block::allocate(10);
  const Offset argument_at = argument.offset();
  scheduler.add(job, 0, bytes("x"), {std::move(argument)});
  EXPECT_EQ(shelf.heap()->size_of(argument_at), 10u);
  scheduler.seal(job, 1);
  const auto event = scheduler.pump(test_deadline());
  EXPECT_EQ(event.kind, TaskScheduler::Event::kDied);
  worker.join();
  shelf.heap()->sweep();
  scheduler.bury(0, {});

  TaskJob::Outcome outcome;
  ASSERT_EQ(job->take(0, outcome, test_deadline()), TaskJob::Wait::kReady);
  EXPECT_TRUE(outcome.ok);
  Offset name = 0;
  ASSERT_EQ(outcome.bytes.size(), sizeof(name));
  std::memcpy(&name, outcome.bytes.data(), sizeof(name));
  EXPECT_EQ(*shelf.heap()->at(name), std::byte{'x'});
  EXPECT_EQ(shelf.heap()->stats().blocks, 3u);  // the shelf, the message, and what it names
  outcome = {};
  EXPECT_EQ(shelf.heap()->stats().blocks, 1u);
  EXPECT_TRUE(shelf.heap()->check().empty());
}

}  // namespace
}  // namespace shoal::ipc
