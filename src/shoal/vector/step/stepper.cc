#include "shoal/vector/step/stepper.h"

#include "shoal/os/error.h"

namespace shoal::vector {

void Stepper::rebuild(int) {
  throw InvalidState("these environments cannot be replaced one by one");
}

void Stepper::set_reset_options(std::string_view options, std::optional<int>) {
  check_reset_options(options);
}

void Stepper::check_reset_options(std::string_view) const {
  throw InvalidArgument("these environments are not native: their reset takes its options itself");
}

std::vector<std::byte> Stepper::save(int) {
  throw InvalidState("these environments do not support snapshots");
}

void Stepper::load(int, std::span<const std::byte>) {
  throw InvalidState("these environments do not support snapshots");
}

}  // namespace shoal::vector
