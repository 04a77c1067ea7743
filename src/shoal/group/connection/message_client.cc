#include "shoal/group/connection/message_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "shoal/group/connection/connection_lost.h"
#include "shoal/os/error.h"
#include "shoal/os/poll.h"
#include "shoal/process/self/own_thread.h"

namespace shoal::group {
namespace {

constexpr std::chrono::seconds kAnswer{10};  // for what the server says at once
constexpr std::chrono::seconds kToConnect{3};
constexpr std::chrono::milliseconds kPause{200};  // between two attempts
constexpr std::chrono::seconds kToLeave{1};

/// The next message; nothing where the connection ended.
std::optional<std::vector<std::byte>> await_message(MessageStream& stream, os::Deadline deadline,
                                                    const std::function<void()>& look) {
  std::vector<std::byte> message;
  for (;;) {
    if (!stream.flush()) return {};
    const auto got = stream.recv(message);
    if (got == MessageStream::Got::kMessage) return message;
    if (got == MessageStream::Got::kClosed || os::Clock::now() >= deadline) return {};
    if (look) look();
    static_cast<void>(
        os::poll_one(stream.fd(), stream.events(), std::min(deadline, os::deadline_after(kPause))));
  }
}

struct Reached {
  MessageStream stream;
  Admission admission;
};

/// Nothing where nobody is there, or one that does not answer; `why` says which. Throws Error where
/// it is refused, os::UnknownHost.
std::optional<Reached> reach(const MessageClient::Options& options, os::Deadline deadline,
                             const char*& why) {
  why = "nobody has answered there";
  auto connection = os::Stream::connect(
      options.host, options.port, std::min(deadline, os::deadline_after(kToConnect)), options.look);
  if (!connection) return {};
  MessageStream stream(std::move(*connection));
  const auto answer_by = std::min(deadline, os::deadline_after(kAnswer));
  why = "who took the connection there said nothing: it is stopped, or another program";
  const auto first = await_message(stream, answer_by, options.look);
  if (!first) return {};
  stream.set_longest(options.longest_welcome);
  Hello hello = options.hello;
  hello.host = this_host();
  hello.pid = static_cast<int>(::getpid());
  hello.challenge = make_challenge();
  stream.queue(pack(hello, unpack_hello_challenge(*first), options.secret));
  const auto second = await_message(stream, answer_by, options.look);
  if (!second) return {};
  if (kind_byte_of(*second) == static_cast<std::uint8_t>(HelloKind::kRefused))
    throw Error(fmt::format("{} at {}:{} refuses this process: {}", options.who, options.host,
                            options.port, unpack_hello_refusal(*second)));
  Admission admission = unpack_admission(*second, hello.challenge, options.secret);
  return Reached{std::move(stream), std::move(admission)};
}

}  // namespace

MessageClient::MessageClient(Options options)
    : options_(std::move(options)), longest_(options_.longest) {
  require_secret(options_.host, options_.secret, fmt::format("connect to {}", options_.host),
                 "on both sides");
  const auto deadline = os::deadline_after(options_.timeout);
  for (;;) {
    const char* why = "";
    try {
      if (auto reached = reach(options_, deadline, why)) {
        stream_.emplace(std::move(reached->stream));
        admission_ = std::move(reached->admission);
        break;
      }
    } catch (const os::UnknownHost&) {  // its name may come back, as a pod's that is restarted
      if (os::Clock::now() >= deadline) throw;
    }
    if (os::Clock::now() >= deadline)
      throw TimedOut(fmt::format("reach {} at {}:{} within {:.1f} s: {}", options_.who,
                                 options_.host, options_.port,
                                 std::chrono::duration<double>(options_.timeout).count(), why));
    if (options_.look) options_.look();
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(kPause, os::time_left(deadline)));
  }
  options_.look = nullptr;  // what it refers to may end before this does
  thread_ = std::thread([this] { run(); });
}

MessageClient::~MessageClient() {
  leave({"it leaves", true});
  if (!thread_.joinable()) return;
  os::abandon(std::move(thread_));
  os::abandon(std::move(stream_));
}

void MessageClient::leave(const Farewell& farewell) noexcept {
  if (!maker_.is_this() || !thread_.joinable()) return;
  leave_ = farewell;
  ending_.store(true, std::memory_order_release);
  wake_.notify();
  thread_.join();
}

void MessageClient::send(std::vector<std::byte> message) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    going_.push_back(std::move(message));
  }
  wake_.notify();
}

MessageClient::Got MessageClient::recv(std::vector<std::byte>& message, os::Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto there = [this] { return !came_.empty() || farewell_ || failure_; };
  if (deadline == os::kNoDeadline) {
    changed_.wait(lock, there);
  } else if (!changed_.wait_until(lock, deadline, there)) {
    return Got::kNothing;
  }
  if (!came_.empty()) {
    message = std::move(came_.front());
    came_.pop_front();
    return Got::kMessage;
  }
  if (farewell_) return Got::kFarewell;
  std::rethrow_exception(failure_);
}

bool MessageClient::has_ended() const {
  const std::lock_guard lock(mutex_);
  return farewell_ || failure_;
}

Farewell MessageClient::farewell() const {
  const std::lock_guard lock(mutex_);
  return farewell_.value_or(Farewell{});
}

void MessageClient::end(std::exception_ptr why) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_ && !farewell_) failure_ = std::move(why);
    ended_ = true;
  }
  changed_.notify_all();
  if (options_.came) options_.came();
}

std::exception_ptr MessageClient::lost(const std::string& cause) const {
  return std::make_exception_ptr(ConnectionLost(options_.who,
                                                Member{0, admission_.host, admission_.pid}, cause,
                                                os::seconds_since(stream_->heard())));
}

void MessageClient::run() noexcept {
  const process::OwnThread own("shoal-client");
  try {
    talk();
  } catch (...) {
    end(std::current_exception());
  }
  stream_.reset();
}

void MessageClient::talk() {
  auto next_beat = os::Clock::now();
  auto looked = next_beat;
  auto leave_by = os::kNoDeadline;
  stream_->count_as_heard(next_beat);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_ || failure_ || farewell_) return;
      for (auto& message : going_) stream_->queue(std::move(message));
      going_.clear();
    }
    if (leave_by == os::kNoDeadline && ending_.load(std::memory_order_acquire)) {
      stream_->queue(pack(leave_));
      leave_by = os::deadline_after(kToLeave);
    }
    if (!stream_->flush()) {
      take_in();  // perhaps it has said why
      return end(lost("its connection has ended: it was killed, or ended without a farewell"));
    }
    if (os::Clock::now() >= leave_by) return;
    std::array<pollfd, 2> entries{{{wake_.fd(), POLLIN, 0}, {stream_->fd(), stream_->events(), 0}}};
    const auto pause = std::max(next_beat - os::Clock::now(), os::Clock::duration::zero());
    ::poll(entries.data(), entries.size(),
           static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(pause).count()));
    const auto now = os::Clock::now();
    if (now - looked > kLongestSilence / 2) stream_->count_as_heard(now);  // it was stopped itself
    looked = now;
    wake_.clear();
    take_in();
    if (now >= next_beat) {
      if (stream_->waiting() == 0) stream_->queue(pack_heartbeat());
      next_beat = now + kBeat;
    }
    if (now - stream_->heard() > kLongestSilence) {
      stream_->queue(pack(Farewell{"it has heard nothing for too long, and gave up", false}));
      static_cast<void>(stream_->flush());
      return end(
          lost("it does not answer: it was stopped, or its host or the network to it is "
               "gone"));
    }
  }
}

void MessageClient::take_in() {
  std::vector<std::byte> message;
  for (;;) {
    stream_->set_longest(longest_.load(std::memory_order_relaxed));
    switch (stream_->recv(message)) {
      case MessageStream::Got::kNothing:
        return;
      case MessageStream::Got::kClosed:
        if (ending_.load(std::memory_order_acquire)) return end(nullptr);
        return end(lost("its connection has ended: it was killed, or ended without a farewell"));
      case MessageStream::Got::kMessage:
        break;
    }
    const std::uint8_t kind = kind_byte_of(message);
    if (kind == static_cast<std::uint8_t>(HelloKind::kHeartbeat)) continue;
    const bool last = take(kind, message);
    changed_.notify_all();
    if (options_.came) options_.came();
    if (last) return;
    message.clear();
  }
}

/// Returns whether no other message comes.
bool MessageClient::take(std::uint8_t kind, std::vector<std::byte>& message) {
  const std::lock_guard lock(mutex_);
  if (kind >= kFirstOfOwn) {
    came_.push_back(std::move(message));
  } else if (kind == static_cast<std::uint8_t>(HelloKind::kFarewell)) {
    farewell_ = unpack_hello_farewell(message);
  } else if (kind == static_cast<std::uint8_t>(HelloKind::kRefused)) {
    failure_ = std::make_exception_ptr(Error(fmt::format(
        "{} has sent this process away: {}", options_.who, unpack_hello_refusal(message))));
  } else {
    throw Error("a message of another kind than was expected: another program speaks there");
  }
  return farewell_ || failure_;
}

}  // namespace shoal::group
