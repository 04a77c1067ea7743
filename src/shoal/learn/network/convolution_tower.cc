#include "shoal/learn/network/convolution_tower.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "shoal/learn/network/bfloat16_tower.h"
#include "shoal/learn/network/float_tower.h"

namespace shoal::learn {
namespace {

constexpr std::int64_t kMaxShards = 16;
constexpr std::int64_t kRowsOfShard = 4;  // at least, while there are fewer than kMaxShards
constexpr std::int64_t kMaxTasks = 256;

std::int64_t shards_of(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / kRowsOfShard, 1, kMaxShards);
}

}  // namespace

std::unique_ptr<ConvolutionTower> ConvolutionTower::create(const ImageTower& tower,
                                                           Precision precision,
                                                           const Parameters& parameters,
                                                           const MlpKernels& kernels,
                                                           ThreadTeam& team) {
  if (precision == Precision::kBfloat16)
    return std::make_unique<Bfloat16Tower>(tower, parameters, kernels, team);
  return std::make_unique<FloatTower>(tower, parameters, kernels, team);
}

ConvolutionTower::ConvolutionTower(const ImageTower& tower, const Parameters& parameters,
                                   const MlpKernels& kernels, ThreadTeam& team,
                                   std::int64_t gradient_size)
    : tower_(tower),
      parameters_(parameters),
      kernels_(kernels),
      team_(team),
      gradient_size_(gradient_size) {}

std::span<const float> ConvolutionTower::bias(const Layer& layer) {
  const auto own = values(layer.bias);
  if (tower_.pixel_mean == 0 || layer.bias != tower_.convolutions.front().bias) return own;
  const auto weight = values(layer.weight);
  const std::size_t inputs = weight.size() / own.size();  // of an output
  first_bias_.resize(own.size());
  for (std::size_t o = 0; o < own.size(); ++o) {
    const auto of_output = weight.subspan(o * inputs, inputs);
    const double sum = std::accumulate(of_output.begin(), of_output.end(), 0.0);
    first_bias_[o] = static_cast<float>(own[o] - tower_.pixel_mean * sum);
  }
  return first_bias_;
}

void ConvolutionTower::center_gradient(std::span<float> gradient) const {
  if (tower_.pixel_mean == 0) return;
  const Layer& first = tower_.convolutions.front();
  const auto by_weight = place(first.weight, gradient);
  const auto by_bias = place(first.bias, gradient);
  const std::size_t inputs = by_weight.size() / by_bias.size();
  for (std::size_t o = 0; o < by_bias.size(); ++o) {
    const auto taken = static_cast<float>(tower_.pixel_mean * by_bias[o]);
    for (float& g : by_weight.subspan(o * inputs, inputs)) g -= taken;
  }
}

void ConvolutionTower::run_all(std::int64_t rows, bool keep, float* features, std::int64_t stride) {
  if (!std::exchange(forward_packed_, true)) pack_forward();
  reserve(rows, keep);
  const std::int64_t tasks = std::min(rows, kMaxTasks);
  team_.run(static_cast<int>(tasks), [&](int task, int thread) {
    for (std::int64_t row = rows * task / tasks; row < rows * (task + 1) / tasks; ++row)
      convolve(row, keep, thread);
  });
  linear_forward(rows, features, stride);
}

void ConvolutionTower::forward(const shm::TensorView& images, std::int64_t first, std::int64_t rows,
                               float* features, std::int64_t stride) {
  bytes_.clear();
  for (std::int64_t row = first; row < first + rows; ++row) bytes_.push_back(images.row_data(row));
  run_all(rows, false, features, stride);
}

void ConvolutionTower::forward_train(const shm::TensorView& images,
                                     std::span<const std::int32_t> rows, float* features,
                                     std::int64_t stride) {
  bytes_.clear();
  for (const std::int32_t row : rows) bytes_.push_back(images.row_data(row));
  run_all(static_cast<std::int64_t>(rows.size()), true, features, stride);
}

void ConvolutionTower::backward(const float* delta, std::span<float> gradient) {
  if (!std::exchange(backward_packed_, true)) pack_backward();
  const auto rows = static_cast<std::int64_t>(bytes_.size());
  linear_backward(rows, delta, gradient);
  const std::int64_t shards = shards_of(rows);
  shard_gradients_.room(shards * gradient_size_);
  team_.run(static_cast<int>(shards), [&](int shard, int thread) {
    float* of_shard = shard_gradients_.data() + shard * gradient_size_;
    std::fill_n(of_shard, gradient_size_, 0.0F);
    back(rows * shard / shards, rows * (shard + 1) / shards, thread, of_shard);
  });
  add_shards(shards);
  unpack_gradient(shard_gradients_.data(), gradient);
  center_gradient(gradient);
}

void ConvolutionTower::add_shards(std::int64_t shards) {
  float* sum = shard_gradients_.data();
  const std::int64_t parts = std::min<std::int64_t>(kMaxShards, gradient_size_ / kPad);
  team_.run(static_cast<int>(parts), [&](int part, int) {
    const std::int64_t from = gradient_size_ / kPad * part / parts * kPad;
    const std::int64_t to = gradient_size_ / kPad * (part + 1) / parts * kPad;
    for (std::int64_t shard = 1; shard < shards; ++shard)
      kernels_.add(sum + from, sum + shard * gradient_size_ + from, to - from);
  });
}

}  // namespace shoal::learn
