#include "shoal/process/supervise/output_relay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::process {

void LogTail::append(std::string line) {
  const std::lock_guard lock(mutex_);
  lines_.push_back(std::move(line));
  if (lines_.size() > max_lines_) lines_.pop_front();
}

std::vector<std::string> LogTail::lines() const {
  const std::lock_guard lock(mutex_);
  return {lines_.begin(), lines_.end()};
}

void OutputSink::write_line(const std::string& tag, std::string_view line) {
  const bool idle = pending_.empty();
  if (pending_.size() + tag.size() + line.size() > kMaxPending) {
    ++dropped_lines_;
    return;
  }
  if (dropped_lines_ > 0) {
    pending_ += fmt::format("[shoal] {} lines of workers' output left out: nobody read them\n",
                            std::exchange(dropped_lines_, 0));
  }
  pending_ += fmt::format("[{}] {}\n", tag, line);
  if (idle) write_pending();
}

bool OutputSink::writable_now() const {
  pollfd entry{fd_, POLLOUT, 0};
  return ::poll(&entry, 1, 0) > 0;
}

void OutputSink::write_pending() {
  // A pipe that polls as writable takes PIPE_BUF bytes without blocking.
  constexpr std::size_t kChunk = 4096;
  while (!pending_.empty()) {
    if (!writable_now()) {
      loop_.watch(fd_, POLLOUT, [self = shared_from_this()] { self->write_pending(); });
      return;
    }
    const ssize_t written = ::write(fd_, pending_.data(), std::min(pending_.size(), kChunk));
    if (written > 0) {
      pending_.erase(0, static_cast<std::size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN) {
      pending_.clear();  // closed, or its reader is gone: nobody can be told
    }
  }
  loop_.unwatch(fd_);
}

void LineSplitter::add(std::string_view piece) {
  partial_.append(piece);
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = partial_.find('\n', begin);
    if (end != std::string::npos) {
      on_line_(std::string_view(partial_).substr(begin, end - begin));
      begin = end + 1;
    } else if (partial_.size() - begin >= kMaxLine) {
      on_line_(std::string_view(partial_).substr(begin, kMaxLine));
      begin += kMaxLine;
    } else {
      break;
    }
  }
  partial_.erase(0, begin);
}

void LineSplitter::finish() {
  if (!partial_.empty()) on_line_(std::exchange(partial_, {}));
}

LineReader::LineReader(EventLoop& loop, os::Fd pipe, std::function<void(std::string_view)> on_line)
    : loop_(loop), pipe_(std::move(pipe)), lines_(std::move(on_line)) {
  loop_.watch(pipe_.get(), POLLIN, [this] {
    if (!read_available()) finish();
  });
}

bool LineReader::read_available() {
  // Bounded, since whoever writes without end must not keep the loop from everybody else; a pipe
  // holds no more than this.
  constexpr int kMaxReads = 8;
  std::array<char, 16 * 1024> buffer;
  for (int reads = 0; reads < kMaxReads;) {
    const ssize_t count = ::read(pipe_.get(), buffer.data(), buffer.size());
    if (count > 0) {
      lines_.add({buffer.data(), static_cast<std::size_t>(count)});
      ++reads;
    } else if (count == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
  return true;
}

void LineReader::finish() {
  if (!pipe_) return;
  read_available();
  lines_.finish();
  close();
}

void LineReader::close() {
  if (!pipe_) return;
  loop_.unwatch(pipe_.get());
  pipe_.reset();
}

OutputPipe OutputPipe::create() {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) < 0) throw SystemError("create a pipe for a worker's output");
  OutputPipe pipe{os::Fd(ends[0]), os::Fd(ends[1])};
  // Only our end: O_NONBLOCK belongs to the end's open file description, so the worker's writes
  // stay ordinary ones.
  if (::fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK) < 0) {
    throw SystemError("make a worker's output pipe non-blocking");
  }
  return pipe;
}

ProgramOutput ProgramOutput::create(bool own) {
  ProgramOutput streams;
  if (own) {
    streams.nothing = os::Fd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (!streams.nothing) throw SystemError("open /dev/null");
  } else {
    streams.output = OutputPipe::create();
    streams.errors = OutputPipe::create();
  }
  return streams;
}

int ProgramOutput::fd(int stream) const noexcept {
  const OutputPipe& pipe = stream == STDERR_FILENO ? errors : output;
  if (pipe.write_end) return pipe.write_end.get();
  // Closed, or a file of this process's own that has the number.
  return ::fcntl(stream, F_GETFD) == 0 ? stream : nothing.get();
}

}  // namespace shoal::process
