#include "shoal/group/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::group {
namespace {

/// Of what comes with its length before it: a length that is wrong asks for no more memory at once.
constexpr std::uint64_t kMostAtOnce = 64 << 20;

/// Whether every host has the same power of two of ranks, in line.
bool in_line(const std::vector<std::vector<int>>& hosts) {
  if (hosts.size() == 1) return std::ranges::is_sorted(hosts[0]);
  int next = 0;
  for (const auto& ranks : hosts) {
    if (ranks.size() != hosts[0].size() || !std::has_single_bit(ranks.size())) return false;
    for (const int rank : ranks)
      if (rank != next++) return false;
  }
  return true;
}

}  // namespace

Group::Group(Launch launch, const JoinOptions& options) : launch_(std::move(launch)) {
  Meeting meeting =
      meet(launch_, options, HostExchange::arena_bytes(std::max(launch_.local_size, 1)));
  members_ = std::move(meeting.members);
  hosts_ = std::move(meeting.hosts);
  adds_in_line_ = in_line(hosts_);
  if (launch_.size == 1) return;
  no_fork_.emplace(fmt::format(
      "this process is rank {} of a group of {}, whose connections a forked child would keep open "
      "after its death",
      launch_.rank, launch_.size));
  const auto on_loss = [this] {
    const std::lock_guard lock(network_mutex_);
    if (network_) network_->shutdown();
    lost_ = true;
  };
  watch_ = std::make_unique<Watch>(launch_.rank, members_, std::move(meeting.parent),
                                   std::move(meeting.children), on_loss);
  if (!meeting.data.empty()) {
    std::vector<int> firsts;
    std::size_t index = 0;
    for (const auto& host : hosts_) {
      if (host.front() == launch_.rank) index = firsts.size();
      firsts.push_back(host.front());
    }
    const std::lock_guard lock(network_mutex_);
    network_ = std::make_unique<NetworkExchange>(std::move(meeting.data), std::move(firsts), index,
                                                 meeting.all_met, *watch_);
    if (lost_) network_->shutdown();
  }
  if (launch_.local_size > 1)
    host_ = std::make_unique<HostExchange>(std::move(meeting.arena), here(), launch_.local_rank,
                                           *watch_);
}

Group::~Group() { leave(); }

std::vector<int> Group::here() const {
  return *std::ranges::find_if(
      hosts_, [&](const auto& ranks) { return std::ranges::find(ranks, rank()) != ranks.end(); });
}

void Group::leave() noexcept {
  has_left_ = true;
  watch_.reset();  // first: its thread uses the network
  if (network_) network_->shutdown();
  no_fork_.reset();
}

void Group::check_there() const {
  if (has_left_)
    throw InvalidState(fmt::format("rank {} has left its group of {}", rank(), size()));
}

std::shared_ptr<Group> Group::join(const Launch& launch, const JoinOptions& options) {
  return std::shared_ptr<Group>(new Group(launch, options));
}

void Group::sum(std::span<float> floats, std::span<double> doubles) {
  check_there();
  if (host_) host_->sum(floats, doubles);
  if (hosts_.size() == 1) return;
  if (network_) network_->sum(floats, doubles);
  if (!host_) return;
  host_->broadcast(std::as_writable_bytes(floats));
  host_->broadcast(std::as_writable_bytes(doubles));
}

void Group::broadcast(std::span<std::byte> bytes) {
  check_there();
  if (network_) network_->broadcast(bytes);
  if (host_) host_->broadcast(bytes);
}

std::vector<std::byte> Group::broadcast_any(std::span<const std::byte> bytes) {
  std::uint64_t length = bytes.size();
  broadcast(std::as_writable_bytes(std::span(&length, 1)));
  std::vector<std::byte> all(bytes.begin(), bytes.end());
  if (rank() != 0) all.clear();
  for (std::uint64_t done = 0; done < length;) {
    const std::uint64_t more = std::min(length - done, kMostAtOnce);
    all.resize(std::max<std::uint64_t>(all.size(), done + more));
    broadcast(std::span(all).subspan(done, more));
    done += more;
  }
  return all;
}

std::vector<std::vector<std::byte>> Group::gather(std::span<const std::byte> bytes) {
  check_there();
  std::vector<std::vector<std::byte>> here{{bytes.begin(), bytes.end()}};
  if (host_) here = host_->gather(bytes);
  std::vector<std::vector<std::byte>> all(launch_.rank == 0 ? members_.size() : 0);
  if (hosts_.size() == 1) {
    for (std::size_t i = 0; i < here.size() && !all.empty(); ++i)
      all[static_cast<std::size_t>(hosts_[0][i])] = std::move(here[i]);
    return all;
  }
  if (!network_) return {};
  // A host's ranks one after the other, each with its length before it.
  std::vector<std::byte> packed;
  for (const auto& of_rank : here) {
    const std::uint64_t length = of_rank.size();
    const auto length_bytes = std::as_bytes(std::span(&length, 1));
    packed.insert(packed.end(), length_bytes.begin(), length_bytes.end());
    packed.insert(packed.end(), of_rank.begin(), of_rank.end());
  }
  const auto of_hosts = network_->gather(packed);
  if (launch_.rank != 0) return {};
  for (std::size_t h = 0; h < of_hosts.size(); ++h) {
    std::span<const std::byte> rest(of_hosts[h]);
    for (const int rank : hosts_[h]) {
      std::uint64_t length = 0;
      if (rest.size() >= sizeof length) std::memcpy(&length, rest.data(), sizeof length);
      if (rest.size() < sizeof length || length > rest.size() - sizeof length)
        throw Error(
            fmt::format("what the host of rank {} gathered is cut short", hosts_[h].front()));
      const auto bytes_of_rank = rest.subspan(sizeof length, length);
      all[static_cast<std::size_t>(rank)].assign(bytes_of_rank.begin(), bytes_of_rank.end());
      rest = rest.subspan(sizeof length + length);
    }
  }
  return all;
}

std::vector<std::byte> Group::gather_for_all(std::span<const std::byte> bytes) {
  check_there();
  // By host, its ranks one after the other.
  std::vector<std::byte> all(bytes.size() * members_.size());
  std::vector<std::span<std::byte>> of_hosts;
  std::span<std::byte> rest(all), mine;
  for (const auto& ranks : hosts_) {
    of_hosts.push_back(rest.first(ranks.size() * bytes.size()));
    rest = rest.subspan(of_hosts.back().size());
    if (std::ranges::find(ranks, rank()) != ranks.end()) mine = of_hosts.back();
  }
  if (!host_) {
    std::ranges::copy(bytes, mine.begin());
  } else {
    auto to = mine.begin();
    for (const auto& its : host_->gather(bytes)) to = std::ranges::copy(its, to).out;
  }
  if (network_) network_->gather_for_all(of_hosts);
  if (host_) host_->broadcast(all);
  std::vector<std::byte> by_rank(all.size());
  auto from = all.begin();
  for (const auto& ranks : hosts_)
    for (const int rank : ranks) {
      const auto size = static_cast<std::ptrdiff_t>(bytes.size());
      std::copy_n(from, size, by_rank.begin() + rank * size);
      from += size;
    }
  return by_rank;
}

void Group::barrier() {
  // Nobody has the sum before all have come.
  double nothing = 0;
  sum(std::span(&nothing, 1));
}

void Group::arrive(std::uint64_t round, int needed) noexcept {
  if (watch_) watch_->arrive({round, static_cast<std::uint32_t>(needed)});
}

bool Group::enough(std::uint64_t round) const noexcept { return watch_ && watch_->enough(round); }

void Group::fail(const std::string& why) noexcept {
  if (watch_) watch_->fail(why);
}

}  // namespace shoal::group
