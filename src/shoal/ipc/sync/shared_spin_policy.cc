#include "shoal/ipc/sync/shared_spin_policy.h"

namespace shoal::ipc {

SharedSpinPolicy& SharedSpinPolicy::of_holders() {
  static SharedSpinPolicy policy({.group_size = 2});
  return policy;
}

SharedSpinPolicy& SharedSpinPolicy::of_signals() {
  static SharedSpinPolicy policy({.group_size = 2});
  return policy;
}

}  // namespace shoal::ipc
