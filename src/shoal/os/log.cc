#include "shoal/os/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <utility>

namespace shoal::os {
namespace {

constexpr std::pair<std::string_view, LogLevel> kLevelNames[] = {
    {"trace", LogLevel::kTrace},     {"debug", LogLevel::kDebug}, {"info", LogLevel::kInfo},
    {"warning", LogLevel::kWarning}, {"error", LogLevel::kError}, {"off", LogLevel::kOff}};

std::atomic<LogTaker> log_taker = nullptr;

spdlog::level::level_enum to_spdlog(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

std::shared_ptr<spdlog::logger> make_logger() {
  auto logger =
      std::make_shared<spdlog::logger>("shoal", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("[%Y-%m-%d %H:%M:%S.%e] %v");
  logger->set_level(to_spdlog(log_level_from(std::getenv("SHOAL_LOG"))));
  return logger;
}

/// Never destroyed, so that destructors of other static objects may log.
spdlog::logger& logger() {
  static auto* instance = new std::shared_ptr<spdlog::logger>(make_logger());
  return **instance;
}

/// The text in front of `end`, which goes from `rest` together with it; nothing where there is none.
std::optional<std::string_view> cut(std::string_view& rest, std::string_view end) noexcept {
  const std::size_t at = rest.find(end);
  if (at == std::string_view::npos) return {};
  const std::string_view text = rest.substr(0, at);
  rest.remove_prefix(at + end.size());
  return text;
}

}  // namespace

LogLevel log_level_from(const char* text) noexcept {
  for (const auto& [name, level] : kLevelNames) {
    if (text != nullptr && name == text) return level;
  }
  return LogLevel::kWarning;
}

std::string_view name_of(LogLevel level) noexcept {
  return kLevelNames[static_cast<std::size_t>(level)].first;
}

bool log_enabled(LogLevel level) noexcept { return logger().should_log(to_spdlog(level)); }

void set_log_level(LogLevel level) noexcept { logger().set_level(to_spdlog(level)); }

void set_log_taker(LogTaker taker) noexcept {
  log_taker.store(taker, std::memory_order_release);  // [taker]
}

bool pass_on_log(const LogLine& line) noexcept {
  const LogTaker taker = log_taker.load(std::memory_order_acquire);  // [taker]
  return taker != nullptr && taker(line);
}

bool stderr_is_asked_for() noexcept {
  static const bool asked = std::getenv("SHOAL_LOG") != nullptr;
  return asked;
}

// Line by line, so that each says whose it is.
void write_log_to_stderr(const LogLine& line) noexcept {
  for (std::string_view rest = line.text; !rest.empty();) {
    const auto one = cut(rest, "\n");
    logger().log(to_spdlog(line.level), "[shoal.{} {}] [{}] {}", line.source, line.pid,
                 name_of(line.level), one.value_or(rest));
    if (!one) return;
  }
}

void write_log(LogLevel level, std::string_view source, std::string_view text) noexcept {
  const LogLine line{.level = level, .source = source, .text = text, .who = {}, .pid = ::getpid()};
  if (stderr_is_asked_for()) write_log_to_stderr(line);
  if (!pass_on_log(line) && !stderr_is_asked_for()) write_log_to_stderr(line);
}

std::optional<LogLine> parse_log_line(std::string_view line) noexcept {
  if (!line.starts_with("[2")) return {};  // a year
  if (!cut(line, "] [shoal.")) return {};
  const auto source = cut(line, " ");
  const auto pid = cut(line, "] [");
  const auto level = cut(line, "] ");
  if (!source || !pid || !level) return {};
  LogLine parsed;
  parsed.source = *source;
  parsed.text = line;
  const auto [end, error] = std::from_chars(pid->data(), pid->data() + pid->size(), parsed.pid);
  if (error != std::errc() || end != pid->data() + pid->size()) return {};
  for (const auto& [name, number] : kLevelNames) {
    if (name != *level) continue;
    parsed.level = number;
    return parsed;
  }
  return {};
}

}  // namespace shoal::os
