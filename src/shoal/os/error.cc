#include "shoal/os/error.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace shoal {

namespace {

/// The limit that was hit, where the error is one: the kernel's text does not say.
std::string limit_of(int error_number) {
  rlimit files{};
  if (error_number != EMFILE || ::getrlimit(RLIMIT_NOFILE, &files) != 0) return "";
  return fmt::format("; the limit, ulimit -n, is {}", files.rlim_cur);
}

}  // namespace

SystemError::SystemError(const std::string& attempt, int error_number)
    : Error(fmt::format("cannot {}: {} (errno {}{})", attempt,
                        std::generic_category().message(error_number), error_number,
                        limit_of(error_number))),
      error_number_(error_number) {}

namespace internal {

void check_failed(const char* condition, const char* file, int line, const char* why) {
  std::fprintf(stderr, "shoal: bug: %s (%s does not hold at %s:%d)\n", why, condition, file, line);
  std::abort();
}

}  // namespace internal

}  // namespace shoal
