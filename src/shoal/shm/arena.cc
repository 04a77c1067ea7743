#include "shoal/shm/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace shoal::shm {
namespace {

constexpr std::string_view kMagic = "SHOALARN";

/// A copy, so that what is checked cannot change after the check.
ArenaHeader read_header(const os::Mapping& mapping) {
  ArenaHeader header;
  std::memcpy(&header, mapping.data(), sizeof header);
  header.name[sizeof header.name - 1] = '\0';
  return header;
}

void check_header(const ArenaHeader& header, std::size_t file_bytes) {
  if (std::string_view(header.magic, sizeof header.magic) != kMagic) {
    throw Error("cannot attach an arena: the shared memory does not begin with \"SHOALARN\"");
  }
  if (header.version != kArenaVersion) {
    throw Error(fmt::format(
        "cannot attach the arena \"{}\": it is of version {}, this Shoal reads version {}; "
        "all processes must run the same Shoal",
        header.name, header.version, kArenaVersion));
  }
  if (header.header_bytes != kArenaHeaderBytes ||
      header.data_bytes != file_bytes - kArenaHeaderBytes) {
    throw Error(fmt::format(
        "cannot attach the arena \"{}\": its header says {} + {} bytes, its file has {}",
        header.name, header.header_bytes, header.data_bytes, file_bytes));
  }
}

}  // namespace

Arena Arena::create(const std::string& name, std::size_t bytes) {
  if (bytes == 0) throw InvalidArgument(fmt::format("an arena \"{}\" of 0 bytes", name));
  if (bytes > std::numeric_limits<std::size_t>::max() - kArenaHeaderBytes) {
    throw InvalidArgument(
        fmt::format("an arena \"{}\" of {} bytes: larger than the address space", name, bytes));
  }
  os::Memfd memfd = os::Memfd::create(name, kArenaHeaderBytes + bytes);
  os::Mapping mapping = os::Mapping::map(memfd, name);
  ArenaHeader header{};
  std::memcpy(header.magic, kMagic.data(), sizeof header.magic);
  header.version = kArenaVersion;
  header.header_bytes = kArenaHeaderBytes;
  header.data_bytes = bytes;
  std::memcpy(header.name, name.data(), std::min(name.size(), sizeof header.name - 1));
  std::memcpy(mapping.data(), &header, sizeof header);
  return Arena(std::move(memfd), std::move(mapping), name);
}

Arena Arena::attach(os::Fd fd) {
  os::Memfd memfd = os::Memfd::open(std::move(fd));
  if (memfd.bytes() < kArenaHeaderBytes) {
    throw Error(
        fmt::format("cannot attach an arena: its file has {} bytes, the header alone takes {}",
                    memfd.bytes(), kArenaHeaderBytes));
  }
  os::Mapping mapping = os::Mapping::map(memfd, "an arena received");
  const ArenaHeader header = read_header(mapping);
  check_header(header, memfd.bytes());
  return Arena(std::move(memfd), std::move(mapping), header.name);
}

}  // namespace shoal::shm
