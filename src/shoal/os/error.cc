#include "shoal/os/error.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace shoal {

SystemError::SystemError(const std::string& attempt, int error_number)
    : Error(fmt::format("cannot {}: {} (errno {})", attempt,
                        std::generic_category().message(error_number), error_number)),
      error_number_(error_number) {}

namespace internal {

void check_failed(const char* condition, const char* file, int line, const char* why) {
  std::fprintf(stderr, "shoal: bug: %s (%s does not hold at %s:%d)\n", why, condition, file, line);
  std::abort();
}

}  // namespace internal

}  // namespace shoal
