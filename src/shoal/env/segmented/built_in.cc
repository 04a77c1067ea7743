#include "shoal/env/segmented/built_in.h"

#include <fmt/format.h>

#include <cstring>
#include <type_traits>
#include <vector>

#include "shoal/env/keywords.h"
#include "shoal/env/segmented/scene.h"
#include "shoal/env/segmented/world.h"
#include "shoal/os/error.h"

namespace shoal::env::segmented {
namespace {

constexpr int kMaxEpisodeSteps = 100;
constexpr double kSolved = 10;

/// Which arrays an observation has.
struct Parts {
  bool mask = false;
  bool rgb = false;
};

Parts parts_of(const std::string& observation) {
  return {.mask = observation != "rgb", .rgb = observation != "mask"};
}

Space observation_space(Parts parts) {
  const Space mask = Box{{shm::DType::kU8, {kSide, kSide}}, {0}, {kKinds - 1}};
  const Space rgb = Box{{shm::DType::kU8, {kSide, kSide, Scene::kChannels}}, {0}, {255}};
  if (parts.mask && parts.rgb) return Dict{{{"mask", mask}, {"rgb", rgb}}};
  return parts.mask ? mask : rgb;
}

class Worlds final : public BatchEnv {
 public:
  Worlds(int count, int max_episode_steps, Parts parts)
      : parts_(parts),
        observation_space_(segmented::observation_space(parts)),
        action_space_(Discrete{World::kActions}),
        max_episode_steps_(max_episode_steps),
        slots_(static_cast<std::size_t>(count)),
        scenes_(slots_.size()) {}

  const Space& observation_space() const noexcept override { return observation_space_; }
  const Space& action_space() const noexcept override { return action_space_; }
  int count() const noexcept override { return static_cast<int>(slots_.size()); }

  void reset(int i, std::optional<std::uint64_t> seed) override {
    Slot& slot = slots_[index(i)];
    if (seed) slot.random.seed(*seed);
    slot.elapsed = 0;
    slot.world.reset(slot.random);
    scenes_[index(i)].paint(slot.world);
    write(i, Outcome{});
  }

  void step_range(int lo, int hi) override {
    for (int i = lo; i < hi; ++i) {
      Slot& slot = slots_[index(i)];
      if (slot.elapsed < 0)
        throw InvalidState(fmt::format("step of environment {} before its reset", i));
      bool regrown = false;
      Outcome outcome = slot.world.step(action(i), slot.random, regrown);
      outcome.truncated = ++slot.elapsed >= max_episode_steps_ && max_episode_steps_ > 0;
      if (regrown) scenes_[index(i)].paint(slot.world);
      write(i, outcome);
    }
  }

  std::vector<double> state(int i) const override { return slots_[index(i)].world.state(); }

  void set_state(int i, std::span<const double> state) override {
    if (state.size() != World::kStateSize) {
      throw InvalidArgument(
          fmt::format("set_state of environment {}: {} numbers given, its state has {}", i,
                      state.size(), World::kStateSize));
    }
    Slot& slot = slots_[index(i)];
    slot.world.set_state(state);
    if (slot.elapsed < 0) slot.elapsed = 0;
    scenes_[index(i)].paint(slot.world);
    show(i);
  }

  std::vector<std::byte> save(int i) const override {
    std::vector<std::byte> state(sizeof(Slot));
    std::memcpy(state.data(), &slots_[index(i)], sizeof(Slot));
    return state;
  }

  void load(int i, std::span<const std::byte> state) override {
    if (state.size() != sizeof(Slot)) {
      throw InvalidArgument(
          fmt::format("a state of {} bytes is not of this environment: its has {}", state.size(),
                      sizeof(Slot)));
    }
    std::memcpy(static_cast<void*>(&slots_[index(i)]), state.data(), sizeof(Slot));
    scenes_[index(i)].paint(slots_[index(i)].world);
  }

 private:
  struct Slot {
    World world;
    NpRandom random;
    std::int32_t elapsed = -1;  // steps since the reset; -1: never reset
  };
  static_assert(std::is_trivially_copyable_v<Slot>);

  static std::size_t index(int i) noexcept { return static_cast<std::size_t>(i); }

  std::int64_t action(int i) const {
    const std::int64_t chosen = reinterpret_cast<const std::int64_t*>(rows().actions[0].data)[i];
    if (chosen >= 0 && chosen < World::kActions) return chosen;
    throw InvalidArgument(
        fmt::format("action {} of environment {} is not in {}", chosen, i, action_space_.repr()));
  }

  void show(int i) const noexcept {
    const auto row = [&](std::size_t leaf) {
      return reinterpret_cast<std::uint8_t*>(rows().obs[leaf].row_data(i));
    };
    scenes_[index(i)].show(slots_[index(i)].world, parts_.rgb ? row(parts_.mask ? 1 : 0) : nullptr,
                           parts_.mask ? row(0) : nullptr);
  }

  void write(int i, const Outcome& outcome) const noexcept {
    show(i);
    rows().reward[index(i)] = outcome.reward;
    rows().terminated[index(i)] = outcome.terminated;
    rows().truncated[index(i)] = outcome.truncated;
  }

  Parts parts_;
  Space observation_space_;
  Space action_space_;
  std::int32_t max_episode_steps_;
  std::vector<Slot> slots_;
  std::vector<Scene> scenes_;
};

}  // namespace

std::pair<EnvSpec, BatchFactory> built_in() {
  return {{"shoal/SegmentedWorld-v0", kMaxEpisodeSteps, kSolved},
          [](int count, int max_episode_steps,
             const nlohmann::json& args) -> std::unique_ptr<BatchEnv> {
            Keywords keywords(args);
            const std::string observation =
                keywords.take_choice("observation", {"rgb", "mask", "both"});
            keywords.expect_no_more();
            return std::make_unique<Worlds>(count, max_episode_steps, parts_of(observation));
          }};
}

}  // namespace shoal::env::segmented
