// From the emulator's frames to what an agent sees: the larger of two frames, grey, small, stacked.
//
//   frame 0, frame 1 ──colours──▶ pooled ──AreaResize──▶ picture ──▶ stack
//   palette indices               full size              small       the last n pictures
//
// An emulator of Atari's gives its screen fast as palette indices, slowly as grey or RGB. So a screen
// learns the palette: grabbed() says when a frame shows an index that learn() has not seen. And most
// rows of a game do not change between two steps: those keep what was made of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/env/atari/area_resize.h"

namespace shoal::env {

/// Whose pixels: the order in which the same operations are done.
enum class Pixels : std::uint8_t {
  kGymnasium,  // the palette's own grey, then the larger of two frames, then resized (ALE, EnvPool)
  kSb3,        // the larger of two frames in RGB, then OpenCV's grey, then resized
  kCleanRl,    // the larger of two frames in RGB, then resized, then OpenCV's grey
};

struct ScreenOptions {
  PictureSize frame;    // of the emulator
  PictureSize picture;  // not larger
  bool gray = true;     // false: pictures of RGB
  Pixels pixels = Pixels::kGymnasium;
  int stack = 4;            // pictures in an observation; 0: one, without an axis for them
  bool zero_start = false;  // a stack begins with zeros; false: with copies of its first picture
};

/// Threads: one at a time.
class Screen {
 public:
  /// Throws InvalidArgument for a picture larger than the frame, or a negative stack.
  explicit Screen(const ScreenOptions& options);

  /// Where the emulator writes palette indices, row by row: 0 is the earlier of two, 1 the later.
  std::span<std::uint8_t> frame(int i) noexcept { return frames_[index(i)].now; }

  /// Frame `i` has been written. False: it shows colours of which learn() is to tell before the
  /// frame is pooled.
  bool grabbed(int i) noexcept;
  /// What frame `i` is in grey (a byte a pixel) and in RGB (three). Throws InvalidArgument for other
  /// sizes.
  void learn(int i, std::span<const std::uint8_t> gray, std::span<const std::uint8_t> rgb);

  /// The picture becomes that of the larger of both frames, pixel by pixel,
  void pool() noexcept { picture_of(Pooling::kBoth); }
  /// of frame `i` alone,
  void pool_one(int i) noexcept { picture_of(i == 0 ? Pooling::kFirst : Pooling::kSecond); }
  /// or of the larger of frame 0 and what was pooled last; not with kSb3, whose grey comes after.
  void pool_more() noexcept { picture_of(Pooling::kMore); }

  /// The picture is the first of a stack,
  void begin() noexcept;
  /// or its next.
  void push() noexcept;

  /// [stack, height, width] of grey, with 3 as the last axis of RGB; without the first where there is
  /// no stack.
  std::span<const std::uint8_t> observation() const noexcept { return stack_; }
  std::vector<std::size_t> shape() const;

 private:
  enum class Pooling : std::uint8_t { kNone, kBoth, kFirst, kSecond, kMore };
  struct Frame {
    std::vector<std::uint8_t> now;
    std::vector<std::uint8_t> seen;  // at the last grabbed()
    bool was_grabbed = false;
  };
  struct Colour {
    std::array<std::uint8_t, 3> rgb;
    std::uint8_t gray;
    bool known;
  };

  static std::size_t index(int i) noexcept { return static_cast<std::size_t>(i); }
  bool of_palette() const noexcept {
    return options_.gray && options_.pixels == Pixels::kGymnasium;
  }
  void picture_of(Pooling pooling) noexcept;
  void pool_row(std::size_t y, Pooling pooling) noexcept;
  void rgb_row(const std::uint8_t* first, const std::uint8_t* second,
               std::uint8_t* out) const noexcept;
  void blend_row(int y) noexcept;
  std::span<std::uint8_t> newest() noexcept;

  ScreenOptions options_;
  AreaResize resize_;
  std::size_t pooled_row_;             // values in a row of pooled_
  std::array<Colour, 256> colours_{};  // by palette index
  std::array<Frame, 2> frames_;
  std::vector<std::uint8_t> changed_;  // rows of either frame since the last pooling
  Pooling last_ = Pooling::kNone;
  std::vector<std::uint8_t> pooled_;
  std::vector<float> narrowed_;    // all rows of pooled_
  std::vector<std::uint8_t> row_;  // of RGB, before it becomes grey
  std::vector<std::uint8_t> picture_;
  std::vector<std::uint8_t> stack_;
};

}  // namespace shoal::env
