// Pictures made smaller as OpenCV's resize(…, interpolation=INTER_AREA) makes them, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

namespace shoal::env {

struct PictureSize {
  int width = 0;
  int height = 0;

  bool operator==(const PictureSize&) const = default;
};

/// Each pixel of the result is the mean of the area that it covers, the pixels at the area's border
/// counted by the part that lies within. First along the rows (`narrow`), then down the columns
/// (`blend`), in float32, in OpenCV's order of operations; whole pixels to whole pixels it takes the
/// sums as integers. So a row that has not changed need not be narrowed again.
///
/// The result equals OpenCV's of x86-64, which neither fuses multiply and add nor leaves this to the
/// processor (area_resize_test.cc, tests/python/test_atari.py).
///
/// Threads: any number at a time; the object does not change.
class AreaResize {
 public:
  /// Of uint8 pictures of `channels` values a pixel. Throws InvalidArgument where the result would
  /// have more rows or columns than the picture, or none.
  AreaResize(PictureSize from, PictureSize to, int channels);

  PictureSize from() const noexcept { return from_; }
  PictureSize to() const noexcept { return to_; }
  /// Values in a row of the result.
  int row_values() const noexcept { return to_.width * channels_; }

  /// A row of the picture (from().width * channels bytes) as row_values() floats.
  void narrow(const std::uint8_t* row, float* narrowed) const noexcept;

  /// Row `y` of the result, row_values() bytes, of all rows of the picture as narrow() made them, one
  /// after the other; it reads those from first_row(y) to last_row(y).
  void blend(int y, const float* narrowed, std::uint8_t* out) const noexcept;
  int first_row(int y) const noexcept { return rows_.first[static_cast<std::size_t>(y)]; }
  int last_row(int y) const noexcept { return first_row(y) + rows_.count(y) - 1; }

  /// A whole picture of from().height rows into one of to().height.
  void resize(const std::uint8_t* picture, std::uint8_t* out) const;

 private:
  /// What each pixel of the result is made of along one axis: `count` pixels from `first` on.
  struct Axis {
    std::vector<int> first;
    std::vector<int> begin;  // of its weights; one more at the end
    std::vector<float> weight;

    int count(int i) const noexcept {
      return begin[static_cast<std::size_t>(i) + 1] - begin[static_cast<std::size_t>(i)];
    }
  };
  /// How a sum becomes a byte.
  enum class Rounding : std::uint8_t { kOfWeighted, kOfMean, kOfFour };

  static Axis weighted(int from, int to, double scale);
  static Axis whole(int to, int scale);

  PictureSize from_;
  PictureSize to_;
  int channels_;
  Rounding rounding_ = Rounding::kOfWeighted;
  float mean_ = 1;  // kOfMean: one over the pixels of an area
  Axis columns_;
  Axis rows_;
};

}  // namespace shoal::env
