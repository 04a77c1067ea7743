#include "shoal/env/segmented/scene.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace shoal::env::segmented {
namespace {

constexpr int kPatch = 8;  // of one brightness [pixels]

// What is added to a key for different uses of it.
constexpr std::uint32_t kPatchSalt = 1024;
constexpr std::uint32_t kGrainSalt = 2048;
constexpr std::uint32_t kThingSalt = 1U << 20;

/// Scrambles 32 bits. Source: C. Wellons, "Prospecting for Hash Functions" (2018), lowbias32.
constexpr std::uint32_t scramble(std::uint32_t x) noexcept {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  x ^= x >> 16;
  return x;
}

using Colour = std::array<std::uint32_t, Scene::kChannels>;

/// The darkest colour of each kind.
constexpr std::array<Colour, kKinds> kDarkest{
    {{60, 80, 50}, {90, 80, 60}, {130, 40, 40}, {110, 50, 60}, {30, 70, 110}}};

Colour colour_of(Kind kind, std::uint32_t key) noexcept {
  Colour colour = kDarkest[static_cast<std::size_t>(kind)];
  for (std::uint32_t c = 0; c < Scene::kChannels; ++c) colour[c] += scramble(key + c + 1) % 64;
  return colour;
}

/// Whether a thing covers the pixel that is (dx, dy) from its middle.
bool covers(Kind kind, int dx, int dy) noexcept {
  switch (kind) {
    case Kind::kRock:
      return std::max(std::abs(dx), std::abs(dy)) <= kRadius - 1;
    case Kind::kThorn:
      return std::abs(dx) + std::abs(dy) <= kRadius;
    default:
      return dx * dx + dy * dy <= kRadius * kRadius;
  }
}

/// How much lighter it is there.
std::uint32_t shade(Kind kind, int dx, int dy) noexcept {
  switch (kind) {
    case Kind::kRock:
      return (((dx + 8) ^ (dy + 8)) & 4) != 0 ? 20 : 0;
    case Kind::kFruit:
      return (dx + 2) * (dx + 2) + (dy + 2) * (dy + 2) <= 4 ? 40 : 0;
    case Kind::kThorn:
      return ((dx - dy + 16) & 2) != 0 ? 40 : 0;
    case Kind::kAgent:
      return dx * dx + dy * dy <= 16 ? 50 : 0;
    default:
      return 0;
  }
}

void paint_ground(std::uint32_t key, std::uint8_t* rgb) noexcept {
  const Colour colour = colour_of(Kind::kGround, key);
  for (std::uint32_t y = 0; y < kSide; ++y) {
    for (std::uint32_t x = 0; x < kSide; ++x) {
      const std::uint32_t patch =
          scramble(key ^ (kPatchSalt + y / kPatch * (kSide / kPatch) + x / kPatch)) & 31U;
      const std::uint32_t grain = scramble(key ^ (kGrainSalt + y * kSide + x)) & 15U;
      for (const std::uint32_t part : colour) {
        *rgb++ = static_cast<std::uint8_t>(part + patch + grain);
      }
    }
  }
}

/// Things lie within the picture, whole.
void paint_thing(const Thing& thing, std::uint8_t* rgb, std::uint8_t* mask) noexcept {
  constexpr int kWidth = 2 * kRadius + 1;
  const Colour colour = colour_of(thing.kind, thing.key);
  for (int dy = -kRadius; dy <= kRadius; ++dy) {
    for (int dx = -kRadius; dx <= kRadius; ++dx) {
      if (!covers(thing.kind, dx, dy)) continue;
      const int at = (thing.y + dy) * kSide + thing.x + dx;
      if (mask != nullptr) mask[at] = static_cast<std::uint8_t>(thing.kind);
      if (rgb == nullptr) continue;
      const auto place = static_cast<std::uint32_t>((dy + kRadius) * kWidth + dx + kRadius);
      const std::uint32_t light =
          shade(thing.kind, dx, dy) + (scramble(thing.key ^ (kThingSalt + place)) & 15U);
      for (std::size_t c = 0; c < Scene::kChannels; ++c) {
        rgb[Scene::kChannels * at + static_cast<int>(c)] =
            static_cast<std::uint8_t>(colour[c] + light);
      }
    }
  }
}

}  // namespace

void Scene::paint(const World& world) {
  if (ground_.empty() || ground_key_ != world.ground()) {
    ground_.resize(rgb_.size());
    ground_key_ = world.ground();
    paint_ground(ground_key_, ground_.data());
  }
  std::memcpy(rgb_.data(), ground_.data(), rgb_.size());
  std::memset(mask_.data(), static_cast<int>(Kind::kGround), mask_.size());
  for (const Thing& object : world.objects()) paint_thing(object, rgb_.data(), mask_.data());
}

void Scene::show(const World& world, std::uint8_t* rgb, std::uint8_t* mask) const {
  if (rgb != nullptr) std::memcpy(rgb, rgb_.data(), rgb_.size());
  if (mask != nullptr) std::memcpy(mask, mask_.data(), mask_.size());
  paint_thing(world.agent(), rgb, mask);
}

}  // namespace shoal::env::segmented
