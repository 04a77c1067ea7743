#include "shoal/serve/failure_text.h"

#include <algorithm>

#include "shoal/serve/client_slots.h"

namespace shoal::serve {
namespace {

constexpr std::size_t kMostOfMessage = ClientSlots::kMaxTextBytes / 2;

/// Whether a character of UTF-8 goes on with this byte.
bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

std::string_view beginning(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && is_continuation(text[most])) --most;
  return text.substr(0, most);
}

std::string_view ending(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t first = text.size() - most;
  while (first < text.size() && is_continuation(text[first])) ++first;
  return text.substr(first);
}

}  // namespace

std::string FailureText::encode() const {
  std::string text(beginning(message, kMostOfMessage));
  std::ranges::replace(text, '\0', ' ');
  text.push_back('\0');
  return text.append(ending(traceback, ClientSlots::kMaxTextBytes - text.size()));
}

FailureText FailureText::decode(std::string_view text) {
  const std::size_t end = text.find('\0');
  if (end == std::string_view::npos) return {std::string(text), ""};
  return {std::string(text.substr(0, end)), std::string(text.substr(end + 1))};
}

}  // namespace shoal::serve
