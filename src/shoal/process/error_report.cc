#include "shoal/process/error_report.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <typeinfo>
#include <utility>

#include "shoal/process/codec.h"

namespace shoal::process {
namespace {

constexpr std::uint32_t kMagic = 0x52524853;  // "SHRR"
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kHasSeed = 1;
constexpr std::size_t kMaxText = 64 * 1024;

std::string shortened(std::string text) {
  if (text.size() <= kMaxText) return text;
  constexpr std::size_t kKeep = kMaxText / 2;
  return fmt::format("{}\n… {} bytes left out …\n{}", text.substr(0, kKeep),
                     text.size() - 2 * kKeep, text.substr(text.size() - kKeep));
}

std::string demangled(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : type.name();
}

}  // namespace

ErrorReport ErrorReport::from_current_exception() {
  ErrorReport report;
  try {
    throw;
  } catch (const RemoteError& error) {
    return error.report();
  } catch (const SystemError& error) {
    report.type = "OSError";
    report.code = error.error_number();
    report.message = error.what();
  } catch (const std::exception& error) {
    report.type = demangled(typeid(error));
    report.message = error.what();
  } catch (...) {
    report.type = "unknown exception";
  }
  report.message = shortened(std::move(report.message));
  return report;
}

std::vector<std::byte> ErrorReport::encode() const {
  ByteWriter writer;
  writer.number(kMagic);
  writer.number(kVersion);
  writer.number(last_seed ? kHasSeed : std::uint32_t{0});
  writer.number(static_cast<std::int32_t>(env_index));
  writer.number(static_cast<std::int32_t>(code));
  writer.number(static_cast<std::int32_t>(episode_step));
  writer.number(last_seed.value_or(0));
  writer.text(type);
  writer.text(shortened(message));
  writer.text(shortened(traceback));
  writer.text(shortened(last_action));
  writer.bytes(extra);
  return writer.take();
}

std::optional<ErrorReport> ErrorReport::decode(std::span<const std::byte> message) {
  ByteReader reader(message);
  if (reader.left() < sizeof kMagic || reader.number<std::uint32_t>() != kMagic)
    return std::nullopt;
  if (const auto version = reader.number<std::uint32_t>(); version != kVersion) {
    throw Error(fmt::format("an error report has version {}, this process reads version {}",
                            version, kVersion));
  }
  ErrorReport report;
  const auto flags = reader.number<std::uint32_t>();
  report.env_index = reader.number<std::int32_t>();
  report.code = reader.number<std::int32_t>();
  report.episode_step = reader.number<std::int32_t>();
  const auto seed = reader.number<std::uint64_t>();
  if ((flags & kHasSeed) != 0) report.last_seed = seed;
  report.type = reader.text();
  report.message = reader.text();
  report.traceback = reader.text();
  report.last_action = reader.text();
  report.extra = reader.bytes();
  return report;
}

std::string ErrorReport::describe() const {
  std::string text = message.empty() ? type : fmt::format("{}: {}", type, message);
  if (env_index >= 0) text += fmt::format("\n  environment {}", env_index);
  if (last_seed) text += fmt::format("\n  last seed {}", *last_seed);
  if (episode_step >= 0)
    text += fmt::format("\n  step {} of its episode", std::int64_t{episode_step} + 1);
  if (!last_action.empty()) text += fmt::format("\n  last action {}", last_action);
  if (!traceback.empty()) text += "\n" + traceback;
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

RemoteError::RemoteError(const std::string& worker, ErrorReport report)
    : Error(fmt::format("{} failed: {}", worker, report.describe())),
      worker_(worker),
      report_(std::move(report)) {}

}  // namespace shoal::process
