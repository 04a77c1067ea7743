#include "shoal/vector/serial_vector_env.h"

#include <algorithm>
#include <utility>

#include "shoal/os/clock.h"

namespace shoal::vector {
namespace {

const Stepper& first_of(const std::vector<std::unique_ptr<Stepper>>& steppers) {
  if (steppers.empty()) throw InvalidArgument("SerialVectorEnv: no steppers");
  return *steppers.front();
}

int count_of(const std::vector<std::unique_ptr<Stepper>>& steppers) {
  const Hello& first = first_of(steppers).hello();
  int n = 0;
  for (const auto& stepper : steppers) {
    check_same_spaces(first, stepper->hello(), n);
    n += stepper->count();
  }
  return n;
}

}  // namespace

SerialVectorEnv::SerialVectorEnv(std::vector<std::unique_ptr<Stepper>> steppers, AutoresetMode mode)
    : steppers_(std::move(steppers)),
      state_(count_of(steppers_)),
      storage_(steppers_.front()->hello().observation_space,
               steppers_.front()->hello().action_space, count_of(steppers_), mode),
      rows_(storage_.rows()),
      stats_(steppers_.size()) {
  int lo = 0;
  for (std::size_t w = 0; w < steppers_.size(); ++w) {
    steppers_[w]->attach(rows_, lo, EnvMarker(&env_now_));
    stats_[w].first_env = lo;
    stats_[w].num_envs = steppers_[w]->count();
    lo += steppers_[w]->count();
  }
}

SerialVectorEnv::~SerialVectorEnv() { close(); }

const env::Space& SerialVectorEnv::single_observation_space() const noexcept {
  return hello_.observation_space;
}

const env::Space& SerialVectorEnv::single_action_space() const noexcept {
  return hello_.action_space;
}

}  // namespace shoal::vector
