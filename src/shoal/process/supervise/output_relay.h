// The output of started processes: its last lines are kept, and all of it is passed on to this
// process's stdout and stderr.
//
// Processes: all of it is the parent's, but LineSplitter and OutputPipe, which a zygote uses, too.
// Death: of a process that writes: what is in its pipe is read, and its last line, whole or not.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/os/fd.h"
#include "shoal/process/supervise/event_loop.h"

namespace shoal::process {

/// The last lines of one process; a resource.
///
/// Threads: any.
class LogTail {
 public:
  explicit LogTail(std::size_t max_lines) : max_lines_(max_lines) {}
  void append(std::string line);
  std::vector<std::string> lines() const;

 private:
  const std::size_t max_lines_;
  mutable std::mutex mutex_;
  std::deque<std::string> lines_;
};

/// Writes to a descriptor of this process (1 or 2), and never waits for whoever reads it: at most
/// kMaxPending bytes are kept here, and lines beyond are dropped and counted. A resource, made by
/// std::make_shared, since the loop's handlers share it.
///
/// Threads: the loop's alone.
class OutputSink : public std::enable_shared_from_this<OutputSink> {
 public:
  static constexpr std::size_t kMaxPending = 256 * 1024;

  OutputSink(EventLoop& loop, int fd) : loop_(loop), fd_(fd) {}

  void write_line(const std::string& tag, std::string_view line);

 private:
  void write_pending();
  bool writable_now() const;

  EventLoop& loop_;
  const int fd_;
  std::string pending_;
  std::size_t dropped_lines_ = 0;
};

/// Puts lines together from pieces; a value.
/// Threads: one at a time.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = 8 * 1024;  // longer lines are cut into several

  /// `on_line` gets each line without its newline.
  explicit LineSplitter(std::function<void(std::string_view line)> on_line)
      : on_line_(std::move(on_line)) {}

  void add(std::string_view piece);
  /// Hands on an unfinished line.
  void finish();

 private:
  std::function<void(std::string_view line)> on_line_;
  std::string partial_;
};

/// Reads one pipe of a started process, line by line; a resource.
///
/// Threads: the loop's alone.
class LineReader {
 public:
  static constexpr std::size_t kMaxLine = LineSplitter::kMaxLine;

  /// `on_line` as LineSplitter's.
  LineReader(EventLoop& loop, os::Fd pipe, std::function<void(std::string_view line)> on_line);
  ~LineReader() { close(); }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// Reads what is there now, hands on an unfinished line too, and closes the pipe.
  void finish();

 private:
  bool read_available();  // false: nothing more will come
  void close();

  EventLoop& loop_;
  os::Fd pipe_;
  LineSplitter lines_;
};

/// A pipe for a started process's output: the reading end does not block.
struct OutputPipe {
  os::Fd read_end;
  os::Fd write_end;
  /// Throws SystemError.
  static OutputPipe create();
};

/// Where a started program's output goes: into pipes that this process reads, or to this process's
/// own stdout and stderr; a resource.
struct ProgramOutput {
  OutputPipe output;
  OutputPipe errors;
  os::Fd nothing;  // in place of stdout or stderr, where this process has none to give away
  /// Throws SystemError.
  static ProgramOutput create(bool own);
  /// Of STDOUT_FILENO or STDERR_FILENO; borrowed.
  int fd(int stream) const noexcept;
};

}  // namespace shoal::process
