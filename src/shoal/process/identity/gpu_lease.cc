#include "shoal/process/identity/gpu_lease.h"

#include <fmt/format.h>

#include <utility>

#include "shoal/os/error.h"
#include "shoal/process/identity/lease_socket.h"

namespace shoal::process {
namespace {

constexpr std::size_t kLongestName = 64;

void check(std::span<const std::string> devices) {
  if (devices.empty()) throw InvalidArgument("there is no GPU to lease");
  for (const std::string& device : devices) {
    if (device.empty() || device.size() > kLongestName) {
      throw InvalidArgument(fmt::format("\"{}\" is not the name of a GPU", device));
    }
  }
}

}  // namespace

GpuLease::GpuLease(os::Fd socket, std::string device, int place)
    : socket_(std::move(socket)), device_(std::move(device)), place_(place) {}

GpuLease GpuLease::take(std::span<const std::string> devices) {
  check(devices);
  for (int place = 0;; ++place) {  // ends: a machine has not that many processes
    for (const std::string& device : devices) {
      os::Fd socket = hold_name(fmt::format("shoal/lease/gpu/{}/{}", device, place));
      if (socket) return GpuLease(std::move(socket), device, place);
    }
  }
}

GpuLease::operator bool() const noexcept { return socket_ && maker_.is_this(); }

void GpuLease::release() noexcept {
  if (!socket_) return;
  if (!maker_.is_this()) {  // closed when this child was forked; the number may be another's
    static_cast<void>(socket_.release());
    return;
  }
  let_name_go(std::move(socket_));
}

}  // namespace shoal::process
