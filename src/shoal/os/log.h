// Shoal's own log lines: to whoever takes them in this process (in Python, its logging), else to
// stderr, synchronously, so that the last line before a crash is there.
//
// The environment variable SHOAL_LOG sets the level (trace, debug, info, warning, error, off);
// unset means warning. Where it is set, lines go to stderr whoever else takes them.
//
// Threads: any.
// Processes: each has its own; a line is one write, so lines of several processes do not mix. Who
// reads the output of another one finds its lines by parse_log_line().
// Fork: a child of a single-threaded parent may log.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string_view>

namespace shoal::os {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

/// A line as it is handed on; borrows its texts.
struct LogLine {
  LogLevel level = LogLevel::kWarning;
  std::string_view source;  // the layer that says it: "vector", "serve", …
  std::string_view text;
  std::string_view who;  // the worker that said it; empty: this process
  int pid = 0;
};

/// What a value of SHOAL_LOG means: a level's name; warning for nothing or for what is none.
LogLevel log_level_from(const char* text) noexcept;
std::string_view name_of(LogLevel level) noexcept;

bool log_enabled(LogLevel level) noexcept;
void set_log_level(LogLevel level) noexcept;
void write_log(LogLevel level, std::string_view source, std::string_view text) noexcept;

/// Takes lines instead of stderr; false: it does not take this one. Called by any thread, which
/// waits for it.
using LogTaker = bool (*)(const LogLine& line) noexcept;
/// Null: nobody.
void set_log_taker(LogTaker taker) noexcept;

/// A line of another process for this one's taker; false: nobody takes it.
bool pass_on_log(const LogLine& line) noexcept;

/// Whether SHOAL_LOG is set: then write_log() has written a line to stderr before anybody takes it.
bool stderr_is_asked_for() noexcept;

/// To stderr, as if nobody took it.
void write_log_to_stderr(const LogLine& line) noexcept;

/// What `line`, without its newline, says, where a process of Shoal wrote it to stderr; nothing for
/// any other. Borrows from it.
std::optional<LogLine> parse_log_line(std::string_view line) noexcept;

/// Formats and writes a line when `level` is enabled. `source`: the layer that says it.
template <class... Args>
void log(LogLevel level, std::string_view source, fmt::format_string<Args...> format,
         Args&&... args) {
  if (log_enabled(level))
    write_log(level, source, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace shoal::os
