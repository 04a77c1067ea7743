#include "shoal/group/star_exchange.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "shoal/group/pairwise_sum.h"

namespace shoal::group {
namespace {

/// Of a length that another host says.
constexpr std::size_t kMostAtOnce = 64 << 20;

}  // namespace

StarExchange::StarExchange(std::vector<os::Stream> others, std::vector<int> ranks, bool is_root,
                           Watch& watch)
    : others_(std::move(others)),
      ranks_(std::move(ranks)),
      is_root_(is_root),
      watch_(watch),
      parts_(others_.size()) {}

void StarExchange::send(std::size_t to, std::span<const std::byte> bytes) {
  // The watch ends the wait where the other side does not take it.
  if (others_[to].send(bytes, os::kNoDeadline) != os::StreamOutcome::kDone)
    watch_.throw_why(ranks_[to]);
}

void StarExchange::receive(std::size_t from, std::span<std::byte> bytes) {
  if (others_[from].recv(bytes, os::kNoDeadline) != os::StreamOutcome::kDone)
    watch_.throw_why(ranks_[from]);
}

template <class T>
void StarExchange::add_up(std::span<T> own) {
  if (own.empty()) return;
  std::vector<const T*> parts{own.data()};
  for (std::size_t i = 0; i < others_.size(); ++i) {
    parts_[i].resize(own.size_bytes());
    receive(i, parts_[i]);
    parts.push_back(reinterpret_cast<const T*>(parts_[i].data()));
  }
  add_parts<T>(parts, 0, own.size(), own.data());
}

void StarExchange::sum(std::span<float> floats, std::span<double> doubles) {
  if (is_root_) {
    add_up(floats);
    add_up(doubles);
  } else {
    send(0, std::as_bytes(floats));
    send(0, std::as_bytes(doubles));
  }
  broadcast(std::as_writable_bytes(floats));
  broadcast(std::as_writable_bytes(doubles));
}

void StarExchange::broadcast(std::span<std::byte> bytes) {
  if (!is_root_) return receive(0, bytes);
  for (std::size_t i = 0; i < others_.size(); ++i) send(i, bytes);
}

std::vector<std::vector<std::byte>> StarExchange::gather(std::span<const std::byte> bytes) {
  std::uint64_t length = bytes.size();
  const auto length_bytes = std::as_writable_bytes(std::span(&length, 1));
  std::vector<std::vector<std::byte>> all;
  if (!is_root_) {
    send(0, length_bytes);
    send(0, bytes);
    return all;
  }
  all.emplace_back(bytes.begin(), bytes.end());
  for (std::size_t i = 0; i < others_.size(); ++i) {
    receive(i, length_bytes);
    auto& its = all.emplace_back();
    while (its.size() < length) {
      const std::size_t done = its.size();
      its.resize(done + std::min(length - done, kMostAtOnce));
      receive(i, std::span(its).subspan(done));
    }
  }
  return all;
}

void StarExchange::shutdown() noexcept {
  for (os::Stream& stream : others_) stream.shutdown();
}

}  // namespace shoal::group
