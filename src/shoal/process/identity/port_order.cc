#include "shoal/process/identity/port_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::process {
namespace {

constexpr std::uint32_t kMagic = 0x41454c53;  // "SLEA"

/// The order that this process uses; there is one of it.
struct OfThisProcess {
  std::mutex mutex;
  std::shared_ptr<PortOrder> order;
};

OfThisProcess& of_this() {
  static OfThisProcess one;
  return one;
}

}  // namespace

PortOrder::PortOrder(shm::Arena arena)
    : arena_(std::move(arena)),
      header_(arena_.at<Header>(0)),
      touched_(arena_.at<std::atomic<std::uint32_t>>(sizeof(Header), kPorts), kPorts) {}

std::shared_ptr<PortOrder> PortOrder::create() {
  shm::Arena arena =
      shm::Arena::create("shoal leases", sizeof(Header) + kPorts * sizeof(std::uint32_t));
  auto* header = arena.at<Header>(0);
  // Programs that begin at different places seldom try for the same port.
  header->start = std::random_device{}();
  header->magic = kMagic;
  return std::shared_ptr<PortOrder>(new PortOrder(std::move(arena)));
}

std::shared_ptr<PortOrder> PortOrder::attach(os::Fd fd) {
  shm::Arena arena = shm::Arena::attach(std::move(fd));
  if (arena.size() != sizeof(Header) + kPorts * sizeof(std::uint32_t) ||
      arena.at<Header>(0)->magic != kMagic) {
    throw Error(fmt::format("the arena \"{}\" is no list of port leases", arena.name()));
  }
  return std::shared_ptr<PortOrder>(new PortOrder(std::move(arena)));
}

std::shared_ptr<PortOrder> PortOrder::of_this_process() {
  OfThisProcess& own = of_this();
  const std::lock_guard lock(own.mutex);
  if (!own.order) own.order = create();
  return own.order;
}

void PortOrder::set_of_this_process(std::shared_ptr<PortOrder> order) {
  OfThisProcess& own = of_this();
  const std::lock_guard lock(own.mutex);
  own.order = std::move(order);
}

std::vector<int> PortOrder::ports(int first, int last) const {
  struct Candidate {
    std::uint32_t touched;
    int port;
  };
  std::vector<Candidate> candidates;
  const int count = last - first + 1;
  const int begin = static_cast<int>(header_->start % static_cast<std::uint32_t>(count));
  for (int i = 0; i < count; ++i) {
    const int port = first + (begin + i) % count;
    candidates.push_back(
        {touched_[static_cast<std::size_t>(port)].load(std::memory_order_relaxed), port});
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::touched);
  std::vector<int> ports;
  for (const Candidate& candidate : candidates) ports.push_back(candidate.port);
  return ports;
}

void PortOrder::touch(int port) noexcept {
  const std::uint32_t now = header_->clock.fetch_add(1, std::memory_order_relaxed) + 1;
  touched_[static_cast<std::size_t>(port)].store(now, std::memory_order_relaxed);
}

}  // namespace shoal::process
