#include "shoal/group/watch.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/process/self/own_thread.h"

namespace shoal::group {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kReason{2'000};  // that the news of a loss may take
constexpr std::chrono::milliseconds kSending{200};   // with a neighbour whose buffer is full

}  // namespace

Watch::Watch(int rank, std::vector<Member> members, std::optional<Neighbour> parent,
             std::vector<Neighbour> children, std::function<void()> on_loss)
    : rank_(rank),
      is_root_(!parent),
      members_(std::move(members)),
      on_loss_(std::move(on_loss)),
      has_left_(members_.size()) {
  const auto now = os::Clock::now();
  if (parent) peers_.push_back({parent->rank, std::move(parent->link), now});
  for (Neighbour& child : children) peers_.push_back({child.rank, std::move(child.link), now});
  thread_ = std::jthread([this] { run(); });
}

Watch::~Watch() {
  {
    const std::lock_guard lock(sending_);
    send_to_others(pack_farewell(rank_), nullptr);
  }
  ending_.store(true, std::memory_order_release);
  wake_.notify();
}

void Watch::run() {
  const process::OwnThread own("shoal-group");
  auto next_beat = os::Clock::now();
  auto looked = next_beat;
  while (!ending_.load(std::memory_order_acquire)) {
    std::vector<pollfd> entries{{wake_.fd(), POLLIN, 0}};
    for (const Peer& peer : peers_) entries.push_back({peer.gone ? -1 : peer.link.fd(), POLLIN, 0});
    const auto pause = std::max<std::chrono::nanoseconds>(next_beat - os::Clock::now(), 0ns);
    ::poll(entries.data(), entries.size(),
           static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(pause).count()));
    const auto now = os::Clock::now();
    // It was this process that was stopped: what the others sent meanwhile has not been looked at.
    if (now - looked > kSilence / 2)
      for (Peer& peer : peers_) peer.heard = now;
    looked = now;
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (!peers_[i].gone && entries[i + 1].revents != 0) hear(peers_[i], now);
    if (now >= next_beat) {
      beat();
      next_beat = now + kHeartbeat;
    }
    look_for_silence(now);
  }
}

void Watch::hear(Peer& peer, os::Clock::time_point now) {
  os::Message message;
  try {
    for (;;) {
      const auto outcome = peer.link.recv(message, os::Deadline::min());
      if (outcome == os::RecvOutcome::kTimedOut) return;
      if (outcome == os::RecvOutcome::kClosed) break;
      peer.heard = now;
      take(peer, message.bytes);
      if (peer.gone) return;
    }
    lose({peer.rank, "its connection has ended: it was killed, or ended without a farewell",
          os::seconds_between(peer.heard, now)},
         &peer);
  } catch (const std::exception& error) {
    lose({peer.rank, fmt::format("its connection is of no use: {}", error.what()), 0}, &peer);
  }
  drop(peer);
}

void Watch::drop(Peer& peer) {
  const std::lock_guard lock(sending_);
  peer.gone = true;
}

void Watch::take(Peer& peer, std::span<const std::byte> message) {
  switch (kind_of(message)) {
    case MessageKind::kLost:
      return lose(unpack_loss(message), &peer);
    case MessageKind::kFarewell: {
      const int rank = unpack_farewell(message);
      if (rank == peer.rank) drop(peer);
      return take_leave(rank, &peer);
    }
    case MessageKind::kArrived:
      return arrive(unpack_round(message, MessageKind::kArrived));
    case MessageKind::kEnough: {
      const Round round = unpack_round(message, MessageKind::kEnough);
      enough_.store(round.number + 1, std::memory_order_relaxed);
      const std::lock_guard lock(sending_);
      return send_to_others(message, &peer);
    }
    default:
      return;  // a heartbeat
  }
}

void Watch::beat() {
  const std::lock_guard lock(sending_);
  send_to_others(pack(MessageKind::kHeartbeat), nullptr);
}

void Watch::look_for_silence(os::Clock::time_point now) {
  for (Peer& peer : peers_) {
    if (peer.gone || now - peer.heard < kSilence) continue;
    drop(peer);
    lose({peer.rank, "it does not answer: it was stopped, or its host is gone",
          os::seconds_between(peer.heard, now)},
         &peer);
  }
}

void Watch::lose(const Loss& loss, const Peer* from) {
  check_rank(loss.rank);
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (!loss_) {
      first = true;
      loss_ = loss;
      lost_at_ = os::Clock::now();
    }
  }
  changed_.store(true, std::memory_order_release);
  {
    const std::lock_guard lock(sending_);
    send_to_others(pack(loss), from);
  }
  if (first) on_loss_();
}

void Watch::take_leave(int rank, const Peer* from) {
  check_rank(rank);
  {
    const std::lock_guard lock(mutex_);
    has_left_[static_cast<std::size_t>(rank)] = true;
  }
  changed_.store(true, std::memory_order_release);
  const std::lock_guard lock(sending_);
  send_to_others(pack_farewell(rank), from);
}

void Watch::check_rank(int rank) const {
  if (rank < 0 || rank >= static_cast<int>(members_.size()))
    throw Error(fmt::format("it tells of rank {}, and there are {}", rank, members_.size()));
}

void Watch::send_to_others(std::span<const std::byte> message, const Peer* except) {
  for (Peer& peer : peers_) {
    if (peer.gone || &peer == except) continue;
    try {
      // One that takes nothing will be found silent.
      static_cast<void>(peer.link.send(message, os::deadline_after(kSending)));
    } catch (const Error&) {  // it will be found silent, too
    }
  }
}

void Watch::arrive(const Round& round) noexcept {
  try {
    if (is_root_) return count(round);
    const std::lock_guard lock(sending_);
    Peer& parent = peers_.front();
    if (!parent.gone)
      static_cast<void>(
          parent.link.send(pack(MessageKind::kArrived, round), os::deadline_after(kSending)));
  } catch (const std::exception&) {  // it will be found silent; nobody waits for a round
  }
}

void Watch::count(const Round& round) {
  {
    const std::lock_guard lock(mutex_);
    if (round.number > round_.number || arrived_ == 0) {
      round_ = round;
      arrived_ = 0;
    }
    if (round.number < round_.number || ++arrived_ != round_.needed) return;
    enough_.store(round.number + 1, std::memory_order_relaxed);
  }
  const std::lock_guard lock(sending_);
  send_to_others(pack(MessageKind::kEnough, round), nullptr);
}

void Watch::fail(const std::string& why) noexcept {
  try {
    const std::lock_guard lock(sending_);
    send_to_others(pack(Loss{rank_, "it failed: " + why, 0}), nullptr);
  } catch (const std::exception&) {  // then they see its end
  }
}

// Whoever waits for this rank needs what it waits for: a rank that left and is needed is lost to
// all.
void Watch::look_for_losses(std::span<const int> needed) {
  std::optional<int> left;
  {
    const std::lock_guard lock(mutex_);
    if (loss_) {
      throw PeerLost(members_.at(static_cast<std::size_t>(loss_->rank)), loss_->cause,
                     loss_->silent_seconds + os::seconds_between(lost_at_, os::Clock::now()));
    }
    const auto found = std::ranges::find_if(
        needed, [&](int rank) { return has_left_.at(static_cast<std::size_t>(rank)); });
    if (found == needed.end()) return;
    left = *found;
  }
  lose({*left, "it has left the group", 0}, nullptr);
  look_for_losses({});
}

void Watch::throw_why(int rank) {
  const auto deadline = os::deadline_after(kReason);
  do {
    check({&rank, 1});
    std::this_thread::sleep_for(5ms);
  } while (os::Clock::now() < deadline);
  throw PeerLost(members_.at(static_cast<std::size_t>(rank)), "its data connection has ended", 0);
}

}  // namespace shoal::group
