// A process of the family, as locks and references name their owner.
#pragma once

#include <cstdint>

namespace shoal::ipc {

/// A value; all zeros is nobody. A slot is used again only with a higher epoch.
struct ProcessSlot {
  std::uint32_t index = 0;
  std::uint32_t epoch = 0;

  std::uint64_t packed() const noexcept { return std::uint64_t{epoch} << 32 | index; }
  static ProcessSlot from(std::uint64_t packed) noexcept {
    return {static_cast<std::uint32_t>(packed), static_cast<std::uint32_t>(packed >> 32)};
  }
  explicit operator bool() const noexcept { return epoch != 0; }
  bool operator==(const ProcessSlot&) const = default;
};

}  // namespace shoal::ipc
