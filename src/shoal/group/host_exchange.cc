#include "shoal/group/host_exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "shoal/group/pairwise_sum.h"
#include "shoal/os/error.h"

namespace shoal::group {
namespace {

constexpr std::chrono::milliseconds kSlice{20};  // between two looks for losses
// From here on the ranks share the additions: fewer bytes are read, for one round more.
constexpr std::size_t kSharedFrom = 64 * 1024;

constexpr std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

template <class T>
std::span<T> take(std::span<T>& rest, std::size_t count) {
  const auto taken = rest.first(std::min(count, rest.size()));
  rest = rest.subspan(taken.size());
  return taken;
}

template <class T>
void copy_bytes(void* to, std::span<T> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size_bytes());
}

}  // namespace

std::size_t HostExchange::arena_bytes(int ranks) {
  return static_cast<std::size_t>(ranks) * (sizeof(sync::Doorbell) + 2 * sizeof(Slot));
}

HostExchange::HostExchange(shm::Arena arena, std::vector<int> ranks, int index, Watch& watch)
    : arena_(std::move(arena)),
      here_(std::move(ranks)),
      ranks_(static_cast<int>(here_.size())),
      index_(index),
      watch_(watch),
      slots_(arena_.at<Slot>(here_.size() * sizeof(sync::Doorbell), here_.size() * 2)),
      steps_(arena_.at<sync::Doorbell>(0, here_.size()), static_cast<std::uint32_t>(ranks_),
             static_cast<std::uint32_t>(index)),
      policy_({.group_size = ranks_}) {
  arena_.close_fd();
}

void HostExchange::step() {
  steps_.arrive();
  while (steps_.wait(policy_, os::deadline_after(kSlice)) != sync::WaitOutcome::kReady) {
    try {
      watch_.check(here_);
    } catch (const PeerLost&) {  // which may have arrived before
      if (steps_.wait(policy_, os::Deadline::min()) == sync::WaitOutcome::kReady) return;
      throw;
    }
  }
}

void HostExchange::sum(std::span<float> floats, std::span<double> doubles) {
  do {
    const auto piece = take(floats, kSlotBytes / sizeof(float));
    const std::size_t room = kSlotBytes - padded(piece.size_bytes());
    sum_piece(piece, floats.empty() ? take(doubles, room / sizeof(double)) : std::span<double>());
  } while (!floats.empty() || !doubles.empty());
}

void HostExchange::sum_piece(std::span<float> floats, std::span<double> doubles) {
  const std::size_t offset = padded(floats.size_bytes());  // of the doubles
  std::byte* own = slot(index_).data;
  copy_bytes(own, floats);
  copy_bytes(own + offset, doubles);
  step();
  if (ranks_ == 2 || offset + doubles.size_bytes() < kSharedFrom) {
    add(0, 0, floats.size(), floats.data());
    add(offset, 0, doubles.size(), doubles.data());
  } else {
    // Of its own slot a rank's share is read by itself alone, so that is where the sum may go.
    add(0, share(floats.size(), index_), share(floats.size(), index_ + 1),
        reinterpret_cast<float*>(own));
    add(offset, share(doubles.size(), index_), share(doubles.size(), index_ + 1),
        reinterpret_cast<double*>(own + offset));
    step();
    take_shares(0, floats);
    take_shares(offset, doubles);
  }
  turn_ ^= 1;
}

std::size_t HostExchange::share(std::size_t size, int index) const noexcept {
  return size * static_cast<std::size_t>(index) / static_cast<std::size_t>(ranks_);
}

template <class T>
void HostExchange::add(std::size_t offset, std::size_t from, std::size_t to, T* out) const {
  std::vector<const T*> parts;
  for (int index = 0; index < ranks_; ++index)
    parts.push_back(reinterpret_cast<const T*>(slot(index).data + offset));
  add_parts<T>(parts, from, to, out);
}

template <class T>
void HostExchange::take_shares(std::size_t offset, std::span<T> into) const {
  for (int index = 0; index < ranks_; ++index) {
    const auto* from = reinterpret_cast<const T*>(slot(index).data + offset);
    const std::size_t first = share(into.size(), index);
    std::copy(from + first, from + share(into.size(), index + 1), into.data() + first);
  }
}

void HostExchange::broadcast(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = take(bytes, kSlotBytes);
    std::byte* data = slot(0).data;
    if (index_ == 0) copy_bytes(data, piece);
    step();
    if (index_ != 0) std::memcpy(piece.data(), data, piece.size());
    turn_ ^= 1;
  }
}

std::vector<std::vector<std::byte>> HostExchange::gather(std::span<const std::byte> bytes) {
  std::vector<std::vector<std::byte>> all(index_ == 0 ? static_cast<std::size_t>(ranks_) : 0);
  const std::uint64_t length = bytes.size();
  std::uint64_t longest = length;
  for (std::uint64_t done = 0; done == 0 || done < longest; done += kSlotBytes) {
    Slot& mine = slot(index_);
    mine.length = length;
    copy_bytes(mine.data, take(bytes, kSlotBytes));
    step();
    for (int index = 0; index < ranks_; ++index) {
      const Slot& its = slot(index);
      longest = std::max(longest, its.length);
      if (index_ != 0 || its.length <= done) continue;
      auto& into = all[static_cast<std::size_t>(index)];
      into.insert(into.end(), its.data,
                  its.data + std::min<std::uint64_t>(kSlotBytes, its.length - done));
    }
    turn_ ^= 1;
  }
  return all;
}

}  // namespace shoal::group
