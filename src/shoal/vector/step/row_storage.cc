#include "shoal/vector/step/row_storage.h"

namespace shoal::vector {

RowStorage::RowStorage(const env::Space& observation, const env::Space& action, int num_envs,
                       AutoresetMode mode) {
  const std::string name = "shoal rows";
  memory_ = os::Mapping::map(
      os::Memfd::create(name, Rows::bytes(observation, action, num_envs, mode)), name);
  rows_ = Rows::map(memory_.data(), observation, action, num_envs, mode);
}

}  // namespace shoal::vector
