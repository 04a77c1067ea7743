#include "shoal/os/process/signals.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "shoal/os/error.h"

namespace shoal::os {
namespace {

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) {
    if (::sigaddset(&set, signal) != 0) {
      throw InvalidArgument(fmt::format("{} is not the number of a signal", signal));
    }
  }
  return set;
}

}  // namespace

std::string signal_name(int signal) {
  if (signal > 0 && signal < NSIG) {
    if (const char* abbreviation = ::sigabbrev_np(signal))
      return fmt::format("SIG{}", abbreviation);
    if (signal >= SIGRTMIN && signal <= SIGRTMAX)
      return fmt::format("SIGRTMIN+{}", signal - SIGRTMIN);
  }
  return fmt::format("signal {}", signal);
}

BlockSignals::BlockSignals(std::initializer_list<int> signals) : BlockSignals(set_of(signals)) {}

BlockSignals::BlockSignals(const sigset_t& set) {
  const int error = ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  SHOAL_CHECK(error == 0, "pthread_sigmask takes any set");
}

BlockSignals BlockSignals::all() {
  sigset_t set;
  ::sigfillset(&set);
  return BlockSignals(set);
}

BlockSignals::~BlockSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

SignalFd::SignalFd(std::initializer_list<int> signals) {
  const sigset_t set = set_of(signals);
  fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw SystemError("create a signalfd");
}

std::optional<int> SignalFd::read() {
  signalfd_siginfo info;
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace shoal::os
