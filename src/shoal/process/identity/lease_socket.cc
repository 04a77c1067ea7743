#include "shoal/process/identity/lease_socket.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <system_error>

#include "shoal/os/error.h"

namespace shoal::process {
namespace {

namespace fs = std::filesystem;

/// The sockets of the names that this process holds. A forked child closes its copies at once;
/// otherwise a name would stay taken until the child ends, too.
struct Held {
  std::mutex mutex;
  std::vector<int> fds;
};

Held& held() {
  static Held* const one = new Held;  // outlives static destructors that release leases
  return *one;
}

void keep_from_children() {
  static std::once_flag once;
  std::call_once(once, [] {
    ::pthread_atfork([] { held().mutex.lock(); }, [] { held().mutex.unlock(); },
                     [] {
                       for (const int fd : held().fds) ::close(fd);
                       held().fds.clear();
                       held().mutex.unlock();
                     });
  });
}

bool bind_all_addresses(const os::Fd& socket, int family, int port) {
  if (family == AF_INET) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  const int only_v6 = 0;  // 0.0.0.0 too
  ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<std::uint16_t>(port));
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

/// Sockets of this machine with such a name, by inode.
std::map<std::string, std::string> names_by_inode(const std::string& prefix) {
  std::map<std::string, std::string> names;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, inode, name;
    fields >> number >> references >> protocol >> flags >> type >> state >> inode >> name;
    if (name.starts_with("@" + prefix)) names[inode] = name.substr(1);
  }
  return names;
}

std::string command_of(const fs::path& process) {
  std::ifstream file(process / "cmdline");
  std::string command((std::istreambuf_iterator<char>(file)), {});
  std::ranges::replace(command, '\0', ' ');
  if (command.size() > 80) command = command.substr(0, 80) + "…";
  while (command.ends_with(' ')) command.pop_back();
  return command;
}

/// Adds the sockets among the descriptors of `process` to `holders`, and takes them out of `names`.
void look_into(const fs::path& process, std::map<std::string, std::string>& names,
               std::vector<NameHolder>& holders) {
  std::error_code ignored;
  fs::directory_iterator fd(process / "fd", ignored);
  for (; !ignored && fd != fs::directory_iterator(); fd.increment(ignored)) {
    const std::string target = fs::read_symlink(fd->path(), ignored).string();
    if (!target.starts_with("socket:[")) continue;
    const auto found = names.find(target.substr(8, target.size() - 9));
    if (found == names.end()) continue;
    holders.push_back({found->second, std::atoi(process.filename().c_str()), command_of(process)});
    names.erase(found);
  }
}

}  // namespace

os::Fd hold_name(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  SHOAL_CHECK(name.size() < sizeof address.sun_path, "an abstract name that is too long");
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // after a zero byte: abstract
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  keep_from_children();
  const std::lock_guard lock(held().mutex);
  os::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) throw SystemError("make the socket of a port lease");
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0) {
    held().fds.push_back(socket.get());
    return socket;
  }
  if (errno == EADDRINUSE) return {};
  throw SystemError("bind the socket of a port lease");
}

void let_name_go(os::Fd fd) noexcept {
  const std::lock_guard lock(held().mutex);
  std::erase(held().fds, fd.get());
  fd.reset();
}

int probe_port(int type, int port) {
  // Without SO_REUSEADDR: whoever binds the port next may not set it.
  for (const int family : {AF_INET6, AF_INET}) {
    const os::Fd socket(::socket(family, type | SOCK_CLOEXEC, 0));
    if (socket && bind_all_addresses(socket, family, port)) return 0;
    const int error = errno;
    const bool no_ipv6 = family == AF_INET6 && (error == EAFNOSUPPORT || error == EADDRNOTAVAIL);
    if (!no_ipv6) return error;
  }
  return EAFNOSUPPORT;
}

std::vector<NameHolder> holders_of(const std::string& prefix) {
  std::map<std::string, std::string> names = names_by_inode(prefix);
  std::vector<NameHolder> holders;
  std::error_code ignored;
  fs::directory_iterator process("/proc", ignored);
  for (; !ignored && process != fs::directory_iterator(); process.increment(ignored)) {
    if (names.empty()) break;
    const std::string pid = process->path().filename().string();
    if (std::ranges::all_of(pid, [](char c) { return c >= '0' && c <= '9'; })) {
      look_into(process->path(), names, holders);
    }
  }
  for (const auto& [inode, name] : names) holders.push_back({name, 0, ""});
  return holders;
}

}  // namespace shoal::process
