#include "shoal/process/supervise/output_relay.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "shoal/os/poll.h"
#include "shoal/os/testing/child.h"

namespace shoal::process {
namespace {

using ::testing::ElementsAre;

void write_text(int fd, const std::string& text) {
  ASSERT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

/// What a LineReader makes of `chunks`, the last line unfinished or not.
std::vector<std::string> lines_of(const std::vector<std::string>& chunks) {
  EventLoop loop;
  OutputPipe pipe = OutputPipe::create();
  std::vector<std::string> lines;
  std::unique_ptr<LineReader> reader;
  loop.call([&] {
    reader = std::make_unique<LineReader>(loop, std::move(pipe.read_end),
                                          [&](std::string_view line) { lines.emplace_back(line); });
  });
  for (const std::string& chunk : chunks) {
    write_text(pipe.write_end.get(), chunk);
    loop.call([] {});
  }
  loop.call([&] {
    reader->finish();
    reader.reset();
  });
  return lines;
}

TEST(LogTail, KeepsTheLastLines) {
  LogTail tail(3);
  for (int i = 0; i < 10; ++i) tail.append(std::to_string(i));
  EXPECT_THAT(tail.lines(), ElementsAre("7", "8", "9"));
}

TEST(LineReader, PutsLinesTogetherFromPieces) {
  EXPECT_THAT(lines_of({"one\ntw", "o\n", "\nfour\n"}), ElementsAre("one", "two", "", "four"));
}

TEST(LineReader, HandsOnAnUnfinishedLineAtTheEnd) {
  EXPECT_THAT(lines_of({"one\nand a half"}), ElementsAre("one", "and a half"));
}

TEST(LineReader, CutsEndlessLines) {
  const auto lines = lines_of({std::string(LineReader::kMaxLine + 10, 'x')});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size(), LineReader::kMaxLine);
  EXPECT_EQ(lines[1].size(), 10u);
}

TEST(OutputSink, NeverWaitsForAReaderWhoDoesNotRead) {
  EventLoop loop;
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const os::Fd read_end(ends[0]);
  const os::Fd write_end(ends[1]);
  auto sink = std::make_shared<OutputSink>(loop, write_end.get());
  const std::string line(1000, 'x');
  // Far more than the pipe and the sink hold; with a blocking write this call would not return.
  loop.call([&] {
    for (int i = 0; i < 2000; ++i) sink->write_line("worker 0", line);
  });

  // Then somebody reads: what was kept comes, whole lines, and the rest is accounted for.
  std::string text;
  std::array<char, 65536> buffer{};
  const auto read_some = [&] {
    ASSERT_TRUE(os::poll_one(read_end.get(), POLLIN, os::testing::test_deadline()));
    const ssize_t count = ::read(read_end.get(), buffer.data(), buffer.size());
    ASSERT_GT(count, 0);
    text.append(buffer.data(), static_cast<std::size_t>(count));
  };
  while (text.size() < OutputSink::kMaxPending) ASSERT_NO_FATAL_FAILURE(read_some());
  loop.call([&] { sink->write_line("worker 0", "after"); });
  while (text.find("after\n") == std::string::npos) ASSERT_NO_FATAL_FAILURE(read_some());
  EXPECT_EQ(text.rfind("[worker 0] " + line + "\n", 0), 0u);
  EXPECT_NE(text.find("lines of workers' output left out"), std::string::npos);
  loop.call([&] { sink.reset(); });
}

TEST(OutputSink, AReaderThatIsGoneIsNoError) {
  EventLoop loop;
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  ::close(ends[0]);
  const os::Fd write_end(ends[1]);
  auto sink = std::make_shared<OutputSink>(loop, write_end.get());
  loop.call([&] { sink->write_line("worker 0", "to nobody"); });  // SIGPIPE would end this test
  loop.call([&] { sink.reset(); });
}

}  // namespace
}  // namespace shoal::process
