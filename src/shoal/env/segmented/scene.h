// What SegmentedWorld looks like: a picture, and the mask that says what each pixel shows.
//
// Every pixel is a function of its place and of the key of what it shows, in integers. Colours of
// the kinds overlap: telling a fruit from a thorn takes its shape and its texture.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/env/segmented/world.h"

namespace shoal::env::segmented {

/// The picture of one world without its agent, which is all that changes in most steps.
class Scene {
 public:
  static constexpr int kChannels = 3;  // red, green, blue

  Scene() : rgb_(kSide * kSide * kChannels), mask_(kSide * kSide) {}

  /// Paints the world anew. The ground only where it is another than that of the last call.
  void paint(const World& world);

  /// Writes the picture with the agent: uint8 [kSide, kSide, kChannels] and [kSide, kSide]. Either
  /// may be null.
  void show(const World& world, std::uint8_t* rgb, std::uint8_t* mask) const;

 private:
  std::vector<std::uint8_t> ground_;  // of the last key; empty before
  std::uint32_t ground_key_ = 0;
  std::vector<std::uint8_t> rgb_;
  std::vector<std::uint8_t> mask_;
};

}  // namespace shoal::env::segmented
