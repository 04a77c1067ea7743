#include "shoal/group/host_port.h"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "shoal/os/error.h"

namespace shoal::group {
namespace {

std::optional<HostPort> take_apart(std::string_view text) {
  const bool bracketed = text.starts_with('[');
  const std::string_view between = bracketed ? "]:" : ":";
  const std::size_t end = text.find(between);
  if (end == std::string_view::npos) return {};
  const std::string_view host = text.substr(0, end).substr(bracketed ? 1 : 0);
  const std::string_view port = text.substr(end + between.size());
  std::uint16_t number = 0;
  const auto [stop, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (host.empty() || error != std::errc() || stop != port.data() + port.size()) return {};
  return HostPort{std::string(host), number};
}

}  // namespace

HostPort parse_host_port(std::string_view text) {
  if (auto parsed = take_apart(text)) return *std::move(parsed);
  throw InvalidArgument(
      fmt::format("'{}' is no address: give host:port, such as 127.0.0.1:7000", text));
}

}  // namespace shoal::group
