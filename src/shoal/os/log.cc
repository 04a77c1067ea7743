#include "shoal/os/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <utility>

namespace shoal::os {
namespace {

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
  logger->set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%n %P] [%l] %v");
  logger->set_level(to_spdlog(log_level_from(std::getenv("SHOAL_LOG"))));
  return logger;
}

/// Never destroyed, so that destructors of other static objects may log.
spdlog::logger& logger() {
  static auto* instance = new std::shared_ptr<spdlog::logger>(make_logger());
  return **instance;
}

}  // namespace

LogLevel log_level_from(const char* text) noexcept {
  constexpr std::pair<std::string_view, LogLevel> kNames[] = {
      {"trace", LogLevel::kTrace},     {"debug", LogLevel::kDebug}, {"info", LogLevel::kInfo},
      {"warning", LogLevel::kWarning}, {"error", LogLevel::kError}, {"off", LogLevel::kOff}};
  for (const auto& [name, level] : kNames) {
    if (text != nullptr && name == text) return level;
  }
  return LogLevel::kWarning;
}

bool log_enabled(LogLevel level) noexcept { return logger().should_log(to_spdlog(level)); }

void set_log_level(LogLevel level) noexcept { logger().set_level(to_spdlog(level)); }

void write_log(LogLevel level, std::string_view text) noexcept {
  logger().log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace shoal::os
