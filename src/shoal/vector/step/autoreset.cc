#include "shoal/vector/step/autoreset.h"

#include <fmt/format.h>

#include "shoal/os/error.h"

namespace shoal::vector {

AutoresetMode autoreset_mode_from_name(std::string_view name) {
  if (name == "next_step") return AutoresetMode::kNextStep;
  if (name == "same_step") return AutoresetMode::kSameStep;
  if (name == "disabled") return AutoresetMode::kDisabled;
  throw InvalidArgument(fmt::format(
      "autoreset_mode \"{}\" is not known: use \"next_step\", \"same_step\" or \"disabled\"",
      name));
}

std::string_view name(AutoresetMode mode) noexcept {
  switch (mode) {
    case AutoresetMode::kNextStep:
      return "next_step";
    case AutoresetMode::kSameStep:
      return "same_step";
    case AutoresetMode::kDisabled:
      return "disabled";
  }
  return "unknown";
}

}  // namespace shoal::vector
