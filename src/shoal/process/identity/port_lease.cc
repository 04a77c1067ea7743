#include "shoal/process/identity/port_lease.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/process/identity/lease_socket.h"

namespace shoal::process {
namespace {

constexpr int kLargestPort = 65535;
constexpr std::size_t kNamedHolders = 8;

const char* name(PortKind kind) { return kind == PortKind::kTcp ? "tcp" : "udp"; }

std::string lease_name(PortKind kind, int port) {
  return fmt::format("shoal/lease/{}/{}", name(kind), port);
}

/// Why the ports of a range could not be leased: how many for each reason.
struct Refusals {
  int leased = 0;
  int in_use = 0;
  int forbidden = 0;
};

std::string holders_text(PortRange range, PortKind kind) {
  const std::string prefix = fmt::format("shoal/lease/{}/", name(kind));
  std::vector<std::pair<int, std::string>> holders;
  for (const NameHolder& holder : holders_of(prefix)) {
    const int port = std::atoi(holder.name.c_str() + prefix.size());
    if (port < range.first || port > range.last) continue;
    holders.emplace_back(port, holder.pid == 0 ? fmt::format("{} by another user's process", port)
                                               : fmt::format("{} by process {} ({})", port,
                                                             holder.pid, holder.command));
  }
  std::ranges::sort(holders);
  std::string text;
  for (std::size_t i = 0; i < std::min(holders.size(), kNamedHolders); ++i) {
    text += (i == 0 ? ": " : ", ") + holders[i].second;
  }
  if (holders.size() > kNamedHolders) {
    text += fmt::format(" and {} more", holders.size() - kNamedHolders);
  }
  return text;
}

[[noreturn]] void throw_exhausted(PortRange range, PortKind kind, const Refusals& refusals) {
  std::vector<std::string> reasons;
  if (refusals.leased > 0) {
    reasons.push_back(fmt::format("{} leased{}", refusals.leased, holders_text(range, kind)));
  }
  if (refusals.in_use > 0) {
    reasons.push_back(
        fmt::format("{} bound without a lease (by another program, or by connections that linger)",
                    refusals.in_use));
  }
  if (refusals.forbidden > 0) {
    reasons.push_back(fmt::format("{} that this user may not bind", refusals.forbidden));
  }
  throw Error(fmt::format(
      "no {} port from {} to {} is free: {}. Release leases that are done with, or give a wider "
      "range to lease_port()",
      name(kind), range.first, range.last, fmt::join(reasons, "; ")));
}

}  // namespace

PortRange PortRange::standard() {
  constexpr PortRange kUsual{20000, 32767};
  constexpr int kEnough = 1000;
  int low = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low;
  // Where the kernel uses nearly all ports for outgoing connections there is no better range.
  if (low <= kUsual.first + kEnough || low > kUsual.last) return kUsual;
  return {kUsual.first, low - 1};
}

PortLease::PortLease(PortLease&& other) noexcept
    : socket_(std::move(other.socket_)),
      maker_(other.maker_),
      order_(std::move(other.order_)),
      port_(other.port_),
      kind_(other.kind_) {}

PortLease& PortLease::operator=(PortLease&& other) noexcept {
  if (this == &other) return *this;
  release();
  socket_ = std::move(other.socket_);
  maker_ = other.maker_;
  order_ = std::move(other.order_);
  port_ = other.port_;
  kind_ = other.kind_;
  return *this;
}

PortLease PortLease::take(std::shared_ptr<PortOrder> order, PortRange range, PortKind kind) {
  if (range.first < 1 || range.last > kLargestPort || range.first > range.last) {
    throw InvalidArgument(fmt::format("no ports from {} to {}: they go from 1 to {}", range.first,
                                      range.last, kLargestPort));
  }
  const int type = kind == PortKind::kTcp ? SOCK_STREAM : SOCK_DGRAM;
  Refusals refusals;
  for (const int port : order->ports(range.first, range.last)) {
    os::Fd socket = hold_name(lease_name(kind, port));
    if (!socket) {
      ++refusals.leased;
      continue;
    }
    const int error = probe_port(type, port);
    if (error != 0) {
      let_name_go(std::move(socket));
      if (error != EADDRINUSE && error != EACCES) {
        throw SystemError(
            fmt::format("bind {} port {} to see whether it is free", name(kind), port), error);
      }
      ++(error == EACCES ? refusals.forbidden : refusals.in_use);
      continue;
    }
    order->touch(port);
    PortLease lease;
    lease.socket_ = std::move(socket);
    lease.order_ = std::move(order);
    lease.port_ = port;
    lease.kind_ = kind;
    return lease;
  }
  throw_exhausted(range, kind, refusals);
}

PortLease::operator bool() const noexcept { return socket_ && maker_.is_this(); }

void PortLease::release() noexcept {
  if (!socket_) return;
  if (!maker_.is_this()) {  // closed when this child was forked; the number may be another's
    static_cast<void>(socket_.release());
    return;
  }
  order_->touch(port_);
  let_name_go(std::move(socket_));
}

}  // namespace shoal::process
