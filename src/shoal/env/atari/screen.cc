#include "shoal/env/atari/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "shoal/os/error.h"

namespace shoal::env {
namespace {

/// OpenCV's COLOR_RGB2GRAY of bytes: ITU-R BT.601's weights in 15 bits.
std::uint8_t gray_of(const std::uint8_t* rgb) noexcept {
  constexpr int kRed = 9'798;
  constexpr int kGreen = 19'235;
  constexpr int kBlue = 3'735;
  constexpr int kBits = 15;
  return static_cast<std::uint8_t>(
      (rgb[0] * kRed + rgb[1] * kGreen + rgb[2] * kBlue + (1 << (kBits - 1))) >> kBits);
}

void gray_row(const std::uint8_t* rgb, std::size_t pixels, std::uint8_t* out) noexcept {
  for (std::size_t x = 0; x < pixels; ++x) out[x] = gray_of(rgb + 3 * x);
}

/// Values a pixel while it is pooled and resized: grey is made before, or after.
int channels_of(const ScreenOptions& options) noexcept {
  return options.gray && options.pixels != Pixels::kCleanRl ? 1 : 3;
}

std::size_t area(PictureSize size) noexcept {
  return static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height);
}

}  // namespace

Screen::Screen(const ScreenOptions& options)
    : options_(options),
      resize_(options.frame, options.picture, channels_of(options)),
      pooled_row_(index(options.frame.width * channels_of(options))),
      changed_(index(options.frame.height), 1) {
  if (options.stack < 0)
    throw InvalidArgument(fmt::format("stack {} pictures: take 0 or more", options.stack));
  for (Frame& frame : frames_) frame.now.resize(area(options.frame));
  for (Frame& frame : frames_) frame.seen.resize(area(options.frame));
  pooled_.resize(pooled_row_ * index(options.frame.height));
  narrowed_.resize(index(resize_.row_values()) * index(options.frame.height));
  row_.resize(3 * index(std::max(options.frame.width, options.picture.width)));
  picture_.resize(area(options.picture) * (options.gray ? 1 : 3));
  stack_.resize(picture_.size() * index(std::max(options.stack, 1)));
}

bool Screen::grabbed(int i) noexcept {
  Frame& frame = frames_[index(i)];
  const std::size_t width = index(options_.frame.width);
  bool all_known = true;
  for (std::size_t y = 0; y < changed_.size(); ++y) {
    const std::uint8_t* now = &frame.now[y * width];
    std::uint8_t* seen = &frame.seen[y * width];
    if (frame.was_grabbed && std::memcmp(now, seen, width) == 0) continue;
    for (std::size_t x = 0; x < width; ++x) all_known &= colours_[now[x]].known;
    std::memcpy(seen, now, width);
    changed_[y] = 1;
  }
  frame.was_grabbed = true;
  return all_known;
}

void Screen::learn(int i, std::span<const std::uint8_t> gray, std::span<const std::uint8_t> rgb) {
  const std::vector<std::uint8_t>& frame = frames_[index(i)].now;
  if (gray.size() != frame.size() || rgb.size() != 3 * frame.size()) {
    throw InvalidArgument(fmt::format(
        "learn the colours of a frame of {} pixels: got {} of grey and {} values of RGB",
        frame.size(), gray.size(), rgb.size()));
  }
  for (std::size_t p = 0; p < frame.size(); ++p)
    colours_[frame[p]] = {{rgb[3 * p], rgb[3 * p + 1], rgb[3 * p + 2]}, gray[p], true};
}

void Screen::rgb_row(const std::uint8_t* first, const std::uint8_t* second,
                     std::uint8_t* out) const noexcept {
  for (int x = 0; x < options_.frame.width; ++x) {
    const auto& one = colours_[first[x]].rgb;
    const auto& other = colours_[second[x]].rgb;
    for (std::size_t c = 0; c < 3; ++c) *out++ = std::max(one[c], other[c]);
  }
}

void Screen::pool_row(std::size_t y, Pooling pooling) noexcept {
  const std::size_t width = index(options_.frame.width);
  const bool one = pooling == Pooling::kFirst || pooling == Pooling::kMore;
  const std::uint8_t* first = &frames_[pooling == Pooling::kSecond ? 1 : 0].now[y * width];
  const std::uint8_t* second = &frames_[one ? 0 : 1].now[y * width];
  std::uint8_t* pooled = &pooled_[y * pooled_row_];
  std::uint8_t* made = pooling == Pooling::kMore ? row_.data() : pooled;
  if (of_palette()) {
    for (std::size_t x = 0; x < width; ++x)
      made[x] = std::max(colours_[first[x]].gray, colours_[second[x]].gray);
  } else if (pooled_row_ == width) {
    rgb_row(first, second, row_.data());
    gray_row(row_.data(), width, made);
  } else {
    rgb_row(first, second, made);
  }
  if (pooling != Pooling::kMore) return;
  for (std::size_t v = 0; v < pooled_row_; ++v) pooled[v] = std::max(pooled[v], made[v]);
}

void Screen::blend_row(int y) noexcept {
  const std::size_t values = index(options_.picture.width) * (options_.gray ? 1 : 3);
  std::uint8_t* out = &picture_[index(y) * values];
  const bool gray_comes_last = options_.gray && options_.pixels == Pixels::kCleanRl;
  resize_.blend(y, narrowed_.data(), gray_comes_last ? row_.data() : out);
  if (gray_comes_last) gray_row(row_.data(), values, out);
}

void Screen::picture_of(Pooling pooling) noexcept {
  // What was pooled in another way, or on top of what was there, tells nothing of this time.
  const bool anew = pooling != last_ || pooling == Pooling::kMore;
  for (std::size_t y = 0; y < changed_.size(); ++y) {
    if (!anew && changed_[y] == 0) continue;
    changed_[y] = 1;
    pool_row(y, pooling);
    resize_.narrow(&pooled_[y * pooled_row_], &narrowed_[y * index(resize_.row_values())]);
  }
  for (int y = 0; y < options_.picture.height; ++y) {
    const auto rows = std::span(changed_).subspan(
        index(resize_.first_row(y)), index(resize_.last_row(y) - resize_.first_row(y) + 1));
    if (std::ranges::find(rows, 1) != rows.end()) blend_row(y);
  }
  std::ranges::fill(changed_, 0);
  last_ = pooling;
}

std::span<std::uint8_t> Screen::newest() noexcept {
  return std::span(stack_).last(picture_.size());
}

void Screen::begin() noexcept {
  for (std::size_t at = 0; at < stack_.size(); at += picture_.size()) {
    if (options_.zero_start) {
      std::memset(&stack_[at], 0, picture_.size());
    } else {
      std::memcpy(&stack_[at], picture_.data(), picture_.size());
    }
  }
  std::ranges::copy(picture_, newest().begin());
}

void Screen::push() noexcept {
  std::memmove(stack_.data(), stack_.data() + picture_.size(), stack_.size() - picture_.size());
  std::ranges::copy(picture_, newest().begin());
}

std::vector<std::size_t> Screen::shape() const {
  std::vector<std::size_t> shape;
  if (options_.stack > 0) shape.push_back(index(options_.stack));
  shape.push_back(index(options_.picture.height));
  shape.push_back(index(options_.picture.width));
  if (!options_.gray) shape.push_back(3);
  return shape;
}

}  // namespace shoal::env
