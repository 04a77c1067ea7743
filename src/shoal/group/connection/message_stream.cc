#include "shoal/group/connection/message_stream.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "shoal/os/error.h"

namespace shoal::group {
namespace {

constexpr std::size_t kMostToRead = 256 * 1024;  // at once
constexpr std::size_t kMostOfACall = 4 << 20;    // others want to be heard, too
constexpr std::size_t kMostToKeep = 1 << 20;     // of the room for a message

}  // namespace

bool MessageStream::flush() {
  while (!waiting_.empty()) {
    const auto& message = *waiting_.front();
    const auto length = std::bit_cast<Length>(std::uint64_t{message.size()});
    const auto left = sent_ < length.size() ? std::span<const std::byte>(length).subspan(sent_)
                                            : std::span(message).subspan(sent_ - length.size());
    std::size_t sent = 0;
    if (!left.empty()) {
      const auto outcome = stream_.send_some(left, sent);
      if (outcome == os::StreamOutcome::kClosed) return false;
      if (outcome == os::StreamOutcome::kTimedOut) return true;
    }
    sent_ += sent;
    sent_bytes_ += sent;
    if (sent_ < length.size() + message.size()) continue;
    waiting_.pop_front();
    sent_ = 0;
  }
  return true;
}

MessageStream::Got MessageStream::recv(std::vector<std::byte>& message) {
  const auto read = [&](std::span<std::byte> into, std::size_t& got) {
    const auto outcome = stream_.recv_some(into, got);
    if (outcome == os::StreamOutcome::kDone) {
      heard_ = os::Clock::now();
      received_bytes_ += got;
    }
    return outcome;
  };
  const auto nothing = [](os::StreamOutcome outcome) {
    return outcome == os::StreamOutcome::kClosed ? Got::kClosed : Got::kNothing;
  };
  std::size_t got = 0;
  while (length_bytes_ < length_.size()) {
    const auto outcome = read(std::span(length_).subspan(length_bytes_), got);
    if (outcome != os::StreamOutcome::kDone) return nothing(outcome);
    length_bytes_ += got;
  }
  const auto length = std::bit_cast<std::uint64_t>(length_);
  if (length > longest_)
    throw Error(fmt::format(
        "received a message of {} bytes where {} is the most: another program speaks there", length,
        longest_));
  const std::size_t end = coming_.size() + kMostOfACall;
  while (coming_.size() < length) {
    const std::size_t before = coming_.size();
    if (before >= end) return Got::kNothing;
    coming_.resize(before + std::min<std::size_t>(length - before, kMostToRead));
    const auto outcome = read(std::span(coming_).subspan(before), got);
    coming_.resize(before + got);
    if (outcome != os::StreamOutcome::kDone) return nothing(outcome);
  }
  message.swap(coming_);
  coming_.clear();
  if (coming_.capacity() > kMostToKeep) coming_ = {};
  length_bytes_ = 0;
  return Got::kMessage;
}

bool MessageStream::drop_received() {
  coming_.resize(kMostToRead);
  std::size_t got = 0;
  return stream_.recv_some(coming_, got) != os::StreamOutcome::kClosed;
}

short MessageStream::events() const noexcept {
  return static_cast<short>(waiting_.empty() ? POLLIN : POLLIN | POLLOUT);
}

}  // namespace shoal::group
