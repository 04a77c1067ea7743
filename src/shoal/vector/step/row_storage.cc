#include "shoal/vector/step/row_storage.h"

namespace shoal::vector {

RowStorage::RowStorage(const env::Space& observation, const env::Space& action, int num_envs,
                       AutoresetMode mode) {
  memory_ =
      os::Mapping::of_this_process(Rows::bytes(observation, action, num_envs, mode), "shoal rows");
  rows_ = Rows::map(memory_.data(), observation, action, num_envs, mode);
}

}  // namespace shoal::vector
