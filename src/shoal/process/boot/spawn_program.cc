#include "shoal/process/boot/spawn_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <cerrno>

#include "shoal/os/error.h"
#include "shoal/os/fd.h"
#include "shoal/process/boot/wire.h"

namespace shoal::process {
namespace {

/// The lists that posix_spawn takes; a resource.
class SpawnPlan {
 public:
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  void place(int fd, int where) { check(::posix_spawn_file_actions_adddup2(&actions_, fd, where)); }

  void finish() {
    check(::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
    check(::posix_spawn_file_actions_addclosefrom_np(&actions_, wire::kControlFd + 1));
    sigset_t set;
    ::sigfillset(&set);
    check(::posix_spawnattr_setsigdefault(&attributes_, &set));
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGINT);
    check(::posix_spawnattr_setsigmask(&attributes_, &set));
    check(::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK));
  }

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  static void check(int error) {
    if (error != 0) throw SystemError("prepare the start of a program", error);
  }

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

/// Above the numbers that are given out, so that no placing overwrites what is still to be placed.
os::Fd out_of_the_way(int fd) {
  constexpr int kFirst = 10;
  os::Fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, kFirst));
  if (!copy) throw SystemError(fmt::format("duplicate descriptor {}", fd));
  return copy;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace

SpawnedProgram spawn_program(const std::vector<std::string>& argv, const Environment& environment,
                             int control, int output, int errors) {
  const os::Fd control_copy = out_of_the_way(control);
  const os::Fd output_copy = out_of_the_way(output);
  const os::Fd errors_copy = out_of_the_way(errors);
  SpawnPlan plan;
  plan.place(output_copy.get(), STDOUT_FILENO);
  plan.place(errors_copy.get(), STDERR_FILENO);
  plan.place(control_copy.get(), wire::kControlFd);
  plan.finish();

  std::vector<std::string> arguments = argv;
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  pid_t pid = -1;
  const int error =
      ::posix_spawnp(&pid, arguments.front().c_str(), plan.actions(), plan.attributes(),
                     pointers(arguments).data(), pointers(variables).data());
  if (error != 0) throw SystemError(fmt::format("start the program {}", argv.front()), error);
  return {pid, os::PidFd::open(pid)};
}

}  // namespace shoal::process
