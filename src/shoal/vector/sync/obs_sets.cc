#include "shoal/vector/sync/obs_sets.h"

#include "shoal/os/error.h"

namespace shoal::vector {

ObsSets::ObsSets(int count) {
  for (int set = 0; set < count; ++set) leases_.push_back(std::make_shared<std::atomic<int>>(0));
}

bool ObsSets::is_free(int set) const noexcept {
  return leases_[static_cast<std::size_t>(set)]->load(std::memory_order_acquire) == 0;  // [lent]
}

// The lowest, so that few sets are in use and stay in the caches; the current one does not count.
int ObsSets::first_free() const noexcept {
  for (int set = 0; set < static_cast<int>(leases_.size()); ++set) {
    if (set != current_ && is_free(set)) return set;
  }
  return -1;
}

int ObsSets::advance() noexcept {
  if (!is_free(current_)) {
    current_ = first_free();
    SHOAL_CHECK(current_ >= 0, "a set is lent only while another is free");
  }
  return current_;
}

std::shared_ptr<const void> ObsSets::lease() {
  if (first_free() < 0) return {};
  const auto& held = leases_[static_cast<std::size_t>(current_)];
  held->fetch_add(1, std::memory_order_relaxed);  // relaxed: the set is the caller's yet
  return {held.get(), [held](const void*) {
            held->fetch_sub(1, std::memory_order_release);  // [lent]
          }};
}

}  // namespace shoal::vector
