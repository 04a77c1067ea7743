#include "shoal/trace/capture.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "shoal/os/eventfd.h"
#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"
#include "shoal/trace/chrome_json.h"
#include "shoal/trace/ticks.h"

namespace shoal::trace {
namespace {

using ::testing::HasSubstr;

/// Those that a process has open; of this one and of a child there may be one.
os::Fd recorder_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(entry.path(), gone).string();
    if (what.find(kRecorderName) != std::string::npos)
      return os::Fd(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
  }
  return os::Fd();
}

bool happens(const os::EventFd& event) {
  pollfd readable{.fd = event.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&readable, 1, 30'000) == 1;
}

std::vector<Event> events_of(const Capture& capture) { return capture.processes()[0].events; }

TEST(Capture, KeepsTheSpansOfTheTimeInWhichItListens) {
  open("this one");
  record(Span::kUpdate, 1, os::now_ns());
  Capture capture;
  ASSERT_TRUE(capture.add(recorder_of(::getpid())));
  EXPECT_FALSE(capture.add(recorder_of(::getpid())));
  const std::uint64_t start = os::now_ns();
  note(Span::kStep, start, start + 7, 42);
  {
    const Scope scope(Span::kUpdate);
  }
  std::thread([] { const Scope scope(Span::kInfer, 3); }).join();
  EXPECT_TRUE(capture.poll());
  capture.stop();
  record(Span::kUpdate, 1, os::now_ns());

  ASSERT_EQ(capture.processes().size(), 1U);
  const CapturedProcess& process = capture.processes()[0];
  EXPECT_EQ(process.pid, ::getpid());
  EXPECT_EQ(process.name, "this one");
  EXPECT_EQ(process.lost, 0U);
  ASSERT_EQ(process.events.size(), 3U);
  EXPECT_EQ(process.events[0].span, Span::kStep);
  EXPECT_EQ(process.events[0].start_ns, start);
  EXPECT_EQ(process.events[0].duration_ns, 7U);
  EXPECT_EQ(process.events[0].arg, 42U);
  EXPECT_EQ(process.events[1].span, Span::kUpdate);
  EXPECT_EQ(process.events[0].thread, process.events[1].thread);
  EXPECT_EQ(process.events[2].span, Span::kInfer);
  EXPECT_NE(process.events[2].thread, process.events[1].thread);
  EXPECT_EQ(process.threads.size(), 2U);
}

TEST(Capture, ATickScopeHasItsPlaceBetweenTimesOfTheClock) {
  open();
  Capture capture;
  ASSERT_TRUE(capture.add(recorder_of(::getpid())));
  const std::uint64_t before = os::now_ns();
  {
    const TickScope scope(Span::kEnvStep, 5);
    while (os::now_ns() < before + 5'000'000) {
    }
  }
  const std::uint64_t after = os::now_ns();
  capture.stop();
  ASSERT_EQ(events_of(capture).size(), 1U);
  const Event event = events_of(capture)[0];
  constexpr std::uint64_t kError = 2'000'000;  // ns; where a look at both clocks was interrupted
  EXPECT_EQ(event.arg, 5U);
  EXPECT_FALSE(event.in_ticks);
  EXPECT_GE(event.start_ns + kError, before);
  EXPECT_LE(event.start_ns + event.duration_ns, after + kError);
  EXPECT_GE(event.duration_ns + kError, 5'000'000U);
}

TEST(Capture, OfNobodyWhoListensNothingIsRecorded) {
  open();
  EXPECT_FALSE(is_on());
  {
    Capture capture;
    ASSERT_TRUE(capture.add(recorder_of(::getpid())));
    EXPECT_TRUE(is_on());
  }
  EXPECT_FALSE(is_on());
}

TEST(Capture, OneListensAtATime) {
  open();
  Capture first;
  ASSERT_TRUE(first.add(recorder_of(::getpid())));
  Capture second;
  EXPECT_THROW(second.add(recorder_of(::getpid())), InvalidState);
  first.stop();
  EXPECT_TRUE(second.add(recorder_of(::getpid())));
}

TEST(Capture, CountsWhatWasOverwrittenBeforeItWasRead) {
  open();
  Capture capture;
  ASSERT_TRUE(capture.add(recorder_of(::getpid())));
  const std::uint64_t now = os::now_ns();
  for (std::size_t i = 0; i < kRecorderSlots + 10; ++i) note(Span::kStep, now, now, i);
  capture.stop();
  EXPECT_EQ(capture.processes()[0].lost, 10U);
  ASSERT_EQ(events_of(capture).size(), kRecorderSlots);
  EXPECT_EQ(events_of(capture).front().arg, 10U);
}

TEST(Capture, OfAKilledProcessItHasAllButWhatWasGoingOn) {
  open();
  os::EventFd listened, recorded, opened;
  os::testing::Child child([&]() -> int {
    EXPECT_FALSE(is_on());  // its parent's is none of its business
    open("a worker");
    opened.notify();
    EXPECT_TRUE(happens(listened));
    for (int i = 0; i < 100; ++i) note(Span::kEnvStep, os::now_ns(), os::now_ns(), i);
    const Scope scope(Span::kWorkerStep);
    recorded.notify();
    for (;;) ::pause();
  });
  ASSERT_TRUE(happens(opened));
  Capture capture;
  ASSERT_TRUE(capture.add(recorder_of(child.pid())));
  listened.notify();
  ASSERT_TRUE(happens(recorded));
  child.kill();
  capture.stop();
  EXPECT_EQ(capture.processes()[0].pid, child.pid());
  EXPECT_EQ(capture.processes()[0].name, "a worker");
  EXPECT_EQ(events_of(capture).size(), 100U);
  EXPECT_EQ(capture.processes()[0].lost, 0U);
}

TEST(Capture, WhatIsNoRecorderIsRefused) {
  const shm::Arena other = shm::Arena::create("other", 65536);
  Capture capture;
  EXPECT_THROW(capture.add(os::Fd(::dup(other.fd()))), Error);
  EXPECT_THROW(capture.add(os::Fd(::dup(STDERR_FILENO))), Error);
  EXPECT_EQ(capture.listeners(), 0U);
}

TEST(ChromeJson, HasSpansAndTheNamesOfProcessesAndThreads) {
  const std::string path = ::testing::TempDir() + "shoal_trace_test.json";
  CapturedProcess process;
  process.pid = 5;
  process.name = "say \"hi\"\n";
  process.threads = {{6, "main"}};
  process.events = {
      {.span = Span::kEnvStep, .thread = 6, .arg = 2, .start_ns = 1'500, .duration_ns = 250},
      {.span = Span::kStep, .thread = 6, .arg = 9, .start_ns = 900, .duration_ns = 2'000},
      {.span = Span::kUpdate, .thread = 6, .start_ns = 10, .duration_ns = 20}};
  write_chrome_json(path, {&process, 1}, 1'000);
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(path);
  EXPECT_THAT(text, HasSubstr(R"("args":{"name":"say \"hi\"\u000a"})"));
  EXPECT_THAT(text, HasSubstr(R"("pid":5,"tid":6,"args":{"name":"main"})"));
  EXPECT_THAT(text, HasSubstr(R"({"name":"env.step","cat":"worker","ph":"X","pid":5,"tid":6,)"
                              R"("ts":0.500,"dur":0.250,"args":{"env":2}})"));
  EXPECT_THAT(text, HasSubstr(R"("ph":"b","id":"6.384","pid":5,"tid":6,"ts":0.000)"));
  EXPECT_THAT(text, HasSubstr(R"("ph":"e","id":"6.384","pid":5,"tid":6,"ts":1.900)"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("update")));  // it was over before the time began
}

}  // namespace
}  // namespace shoal::trace
