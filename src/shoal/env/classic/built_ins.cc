#include "shoal/env/classic/built_ins.h"

#include "shoal/env/batch_of.h"
#include "shoal/env/classic/acrobot.h"
#include "shoal/env/classic/cartpole.h"
#include "shoal/env/classic/mountain_car.h"
#include "shoal/env/classic/mountain_car_continuous.h"
#include "shoal/env/classic/pendulum.h"
#include "shoal/env/keywords.h"

namespace shoal::env::classic {
namespace {

CartPole cart_pole(Keywords& keywords, bool hide_velocities) {
  const bool sutton_barto_reward = keywords.take_bool("sutton_barto_reward", false);
  return CartPole(sutton_barto_reward, keywords.take_bool("hide_velocities", hide_velocities));
}

/// A factory of the environment that `from` makes of the caller's arguments.
template <class From>
BatchFactory factory(From from) {
  return [from](int count, int max_episode_steps,
                const nlohmann::json& args) -> std::unique_ptr<BatchEnv> {
    Keywords keywords(args);
    const auto prototype = from(keywords);
    keywords.expect_no_more();
    return std::make_unique<BatchOf<std::remove_const_t<decltype(prototype)>>>(
        count, max_episode_steps, prototype);
  };
}

}  // namespace

std::vector<std::pair<EnvSpec, BatchFactory>> built_ins() {
  return {
      {{"shoal/CartPole-v1", 500, 475.0}, factory([](Keywords& k) { return cart_pole(k, false); })},
      {{"shoal/CartPoleNoVel-v1", 500, 475.0},
       factory([](Keywords& k) { return cart_pole(k, true); })},
      {{"shoal/Pendulum-v1", 200, {}},
       factory([](Keywords& k) { return Pendulum(k.take_double("g", 10.0)); })},
      {{"shoal/Acrobot-v1", 500, -100.0}, factory([](Keywords&) { return Acrobot(); })},
      {{"shoal/MountainCar-v0", 200, -110.0},
       factory([](Keywords& k) { return MountainCar(k.take_double("goal_velocity", 0)); })},
      {{"shoal/MountainCarContinuous-v0", 999, 90.0}, factory([](Keywords& k) {
         return MountainCarContinuous(k.take_double("goal_velocity", 0));
       })},
  };
}

}  // namespace shoal::env::classic
