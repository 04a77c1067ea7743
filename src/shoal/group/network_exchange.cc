#include "shoal/group/network_exchange.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "shoal/group/pairwise_sum.h"
#include "shoal/os/error.h"

namespace shoal::group {
namespace {

/// Of a length that another host says.
constexpr std::size_t kMostOfALength = 64 << 20;

/// Drops what is through.
template <class Span>
void advance(std::vector<Span>& spans, std::size_t done) {
  spans.front() = spans.front().subspan(done);
  std::erase_if(spans, [](const Span& span) { return span.empty(); });
}

}  // namespace

NetworkExchange::NetworkExchange(std::vector<os::Stream> streams, std::vector<int> ranks,
                                 std::size_t index, bool full, Watch& watch)
    : streams_(std::move(streams)),
      ranks_(std::move(ranks)),
      index_(index),
      full_(full),
      watch_(watch),
      parts_(streams_.size()) {}

void NetworkExchange::send(std::size_t to, std::span<const std::byte> bytes) {
  // The watch ends the wait where the other side does not take it.
  if (streams_[to].send(bytes, os::kNoDeadline) != os::StreamOutcome::kDone)
    watch_.throw_why(ranks_[to]);
}

void NetworkExchange::receive(std::size_t from, std::span<std::byte> bytes) {
  if (streams_[from].recv(bytes, os::kNoDeadline) != os::StreamOutcome::kDone)
    watch_.throw_why(ranks_[from]);
}

bool NetworkExchange::move_some(std::size_t host, Traffic& traffic) {
  std::size_t sent = 0, received = 0;
  auto outcome = os::StreamOutcome::kDone;
  if (!traffic.out.empty()) outcome = streams_[host].send_some(traffic.out.front(), sent);
  if (sent > 0) advance(traffic.out, sent);
  if (outcome != os::StreamOutcome::kClosed && !traffic.in.empty())
    outcome = streams_[host].recv_some(traffic.in.front(), received);
  if (received > 0) advance(traffic.in, received);
  if (outcome == os::StreamOutcome::kClosed) watch_.throw_why(ranks_[host]);
  return sent + received > 0;
}

void NetworkExchange::exchange(std::vector<Traffic> traffic) {
  for (Traffic& its : traffic) {
    std::erase_if(its.out, [](const auto& span) { return span.empty(); });
    std::erase_if(its.in, [](const auto& span) { return span.empty(); });
  }
  std::vector<pollfd> waiting;
  for (;;) {
    waiting.clear();
    bool moved = false;
    // Each begins with the host after it: not all with the same.
    for (std::size_t i = 1; i < hosts(); ++i) {
      const std::size_t host = (index_ + i) % hosts();
      Traffic& its = traffic[host];
      if (its.out.empty() && its.in.empty()) continue;
      moved |= move_some(host, its);
      const int events = (its.out.empty() ? 0 : POLLOUT) | (its.in.empty() ? 0 : POLLIN);
      if (events != 0) waiting.push_back({streams_[host].fd(), static_cast<short>(events), 0});
    }
    if (waiting.empty()) return;
    if (!moved && ::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR)
      throw SystemError("wait for other hosts");
  }
}

template <class T>
void NetworkExchange::add_up(std::span<T> own) {
  if (own.empty()) return;
  std::vector<const T*> parts;
  for (std::size_t host = 0; host < hosts(); ++host) {
    if (host == index_) {
      parts.push_back(own.data());
      continue;
    }
    parts_[host].resize(own.size_bytes());
    receive(host, parts_[host]);
    parts.push_back(reinterpret_cast<const T*>(parts_[host].data()));
  }
  add_parts<T>(parts, 0, own.size(), own.data());
}

template <class T>
std::span<T> NetworkExchange::share(std::span<T> all, std::size_t host) const noexcept {
  const std::size_t first = all.size() * host / hosts();
  return all.subspan(first, all.size() * (host + 1) / hosts() - first);
}

void NetworkExchange::share_out(std::span<float> floats, std::span<double> doubles) {
  const std::span<float> own_floats = share(floats, index_);
  const std::span<double> own_doubles = share(doubles, index_);
  std::vector<Traffic> traffic(hosts());
  std::vector<const float*> float_parts(hosts(), own_floats.data());
  std::vector<const double*> double_parts(hosts(), own_doubles.data());
  for (std::size_t host = 0; host < hosts(); ++host) {
    if (host == index_) continue;
    auto& part = parts_[host];
    part.resize(own_doubles.size_bytes() + own_floats.size_bytes());
    const auto [of_doubles, of_floats] =
        std::pair(std::span(part).first(own_doubles.size_bytes()),
                  std::span(part).subspan(own_doubles.size_bytes()));
    double_parts[host] = reinterpret_cast<const double*>(of_doubles.data());
    float_parts[host] = reinterpret_cast<const float*>(of_floats.data());
    traffic[host] = {
        .out = {std::as_bytes(share(doubles, host)), std::as_bytes(share(floats, host))},
        .in = {of_doubles, of_floats}};
  }
  exchange(std::move(traffic));
  if (!own_floats.empty()) add_parts<float>(float_parts, 0, own_floats.size(), own_floats.data());
  if (!own_doubles.empty())
    add_parts<double>(double_parts, 0, own_doubles.size(), own_doubles.data());
  traffic.assign(hosts(), {});
  for (std::size_t host = 0; host < hosts(); ++host)
    if (host != index_)
      traffic[host] = {.out = {std::as_bytes(own_doubles), std::as_bytes(own_floats)},
                       .in = {std::as_writable_bytes(share(doubles, host)),
                              std::as_writable_bytes(share(floats, host))}};
  exchange(std::move(traffic));
}

void NetworkExchange::sum(std::span<float> floats, std::span<double> doubles) {
  if (full_ && floats.size_bytes() + doubles.size_bytes() >= kSharedFrom)
    return share_out(floats, doubles);
  if (index_ == 0) {
    add_up(floats);
    add_up(doubles);
  } else {
    send(0, std::as_bytes(floats));
    send(0, std::as_bytes(doubles));
  }
  broadcast(std::as_writable_bytes(floats));
  broadcast(std::as_writable_bytes(doubles));
}

void NetworkExchange::broadcast(std::span<std::byte> bytes) {
  if (index_ != 0) return receive(0, bytes);
  std::vector<Traffic> traffic(hosts());
  for (std::size_t host = 1; host < hosts(); ++host) traffic[host].out = {bytes};
  exchange(std::move(traffic));
}

std::vector<std::vector<std::byte>> NetworkExchange::gather(std::span<const std::byte> bytes) {
  std::uint64_t length = bytes.size();
  const auto length_bytes = std::as_writable_bytes(std::span(&length, 1));
  std::vector<std::vector<std::byte>> all;
  if (index_ != 0) {
    send(0, length_bytes);
    send(0, bytes);
    return all;
  }
  all.emplace_back(bytes.begin(), bytes.end());
  for (std::size_t host = 1; host < hosts(); ++host) {
    receive(host, length_bytes);
    auto& its = all.emplace_back();
    while (its.size() < length) {
      const std::size_t done = its.size();
      its.resize(done + std::min(length - done, kMostOfALength));
      receive(host, std::span(its).subspan(done));
    }
  }
  return all;
}

void NetworkExchange::gather_for_all(std::span<const std::span<std::byte>> of_hosts) {
  if (full_) {
    std::vector<Traffic> traffic(hosts());
    for (std::size_t host = 0; host < hosts(); ++host)
      if (host != index_) traffic[host] = {.out = {of_hosts[index_]}, .in = {of_hosts[host]}};
    return exchange(std::move(traffic));
  }
  if (index_ != 0) {
    send(0, of_hosts[index_]);
  } else {
    for (std::size_t host = 1; host < hosts(); ++host) receive(host, of_hosts[host]);
  }
  for (const std::span<std::byte> its : of_hosts) broadcast(its);
}

void NetworkExchange::shutdown() noexcept {
  for (os::Stream& stream : streams_)
    if (stream) stream.shutdown();
}

}  // namespace shoal::group
