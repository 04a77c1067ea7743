// A walk on a line: reach one of its ends, the right one for a reward.
//
//   shoal envs --plugin build/libwalk.so
//   shoal train mine/Walk-v0 --plugin build/libwalk.so
//
// In Python: shoal.envs.load_plugin("build/libwalk.so"), then shoal.make_vec("mine/Walk-v0", 64).
#include <cstring>

#include "shoal/env/register_env.h"
#include "shoal/os/error.h"

namespace {

using shoal::env::Box;
using shoal::env::Discrete;
using shoal::env::Outcome;
using shoal::env::ResetOptions;
using shoal::env::Row;
using shoal::shm::DType;

class Walk final : public shoal::env::Env {
 public:
  // Observation: the place, float32 in [-1, 1]. Actions: 0 left, 1 right.
  Walk() : Env(Box{{DType::kF32, {1}}, {-1}, {1}}, Discrete{2}) {}

  void reset(const Row& obs) override { reset_with(obs, {}); }

  // Where it begins may be said: envs.reset(options={"place": 3}). Leave both out where a reset
  // takes no options.
  void reset_with(const Row& obs, const ResetOptions& options) override {
    const auto random = static_cast<double>(np_random().integers(-2, 3));
    place_ = static_cast<int>(options.number("place", random));
    observe(obs);
  }
  void check_reset_options(const ResetOptions& options) const override {
    options.expect_only({"place"});
    const double place = options.number("place", 0);
    if (place <= -kEnd || place >= kEnd)
      throw shoal::InvalidArgument("place must be between the ends");
  }

  Outcome step(const Row& action, const Row& obs) override {
    place_ += action.as<std::int64_t>()[0] == 1 ? 1 : -1;
    observe(obs);
    return {.reward = place_ == kEnd ? 1.0 : 0.0, .terminated = place_ == kEnd || place_ == -kEnd};
  }

  // For envs.snapshot() and restore(). Leave both out where that is not needed.
  std::vector<std::byte> save() const override {
    std::vector<std::byte> state(sizeof place_);
    std::memcpy(state.data(), &place_, sizeof place_);
    return state;
  }
  void load(std::span<const std::byte> state) override {
    if (state.size() != sizeof place_) throw shoal::InvalidArgument("not a state of Walk");
    std::memcpy(&place_, state.data(), sizeof place_);
  }

 private:
  static constexpr int kEnd = 5;

  void observe(const Row& obs) const { obs.as<float>()[0] = static_cast<float>(place_) / kEnd; }

  int place_ = 0;
};

SHOAL_REGISTER_ENV("mine/Walk-v0", Walk, .max_episode_steps = 100, .reward_threshold = 0.9);

}  // namespace
