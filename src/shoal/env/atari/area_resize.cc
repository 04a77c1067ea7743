#include "shoal/env/atari/area_resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "shoal/os/error.h"

namespace shoal::env {
namespace {

// Less of a pixel than this does not count.
constexpr double kLeast = 1e-3;

// To the nearest, halves to the even one, for |value| < 2^22: what cvtss2si does, in vector registers.
inline float rounded(float value) noexcept {
  constexpr float kShift = 12'582'912.0F;  // 1.5 * 2^23
  return (value + kShift) - kShift;
}

inline std::uint8_t byte_of(float value) noexcept {
  return static_cast<std::uint8_t>(std::min(rounded(value), 255.0F));
}

}  // namespace

AreaResize::AreaResize(PictureSize from, PictureSize to, int channels)
    : from_(from), to_(to), channels_(channels) {
  if (to.width < 1 || to.height < 1 || to.width > from.width || to.height > from.height) {
    throw InvalidArgument(
        fmt::format("resize a picture of {} x {} pixels to {} x {}: take from 1 to {} columns and "
                    "from 1 to {} rows",
                    from.width, from.height, to.width, to.height, from.width, from.height));
  }
  // As OpenCV computes them: not the same as from / to.
  const double across = 1.0 / (static_cast<double>(to.width) / from.width);
  const double down = 1.0 / (static_cast<double>(to.height) / from.height);
  const int columns = static_cast<int>(std::lrint(across));
  const int rows = static_cast<int>(std::lrint(down));
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
  if (std::abs(across - columns) < kEpsilon && std::abs(down - rows) < kEpsilon) {
    columns_ = whole(to.width, columns);
    rows_ = whole(to.height, rows);
    rounding_ = columns == 2 && rows == 2 ? Rounding::kOfFour : Rounding::kOfMean;
    mean_ = 1.0F / static_cast<float>(columns * rows);
    return;
  }
  columns_ = weighted(from.width, to.width, across);
  rows_ = weighted(from.height, to.height, down);
}

AreaResize::Axis AreaResize::weighted(int from, int to, double scale) {
  Axis axis;
  for (int i = 0; i < to; ++i) {
    const double begin = i * scale;
    const double end = begin + scale;
    const double width = std::min(scale, from - begin);
    const int last = std::min(static_cast<int>(std::floor(end)), from - 1);
    const int first = std::min(static_cast<int>(std::ceil(begin)), last);
    const bool starts_inside = first - begin > kLeast;
    axis.first.push_back(starts_inside ? first - 1 : first);
    axis.begin.push_back(static_cast<int>(axis.weight.size()));
    if (starts_inside) axis.weight.push_back(static_cast<float>((first - begin) / width));
    axis.weight.insert(axis.weight.end(), static_cast<std::size_t>(last - first),
                       static_cast<float>(1.0 / width));
    if (end - last > kLeast)
      axis.weight.push_back(static_cast<float>(std::min({end - last, 1.0, width}) / width));
  }
  axis.begin.push_back(static_cast<int>(axis.weight.size()));
  return axis;
}

AreaResize::Axis AreaResize::whole(int to, int scale) {
  Axis axis;
  for (int i = 0; i <= to; ++i) {
    if (i < to) axis.first.push_back(i * scale);
    axis.begin.push_back(i * scale);
  }
  axis.weight.assign(static_cast<std::size_t>(to * scale), 1.0F);
  return axis;
}

void AreaResize::narrow(const std::uint8_t* row, float* narrowed) const noexcept {
  for (int x = 0; x < to_.width; ++x) {
    const auto column = static_cast<std::size_t>(x);
    const float* weight = &columns_.weight[static_cast<std::size_t>(columns_.begin[column])];
    const std::uint8_t* pixel =
        row + static_cast<std::ptrdiff_t>(columns_.first[column]) * channels_;
    const int count = columns_.count(x);
    for (int c = 0; c < channels_; ++c) {
      float sum = 0;
      for (int k = 0; k < count; ++k)
        sum += static_cast<float>(pixel[k * channels_ + c]) * weight[k];
      *narrowed++ = sum;
    }
  }
}

void AreaResize::blend(int y, const float* narrowed, std::uint8_t* out) const noexcept {
  constexpr int kBlock = 64;  // stays in registers, or near
  const int values = row_values();
  const float* weight =
      &rows_.weight[static_cast<std::size_t>(rows_.begin[static_cast<std::size_t>(y)])];
  const float* rows = narrowed + static_cast<std::ptrdiff_t>(first_row(y)) * values;
  const int count = rows_.count(y);
  for (int lo = 0; lo < values; lo += kBlock) {
    const int size = std::min(kBlock, values - lo);
    float sum[kBlock];
    for (int i = 0; i < size; ++i) sum[i] = weight[0] * rows[lo + i];
    for (int k = 1; k < count; ++k) {
      const float* row = rows + static_cast<std::ptrdiff_t>(k) * values + lo;
      for (int i = 0; i < size; ++i) sum[i] += weight[k] * row[i];
    }
    switch (rounding_) {
      case Rounding::kOfWeighted:
        for (int i = 0; i < size; ++i) out[lo + i] = byte_of(sum[i]);
        break;
      case Rounding::kOfMean:
        for (int i = 0; i < size; ++i) out[lo + i] = byte_of(sum[i] * mean_);
        break;
      case Rounding::kOfFour:
        for (int i = 0; i < size; ++i)
          out[lo + i] = static_cast<std::uint8_t>((static_cast<int>(sum[i]) + 2) >> 2);
        break;
    }
  }
}

void AreaResize::resize(const std::uint8_t* picture, std::uint8_t* out) const {
  const auto values = static_cast<std::size_t>(row_values());
  std::vector<float> narrowed(values * static_cast<std::size_t>(from_.height));
  for (int y = 0; y < from_.height; ++y) {
    narrow(picture + static_cast<std::ptrdiff_t>(y) * from_.width * channels_,
           narrowed.data() + static_cast<std::size_t>(y) * values);
  }
  for (int y = 0; y < to_.height; ++y)
    blend(y, narrowed.data(), out + static_cast<std::size_t>(y) * values);
}

}  // namespace shoal::env
