#include "shoal/ipc/shared_spin_policy.h"

namespace shoal::ipc {

using std::chrono::microseconds;

SharedSpinPolicy& SharedSpinPolicy::of_holders() {
  static SharedSpinPolicy policy({.cap = microseconds(50), .group_size = 2});
  return policy;
}

SharedSpinPolicy& SharedSpinPolicy::of_signals() {
  static SharedSpinPolicy policy({.cap = microseconds(50), .group_size = 2});
  return policy;
}

}  // namespace shoal::ipc
