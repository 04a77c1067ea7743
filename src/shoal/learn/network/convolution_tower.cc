#include "shoal/learn/network/convolution_tower.h"

#include <algorithm>
#include <array>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

constexpr std::int64_t kMaxShards = 16;
constexpr std::int64_t kRowsOfShard = 4;  // at least, while there are fewer than kMaxShards
constexpr std::int64_t kMaxTasks = 256;
constexpr std::size_t kMaxLayers = 8;

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

std::int64_t shards_of(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / kRowsOfShard, 1, kMaxShards);
}

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

ConvolutionTower::ConvolutionTower(const ImageTower& tower, const Parameters& parameters,
                                   const MlpKernels& kernels, ThreadTeam& team)
    : parameters_(parameters),
      kernels_(kernels),
      team_(team),
      convolutions_(convolutions_of(tower, kernels)),
      linear_(tower.linear, kernels, team),
      rooms_(index(team.threads())),
      flat_size_(tower.linear.in),
      kept_(convolutions_.size() - 1) {
  SHOAL_CHECK(convolutions_.size() <= kMaxLayers, "a tower of at most kMaxLayers convolutions");
  for (const auto& c : convolutions_) gradient_size_ += c.gradient_size();
  for (Room& room : rooms_) {
    room.image = AlignedFloats(index(convolutions_.front().in().size()));
    for (const auto& c : convolutions_) {
      room.output.emplace_back(index(c.out().size()));
      room.delta.emplace_back(index(c.out().size()));
    }
  }
}

void ConvolutionTower::pack_forward() {
  if (std::exchange(forward_packed_, true)) return;
  for (auto& c : convolutions_)
    c.pack_forward(parameters_.values(c.layer().weight), parameters_.values(c.layer().bias));
  linear_.pack(parameters_.values(linear_.layer().weight),
               parameters_.values(linear_.layer().bias));
}

void ConvolutionTower::pack_backward() {
  if (std::exchange(backward_packed_, true)) return;
  for (auto& c : std::span(convolutions_).subspan(1))
    c.pack_backward(parameters_.values(c.layer().weight));
}

float* ConvolutionTower::kept(std::size_t layer, std::int64_t row) noexcept {
  return kept_[layer].data() + row * convolutions_[layer].out().size();
}

const float* ConvolutionTower::kept(std::size_t layer, std::int64_t row) const noexcept {
  return kept_[layer].data() + row * convolutions_[layer].out().size();
}

void ConvolutionTower::run(const std::byte* bytes, Room& room, std::span<float* const> outputs,
                           float* flat) const noexcept {
  const ImageShape& in = convolutions_.front().in();
  kernels_.unpack_image(reinterpret_cast<const std::uint8_t*>(bytes), in.channels, in.pixels(),
                        room.image.data());
  const float* x = room.image.data();
  for (std::size_t k = 0; k < convolutions_.size(); ++k) {
    convolutions_[k].forward(x, outputs[k]);
    x = outputs[k];
  }
  const Convolution& last = convolutions_.back();
  kernels_.transpose(x, last.out().pixels(), last.layer().out, last.out().channels, flat,
                     last.out().pixels());
}

void ConvolutionTower::run_all(std::int64_t rows, bool keep,
                               std::span<const std::byte* const> bytes) {
  pack_forward();
  if (rows > flat_capacity_) {
    flat_ = AlignedFloats(index(rows * flat_size_));
    flat_capacity_ = rows;
  }
  const std::int64_t tasks = std::min(rows, kMaxTasks);
  team_.run(static_cast<int>(tasks), [&](int task, int thread) {
    Room& room = rooms_[index(thread)];
    std::array<float*, kMaxLayers> outputs{};
    for (std::int64_t row = rows * task / tasks; row < rows * (task + 1) / tasks; ++row) {
      for (std::size_t k = 0; k < convolutions_.size(); ++k)
        outputs[k] = keep && k < kept_.size() ? kept(k, row) : room.output[k].data();
      run(bytes[index(row)], room, outputs, flat_.data() + row * flat_size_);
    }
  });
}

void ConvolutionTower::forward(const shm::TensorView& images, std::int64_t first, std::int64_t rows,
                               float* features, std::int64_t stride) {
  bytes_.clear();
  for (std::int64_t row = first; row < first + rows; ++row) bytes_.push_back(images.row_data(row));
  run_all(rows, false, bytes_);
  linear_.forward({flat_.data(), rows, flat_size_}, features, stride);
}

void ConvolutionTower::reserve(std::int64_t rows) {
  if (rows <= capacity_) return;
  capacity_ = rows;
  for (std::size_t k = 0; k < kept_.size(); ++k)
    kept_[k] = AlignedFloats(index(rows * convolutions_[k].out().size()));
  d_flat_ = AlignedFloats(index(rows * flat_size_));
  shard_gradients_ = AlignedFloats(index(shards_of(rows) * gradient_size_));
}

void ConvolutionTower::forward_train(const shm::TensorView& images,
                                     std::span<const std::int32_t> rows, float* features,
                                     std::int64_t stride) {
  const auto count = static_cast<std::int64_t>(rows.size());
  bytes_.clear();
  for (const std::int32_t row : rows) bytes_.push_back(images.row_data(row));
  reserve(count);
  run_all(count, true, bytes_);
  linear_.forward({flat_.data(), count, flat_size_}, features, stride);
}

void ConvolutionTower::backward(const float* delta, std::span<float> gradient) {
  pack_backward();
  const auto rows = static_cast<std::int64_t>(bytes_.size());
  const auto place = [&](std::size_t parameter) {
    const Parameter& p = parameters_[parameter];
    return gradient.subspan(p.offset, p.numel());
  };
  linear_.backward({flat_.data(), rows, flat_size_}, delta,
                   parameters_.values(linear_.layer().weight), place(linear_.layer().weight),
                   place(linear_.layer().bias), d_flat_.data());
  const std::int64_t shards = shards_of(rows);
  team_.run(static_cast<int>(shards), [&](int shard, int thread) {
    float* of_shard = shard_gradients_.data() + shard * gradient_size_;
    std::fill_n(of_shard, gradient_size_, 0.0F);
    for (std::int64_t row = rows * shard / shards; row < rows * (shard + 1) / shards; ++row)
      back(row, rooms_[index(thread)], of_shard);
  });
  add_shards(shards, gradient);
}

void ConvolutionTower::back(std::int64_t row, Room& room, float* gradient) noexcept {
  // The last layer's output was kept in torch's order alone, and the derivative comes in it.
  const Convolution& last = convolutions_.back();
  float* d_flat = d_flat_.data() + row * flat_size_;
  kernels_.relu_slope(d_flat, flat_.data() + row * flat_size_, flat_size_);
  kernels_.transpose(d_flat, last.layer().out, last.out().pixels(), last.out().pixels(),
                     room.delta.back().data(), last.out().channels);
  gradient += gradient_size_;
  for (std::size_t k = convolutions_.size() - 1; k > 0; --k) {
    const Convolution& c = convolutions_[k];
    const float* in = kept(k - 1, row);
    gradient -= c.gradient_size();
    c.add_gradient(in, room.delta[k].data(), gradient);
    c.input_gradient(room.delta[k].data(), room.delta[k - 1].data());
    kernels_.relu_slope(room.delta[k - 1].data(), in, c.in().size());
  }
  const Convolution& first = convolutions_.front();
  kernels_.unpack_image(reinterpret_cast<const std::uint8_t*>(bytes_[index(row)]),
                        first.in().channels, first.in().pixels(), room.image.data());
  first.add_gradient(room.image.data(), room.delta.front().data(),
                     gradient - first.gradient_size());
}

void ConvolutionTower::add_shards(std::int64_t shards, std::span<float> gradient) {
  float* sum = shard_gradients_.data();
  const std::int64_t parts = std::min<std::int64_t>(kMaxShards, gradient_size_ / kPad);
  team_.run(static_cast<int>(parts), [&](int part, int) {
    const std::int64_t from = gradient_size_ / kPad * part / parts * kPad;
    const std::int64_t to = gradient_size_ / kPad * (part + 1) / parts * kPad;
    for (std::int64_t shard = 1; shard < shards; ++shard)
      kernels_.add(sum + from, sum + shard * gradient_size_ + from, to - from);
  });
  for (const auto& c : convolutions_) {
    const Parameter& weight = parameters_[c.layer().weight];
    const Parameter& bias = parameters_[c.layer().bias];
    c.unpack_gradient(sum, gradient.subspan(weight.offset, weight.numel()),
                      gradient.subspan(bias.offset, bias.numel()));
    sum += c.gradient_size();
  }
}

}  // namespace shoal::learn
