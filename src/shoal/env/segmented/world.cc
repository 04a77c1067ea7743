#include "shoal/env/segmented/world.h"

#include <algorithm>
#include <cstdlib>

namespace shoal::env::segmented {
namespace {

constexpr int kShift = 2;      // a thing's middle is up to this far from its cell's
constexpr int kClearing = 24;  // nothing grows nearer to the agent [pixels]

Kind kind_of(int object) {
  if (object < World::kRocks) return Kind::kRock;
  return object < World::kRocks + World::kFruits ? Kind::kFruit : Kind::kThorn;
}

std::uint32_t draw_key(NpRandom& random) {
  return static_cast<std::uint32_t>(random.integers(0, std::int64_t{1} << 32));
}

/// Somewhere in `cell`, whole.
void settle(Thing& thing, int cell, int cells_a_side, NpRandom& random) {
  thing.x = cell % cells_a_side * kCell + kCell / 2 +
            static_cast<std::int32_t>(random.integers(-kShift, kShift));
  thing.y = cell / cells_a_side * kCell + kCell / 2 +
            static_cast<std::int32_t>(random.integers(-kShift, kShift));
  thing.key = draw_key(random);
}

}  // namespace

void World::reset(NpRandom& random) {
  ground_ = draw_key(random);
  settle(agent_, static_cast<int>(random.integers(0, kCells)), kCellsASide, random);
  for (int i = 0; i < kObjects; ++i) place(i, i, random);
}

Outcome World::step(std::int64_t action, NpRandom& random, bool& regrown) {
  move(action);
  Outcome outcome;
  regrown = false;
  for (int i = 0; i < kObjects; ++i) {
    const Thing& object = objects_[static_cast<std::size_t>(i)];
    if (object.kind == Kind::kRock || !touches(object)) continue;
    if (object.kind == Kind::kThorn) {
      outcome.reward -= 1;
      outcome.terminated = true;
      continue;
    }
    outcome.reward += 1;
    place(i, kObjects, random);
    regrown = true;
  }
  return outcome;
}

bool World::touches(const Thing& thing) const noexcept {
  const int dx = thing.x - agent_.x;
  const int dy = thing.y - agent_.y;
  const int reach = thing.kind == Kind::kThorn ? kThornReach : kFruitReach;
  return dx * dx + dy * dy < reach * reach;
}

bool World::far_from_agent(int cell) const noexcept {
  const int dx = cell % kCellsASide * kCell + kCell / 2 - agent_.x;
  const int dy = cell / kCellsASide * kCell + kCell / 2 - agent_.y;
  return std::max(std::abs(dx), std::abs(dy)) >= kClearing;
}

void World::move(std::int64_t action) noexcept {
  const auto clamped = [](std::int32_t v) { return std::clamp(v, kRadius, kSide - 1 - kRadius); };
  const int way = action % 2 == 0 ? -kSpeed : kSpeed;
  if (action < 2) {
    agent_.y = clamped(agent_.y + way);
  } else {
    agent_.x = clamped(agent_.x + way);
  }
}

void World::place(int i, int placed, NpRandom& random) {
  std::array<bool, kCells> taken{};
  for (int k = 0; k < placed; ++k) {
    const Thing& other = objects_[static_cast<std::size_t>(k)];
    taken[static_cast<std::size_t>(other.y / kCell * kCellsASide + other.x / kCell)] = true;
  }
  std::array<int, kCells> free{};
  int count = 0;
  for (int cell = 0; cell < kCells; ++cell) {
    if (!taken[static_cast<std::size_t>(cell)] && far_from_agent(cell)) {
      free[static_cast<std::size_t>(count++)] = cell;
    }
  }
  Thing& thing = objects_[static_cast<std::size_t>(i)];
  thing.kind = kind_of(i);
  settle(thing, free[static_cast<std::size_t>(random.integers(0, count))], kCellsASide, random);
}

std::vector<double> World::state() const {
  std::vector<double> numbers{static_cast<double>(ground_)};
  const auto add = [&](const Thing& thing) {
    for (const double number : {static_cast<double>(thing.x), static_cast<double>(thing.y),
                                static_cast<double>(thing.key)}) {
      numbers.push_back(number);
    }
  };
  add(agent_);
  for (const Thing& object : objects_) add(object);
  return numbers;
}

void World::set_state(std::span<const double> state) {
  ground_ = static_cast<std::uint32_t>(state[0]);
  std::size_t at = 1;
  const auto take = [&](Thing& thing) {
    // Of a number that is no state of state(): a thing lies within the picture whatever it is.
    const auto within = [](double v) {
      return static_cast<std::int32_t>(std::clamp(v, double{kRadius}, double{kSide - 1 - kRadius}));
    };
    thing.x = within(state[at]);
    thing.y = within(state[at + 1]);
    thing.key = static_cast<std::uint32_t>(state[at + 2]);
    at += 3;
  };
  take(agent_);
  for (int i = 0; i < kObjects; ++i) {
    objects_[static_cast<std::size_t>(i)].kind = kind_of(i);
    take(objects_[static_cast<std::size_t>(i)]);
  }
}

}  // namespace shoal::env::segmented
