// The kernel objects behind a port lease.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shoal/os/fd.h"

namespace shoal::process {

/// Binds the abstract Unix socket `name`; returns none when another process has it. A child that
/// this process forks does not keep it. Throws SystemError.
os::Fd hold_name(const std::string& name);

/// Closes what hold_name() gave.
void let_name_go(os::Fd held) noexcept;

/// 0 when a socket of `type` (SOCK_STREAM, SOCK_DGRAM) can be bound to `port` on every address of
/// this machine, else the error number. Leaves nothing on the port.
int probe_port(int type, int port);

/// Who holds an abstract name.
struct NameHolder {
  std::string name;
  int pid = 0;  // 0: a process that this one may not look into
  std::string command;
};

/// The holders of all names that begin with `prefix`. Looks through /proc: slow.
std::vector<NameHolder> holders_of(const std::string& prefix);

}  // namespace shoal::process
