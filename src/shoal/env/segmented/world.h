// The rules of SegmentedWorld: an agent on a meadow collects fruit and keeps off thorns.
//
// The meadow is kSide pixels square, in cells of kCell pixels, no two objects in one cell. A step
// moves the agent by kSpeed pixels. A fruit less than kFruitReach away is worth 1 and grows again
// in another place, a thorn less than kThornReach away costs 1 and ends the episode, rocks do
// nothing.
//
// All of it is in integers, so that a twin in another language (examples/segmentation/world.py) has
// the same numbers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/env/env.h"

namespace shoal::env::segmented {

/// What a pixel of the mask shows, and its value there.
enum class Kind : std::uint8_t { kGround, kRock, kFruit, kThorn, kAgent };
inline constexpr int kKinds = 5;

inline constexpr int kSide = 128;  // of the picture [pixels]
inline constexpr int kCell = 16;   // [pixels]
inline constexpr int kRadius = 6;  // of the largest thing [pixels]

/// Something on the meadow: where its middle is, and the number that decides what it looks like.
struct Thing {
  Kind kind = Kind::kGround;
  std::int32_t x = 0;
  std::int32_t y = 0;
  std::uint32_t key = 0;
};

/// A value.
class World {
 public:
  static constexpr int kActions = 4;  // up, down, left, right
  static constexpr int kRocks = 3;
  static constexpr int kFruits = 6;
  static constexpr int kThorns = 3;
  static constexpr int kObjects = kRocks + kFruits + kThorns;
  static constexpr int kSpeed = 6;        // [pixels a step]
  static constexpr int kFruitReach = 12;  // [pixels], between middles
  static constexpr int kThornReach = 8;

  /// What decides how the ground looks.
  std::uint32_t ground() const noexcept { return ground_; }
  const Thing& agent() const noexcept { return agent_; }
  /// Rocks, then fruits, then thorns.
  std::span<const Thing, kObjects> objects() const noexcept { return objects_; }

  void reset(NpRandom& random);

  /// `regrown` says whether an object is in another place now.
  Outcome step(std::int64_t action, NpRandom& random, bool& regrown);

  /// ground; x, y, key of the agent, and of each object.
  std::vector<double> state() const;
  static constexpr std::size_t kStateSize = 1 + 3 * (1 + kObjects);
  void set_state(std::span<const double> state);

 private:
  static constexpr int kCellsASide = kSide / kCell;
  static constexpr int kCells = kCellsASide * kCellsASide;

  bool touches(const Thing& thing) const noexcept;
  /// Whether something may grow in the middle of this cell without touching the agent at once.
  bool far_from_agent(int cell) const noexcept;
  void move(std::int64_t action) noexcept;
  /// Puts objects_[i] into one of the cells that none of the first `placed` objects has and that is
  /// far from the agent.
  void place(int i, int placed, NpRandom& random);

  std::uint32_t ground_ = 0;
  Thing agent_{.kind = Kind::kAgent};
  std::array<Thing, kObjects> objects_{};
};

}  // namespace shoal::env::segmented
