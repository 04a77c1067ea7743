#include "shoal/vector/closing.h"

#include <exception>

#include "shoal/os/log.h"

namespace shoal::vector {

Closing::~Closing() {
  for (const process::RemoteError& failure : outcome_.failures) {
    os::log(os::LogLevel::kError, "vector", "while it was closed: {}", failure.what());
  }
}

bool Closing::goes_on(const Patience& patience) noexcept {
  if (outcome_.interrupt || os::Clock::now() >= patience.deadline) return false;
  try {
    if (patience.check) patience.check();
  } catch (...) {
    outcome_.interrupt = std::current_exception();
  }
  return true;
}

}  // namespace shoal::vector
