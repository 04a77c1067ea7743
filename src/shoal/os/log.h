// Shoal's own log lines: to stderr, synchronously, so that the last line before a crash is there.
//
// The environment variable SHOAL_LOG sets the level (trace, debug, info, warning, error, off);
// unset means warning.
//
// Threads: any.
// Processes: each has its own; a line is one write, so lines of several processes do not mix.
// Fork: a child of a single-threaded parent may log.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace shoal::os {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

/// What a value of SHOAL_LOG means: a level's name; warning for nothing or for what is none.
LogLevel log_level_from(const char* text) noexcept;

bool log_enabled(LogLevel level) noexcept;
void set_log_level(LogLevel level) noexcept;
void write_log(LogLevel level, std::string_view text) noexcept;

/// Formats and writes a line when `level` is enabled.
template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) write_log(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace shoal::os
