// A native environment that observes its worker.
#pragma once

#include "shoal/env/register_env.h"
#include "shoal/process/identity/identity.h"

namespace shoal::vector::testing {

/// Observes: worker, number of workers, environment when built, environment now, seed (-1: none),
/// leased port. Counts its steps.
class WhoAmI final : public env::Env {
 public:
  static constexpr std::int64_t kObserved = 6;

  WhoAmI()
      : Env(env::Box{{shm::DType::kF64, {kObserved}}, {-1}, {70000}}, env::Discrete{2}),
        built_as_(process::this_worker().env_index()),
        port_(process::this_worker().lease_port()) {
    process::this_worker().counter("built").add();
  }

  void reset(const env::Row& obs) override { observe(obs); }
  env::Outcome step(const env::Row&, const env::Row& obs) override {
    process::this_worker().counter("steps").add();
    observe(obs);
    return {};
  }

 private:
  void observe(const env::Row& obs) const {
    const process::Identity me = process::this_worker();
    const auto seed = me.seed(me.env_index());
    const auto row = obs.as<double>();
    row[0] = me.place().index;
    row[1] = me.place().num_workers;
    row[2] = built_as_;
    row[3] = me.env_index();
    row[4] = seed ? static_cast<double>(*seed) : -1;
    row[5] = port_.port();
  }

  int built_as_;
  process::PortLease port_;
};
SHOAL_REGISTER_ENV("test/WhoAmI-v0", WhoAmI);

}  // namespace shoal::vector::testing
