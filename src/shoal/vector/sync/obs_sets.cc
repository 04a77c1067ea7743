#include "shoal/vector/sync/obs_sets.h"

#include <atomic>

#include "shoal/os/error.h"

namespace shoal::vector {

ObsSets::ObsSets(int count) {
  for (int set = 0; set < count; ++set) leases_.push_back(std::make_shared<const int>(set));
}

bool ObsSets::is_free(int set) const noexcept {
  return leases_[static_cast<std::size_t>(set)].use_count() == 1;
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
  // Pairs with the release in a shared_ptr's destructor: what its holder read, it has read.
  std::atomic_thread_fence(std::memory_order_acquire);
  return current_;
}

std::shared_ptr<const void> ObsSets::lease() {
  if (first_free() < 0) return {};
  return leases_[static_cast<std::size_t>(current_)];
}

}  // namespace shoal::vector
