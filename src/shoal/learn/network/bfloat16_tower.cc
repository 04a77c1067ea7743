#include "shoal/learn/network/bfloat16_tower.h"

#include <algorithm>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

constexpr float kByteScale = 1.0F / 255.0F;

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

std::vector<Bfloat16Convolution> convolutions_of(const ImageTower& tower,
                                                 const MlpKernels& kernels) {
  std::vector<Bfloat16Convolution> convolutions;
  auto [channels, height, width] = tower.shape;
  if (channels * width % 2 != 0) ++channels;  // lines of whole pairs
  ImageShape in{channels, height, width};
  for (const Layer& layer : tower.convolutions) {
    convolutions.emplace_back(layer, in, kernels, convolutions.empty() ? kByteScale : 1.0F);
    in = convolutions.back().out();
  }
  return convolutions;
}

}  // namespace

Bfloat16Tower::Bfloat16Tower(const ImageTower& tower, const Parameters& parameters,
                             const MlpKernels& kernels, ThreadTeam& team)
    : Bfloat16Tower(convolutions_of(tower, kernels), tower, parameters, kernels, team) {}

Bfloat16Tower::Bfloat16Tower(std::vector<Bfloat16Convolution> convolutions, const ImageTower& tower,
                             const Parameters& parameters, const MlpKernels& kernels,
                             ThreadTeam& team)
    : ConvolutionTower(tower, parameters, kernels, team, gradient_size_of(convolutions)),
      channels_(tower.shape[0]),
      convolutions_(std::move(convolutions)),
      linear_(tower.linear, kernels, team),
      rooms_(index(team.threads())),
      kept_(convolutions_.size()) {
  SHOAL_CHECK(linear_.layer().in == convolutions_.back().out().size(),
              "no padded channels at last");
  std::int64_t largest = 0;
  for (const auto& c : convolutions_) largest = std::max(largest, c.out().size());
  const std::int64_t in = std::max(convolutions_.front().in().size(), largest);
  for (Room& room : rooms_) {
    room.image = AlignedPairs(index((convolutions_.front().in().size() + 1) / 2));
    room.sums = AlignedFloats(index(largest));
    room.flat = AlignedFloats(index(linear_.layer().in));
    room.delta = AlignedPairs(index(largest));
    room.earlier_delta = AlignedPairs(index(largest));
    room.in = AlignedPairs(index(in));
    room.paired_delta = AlignedPairs(index(largest));
    for (const auto& c : convolutions_) {
      room.output.emplace_back(index(c.out().size() / 2));
      // Of the first there is no gradient by its input.
      room.bordered.emplace_back(index(room.bordered.empty() ? 0 : c.bordered_size()));
    }
  }
}

void Bfloat16Tower::pack_forward() {
  for (auto& c : convolutions_) c.pack_forward(values(c.layer().weight), bias(c.layer()));
  linear_.pack(values(linear_.layer().weight), values(linear_.layer().bias));
}

void Bfloat16Tower::pack_backward() {
  for (auto& c : std::span(convolutions_).subspan(1)) c.pack_backward(values(c.layer().weight));
}

void Bfloat16Tower::reserve(std::int64_t rows, bool keep) {
  flat_.room(rows * linear_.layer().in / 2);
  if (!keep) return;
  for (std::size_t k = 0; k < kept_.size(); ++k)
    kept_[k].room(rows * convolutions_[k].out().size() / 2);
  d_flat_.room(rows * linear_.layer().in);
}

void Bfloat16Tower::convolve(std::int64_t row, bool keep, int thread) noexcept {
  Room& room = rooms_[index(thread)];
  const ImageShape& in = convolutions_.front().in();
  kernels().unpack_pairs(image(row), channels_, in.pixels(), in.channels, room.image.data());
  const Bfloat16Pair* x = room.image.data();
  for (std::size_t k = 0; k < convolutions_.size(); ++k) {
    const Bfloat16Convolution& c = convolutions_[k];
    c.forward(x, room.sums.data());
    Bfloat16Pair* out = keep ? kept(k, row) : room.output[k].data();
    kernels().round(room.sums.data(), c.out().size(), out);
    x = out;
  }
  const Bfloat16Convolution& last = convolutions_.back();
  const std::int64_t flat = linear_.layer().in;
  kernels().transpose(room.sums.data(), last.out().pixels(), last.layer().out, last.out().channels,
                      room.flat.data(), last.out().pixels());
  kernels().round(room.flat.data(), flat, flat_.data() + row * flat / 2);
}

void Bfloat16Tower::linear_forward(std::int64_t rows, float* features, std::int64_t stride) {
  linear_.forward(flat_.data(), rows, features, stride);
}

void Bfloat16Tower::linear_backward(std::int64_t rows, const float* delta,
                                    std::span<float> gradient) {
  const Layer& layer = linear_.layer();
  linear_.backward(flat_.data(), rows, delta, place(layer.weight, gradient),
                   place(layer.bias, gradient), d_flat_.data());
}

void Bfloat16Tower::back(std::int64_t first, std::int64_t last, int thread,
                         float* gradient) noexcept {
  for (std::int64_t row = first; row < last; row += 2)
    back_rows(row, std::min<std::int64_t>(2, last - row), rooms_[index(thread)], gradient);
}

void Bfloat16Tower::back_rows(std::int64_t row, std::int64_t count, Room& room,
                              float* gradient) noexcept {
  const Bfloat16Convolution& last = convolutions_.back();
  const std::int64_t flat = linear_.layer().in;
  std::int64_t pairs = last.out().size() / 2;  // of an image
  for (std::int64_t i = 0; i < count; ++i) {
    kernels().transpose(d_flat_.data() + (row + i) * flat, last.layer().out, last.out().pixels(),
                        last.out().pixels(), room.sums.data(), last.out().channels);
    kernels().round_relu_slope(room.sums.data(), kept(convolutions_.size() - 1, row + i),
                               last.out().size(), room.delta.data() + i * pairs);
  }
  gradient += gradient_size_of(convolutions_);
  for (std::size_t k = convolutions_.size() - 1; k > 0; --k) {
    const Bfloat16Convolution& c = convolutions_[k];
    const std::int64_t earlier = c.in().size() / 2;
    kernels().pair_rows(room.delta.data(), pairs, count, pairs, room.paired_delta.data());
    kernels().pair_rows(kept(k - 1, row), earlier, count, earlier, room.in.data());
    gradient -= c.gradient_size();
    c.add_gradient(room.in.data(), room.paired_delta.data(), gradient);
    for (std::int64_t i = 0; i < count; ++i) {
      c.input_gradient(room.delta.data() + i * pairs, room.bordered[k].data(), room.sums.data());
      kernels().round_relu_slope(room.sums.data(), kept(k - 1, row + i), c.in().size(),
                                 room.earlier_delta.data() + i * earlier);
    }
    std::swap(room.delta, room.earlier_delta);
    pairs = earlier;
  }
  const Bfloat16Convolution& first = convolutions_.front();
  kernels().pair_rows(room.delta.data(), pairs, count, pairs, room.paired_delta.data());
  // Of one row alone the second image counts with derivatives of 0.
  kernels().unpack_two(image(row), image(row + count - 1), channels_, first.in().pixels(),
                       first.in().channels, room.in.data());
  first.add_gradient(room.in.data(), room.paired_delta.data(), gradient - first.gradient_size());
}

void Bfloat16Tower::unpack_gradient(const float* sum, std::span<float> gradient) const noexcept {
  for (const auto& c : convolutions_) {
    c.unpack_gradient(sum, place(c.layer().weight, gradient), place(c.layer().bias, gradient));
    sum += c.gradient_size();
  }
}

}  // namespace shoal::learn
