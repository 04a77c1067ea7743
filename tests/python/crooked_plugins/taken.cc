// Registers an id that Gymnasium has.
#include "shoal/env/register_env.h"

namespace {

using namespace shoal::env;

struct CartPole : Env {
  CartPole() : Env(Discrete{2}, Discrete{2}) {}
  void reset(const Row&) override {}
  Outcome step(const Row&, const Row&) override { return {}; }
};

SHOAL_REGISTER_ENV("mine/CartPole-v1", CartPole);
SHOAL_REGISTER_ENV("CartPole-v1", CartPole);

}  // namespace
