// What is told of a row that its model failed on, as it lies in the row's slot and crosses to other hosts.
//
//   message │ a zero byte │ traceback      all of it UTF-8 where it was given so
#pragma once

#include <string>
#include <string_view>

namespace shoal::serve {

/// A value.
struct FailureText {
  std::string message;    // "ValueError: …"; may have several lines
  std::string traceback;  // as the model's language formats it; may be empty

  /// ClientSlots::kMaxTextBytes at most: of a long message its beginning, of a long traceback its
  /// end, cut between two characters. Zero bytes of the message become spaces.
  std::string encode() const;
  /// Takes any bytes: without a zero byte all of them are the message.
  static FailureText decode(std::string_view text);
};

}  // namespace shoal::serve
