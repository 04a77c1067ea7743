#include "shoal/learn/network/float_tower.h"

#include <utility>

namespace shoal::learn {
namespace {

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

std::vector<Convolution> convolutions_of(const ImageTower& tower, const MlpKernels& kernels) {
  std::vector<Convolution> convolutions;
  ImageShape in{tower.shape[0], tower.shape[1], tower.shape[2]};
  for (const Layer& layer : tower.convolutions) {
    convolutions.emplace_back(layer, in, kernels);
    in = convolutions.back().out();
  }
  return convolutions;
}

}  // namespace

FloatTower::FloatTower(const ImageTower& tower, const Parameters& parameters,
                       const MlpKernels& kernels, ThreadTeam& team)
    : FloatTower(convolutions_of(tower, kernels), tower, parameters, kernels, team) {}

FloatTower::FloatTower(std::vector<Convolution> convolutions, const ImageTower& tower,
                       const Parameters& parameters, const MlpKernels& kernels, ThreadTeam& team)
    : ConvolutionTower(tower, parameters, kernels, team, gradient_size_of(convolutions)),
      convolutions_(std::move(convolutions)),
      linear_(tower.linear, kernels, team),
      rooms_(index(team.threads())),
      kept_(convolutions_.size() - 1) {
  for (Room& room : rooms_) {
    room.image = AlignedFloats(index(convolutions_.front().in().size()));
    for (const auto& c : convolutions_) {
      room.output.emplace_back(index(c.out().size()));
      room.delta.emplace_back(index(c.out().size()));
      // Of the first there is no gradient by its input.
      room.bordered.emplace_back(index(room.bordered.empty() ? 0 : c.bordered_size()));
    }
  }
}

void FloatTower::pack_forward() {
  for (auto& c : convolutions_) c.pack_forward(values(c.layer().weight), bias(c.layer()));
  linear_.pack(values(linear_.layer().weight), values(linear_.layer().bias));
}

void FloatTower::pack_backward() {
  for (auto& c : std::span(convolutions_).subspan(1)) c.pack_backward(values(c.layer().weight));
}

void FloatTower::reserve(std::int64_t rows, bool keep) {
  flat_.room(rows * linear_.layer().in);
  if (!keep) return;
  for (std::size_t k = 0; k < kept_.size(); ++k)
    kept_[k].room(rows * convolutions_[k].out().size());
  d_flat_.room(rows * linear_.layer().in);
}

void FloatTower::convolve(std::int64_t row, bool keep, int thread) noexcept {
  Room& room = rooms_[index(thread)];
  const ImageShape& in = convolutions_.front().in();
  kernels().unpack_image(image(row), in.channels, in.pixels(), room.image.data());
  const float* x = room.image.data();
  for (std::size_t k = 0; k < convolutions_.size(); ++k) {
    float* out = keep && k < kept_.size() ? kept(k, row) : room.output[k].data();
    convolutions_[k].forward(x, out);
    x = out;
  }
  const Convolution& last = convolutions_.back();
  kernels().transpose(x, last.out().pixels(), last.layer().out, last.out().channels,
                      flat_.data() + row * linear_.layer().in, last.out().pixels());
}

void FloatTower::linear_forward(std::int64_t rows, float* features, std::int64_t stride) {
  linear_.forward({flat_.data(), rows, linear_.layer().in}, features, stride);
}

void FloatTower::linear_backward(std::int64_t rows, const float* delta, std::span<float> gradient) {
  const Layer& layer = linear_.layer();
  linear_.backward({flat_.data(), rows, layer.in}, delta, values(layer.weight),
                   place(layer.weight, gradient), place(layer.bias, gradient), d_flat_.data());
}

void FloatTower::back(std::int64_t first, std::int64_t last, int thread, float* gradient) noexcept {
  for (std::int64_t row = first; row < last; ++row) back_row(row, rooms_[index(thread)], gradient);
}

void FloatTower::back_row(std::int64_t row, Room& room, float* gradient) noexcept {
  // The last layer's output was kept in torch's order alone, and the derivative comes in it.
  const Convolution& last = convolutions_.back();
  const std::int64_t flat = linear_.layer().in;
  float* d_flat = d_flat_.data() + row * flat;
  kernels().relu_slope(d_flat, flat_.data() + row * flat, flat);
  kernels().transpose(d_flat, last.layer().out, last.out().pixels(), last.out().pixels(),
                      room.delta.back().data(), last.out().channels);
  gradient += gradient_size_of(convolutions_);
  for (std::size_t k = convolutions_.size() - 1; k > 0; --k) {
    const Convolution& c = convolutions_[k];
    const float* in = kept(k - 1, row);
    gradient -= c.gradient_size();
    c.add_gradient(in, room.delta[k].data(), gradient);
    c.input_gradient(room.delta[k].data(), room.bordered[k].data(), room.delta[k - 1].data());
    kernels().relu_slope(room.delta[k - 1].data(), in, c.in().size());
  }
  const Convolution& first = convolutions_.front();
  kernels().unpack_image(image(row), first.in().channels, first.in().pixels(), room.image.data());
  first.add_gradient(room.image.data(), room.delta.front().data(),
                     gradient - first.gradient_size());
}

void FloatTower::unpack_gradient(const float* sum, std::span<float> gradient) const noexcept {
  for (const auto& c : convolutions_) {
    c.unpack_gradient(sum, place(c.layer().weight, gradient), place(c.layer().bias, gradient));
    sum += c.gradient_size();
  }
}

}  // namespace shoal::learn
