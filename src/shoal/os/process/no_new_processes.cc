#include "shoal/os/process/no_new_processes.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>

#include "shoal/os/error.h"

namespace shoal::os {
namespace {

#if defined(__x86_64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "forbid_new_processes() does not know this architecture"
#endif

constexpr sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset));
}

constexpr sock_filter unless_equal_skip(unsigned value, unsigned char skipped) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped);
}

constexpr sock_filter answer(unsigned what) { return BPF_STMT(BPF_RET | BPF_K, what); }

constexpr unsigned kAllow = SECCOMP_RET_ALLOW;
constexpr unsigned kRefuse = SECCOMP_RET_ERRNO | EPERM;
// The flags of clone3() lie in memory that a filter cannot read. Where it does not exist, the C
// library calls clone() instead.
constexpr unsigned kDoesNotExist = SECCOMP_RET_ERRNO | ENOSYS;

}  // namespace

void forbid_new_processes() {
  if (new_processes_forbidden()) return;
  sock_filter filter[] = {
      load(offsetof(seccomp_data, arch)),
      unless_equal_skip(kArchitecture, 1),
      BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
      answer(kAllow),
      load(offsetof(seccomp_data, nr)),
      unless_equal_skip(SYS_clone3, 1),
      answer(kDoesNotExist),
#if defined(__x86_64__)
      unless_equal_skip(SYS_fork, 1),
      answer(kRefuse),
      unless_equal_skip(SYS_vfork, 1),
      answer(kRefuse),
#endif
      unless_equal_skip(SYS_clone, 3),
      load(offsetof(seccomp_data, args)),  // the flags; both architectures are little-endian
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0),
      answer(kRefuse),
      answer(kAllow),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  // Without it only a privileged process may have a filter.
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    throw SystemError("prctl(PR_SET_NO_NEW_PRIVS)");
  const long outcome =
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
  if (outcome < 0) throw SystemError("seccomp: forbid new processes");
  if (outcome > 0) throw Error("seccomp: a thread of this process has a filter of its own");
}

// Flags that do not go together: EINVAL, unless a filter answers first.
bool new_processes_forbidden() noexcept {
  return ::syscall(SYS_clone, CLONE_SIGHAND, 0, 0, 0, 0) == -1 && errno == EPERM;
}

}  // namespace shoal::os
