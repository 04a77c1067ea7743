// One image's part of a network on own kernels: convolutions, then one wide linear layer, each with
// ReLU. Images stay the bytes that they are in memory until the first layer reads one.
//
// Threads share the images of forward_train() and forward(), and in backward() `shards` of rows. A
// shard's gradient is summed row by row, the shards' in their order, and how many there are depends
// on the number of rows alone: bits do not depend on the number of threads. What is kept are the
// outputs of the layers, and of a patch nothing.
//
// Here is how the work is shared; in which numbers it is done says a derived class: FloatTower,
// Bfloat16Tower.
//
// Threads: one at a time, which brings the team.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/kernels/mlp_kernels.h"
#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/network/thread_team.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

class ConvolutionTower {
 public:
  /// In these numbers. Borrows the parameters, the kernels and the team.
  static std::unique_ptr<ConvolutionTower> create(const ImageTower& tower, Precision precision,
                                                  const Parameters& parameters,
                                                  const MlpKernels& kernels, ThreadTeam& team);
  virtual ~ConvolutionTower() = default;
  ConvolutionTower(const ConvolutionTower&) = delete;
  ConvolutionTower& operator=(const ConvolutionTower&) = delete;

  /// Floats of a row of features.
  std::int64_t features() const noexcept { return tower_.linear.out; }

  /// Must be called when parameters were changed.
  void parameters_changed() noexcept { forward_packed_ = backward_packed_ = false; }

  /// The features of rows [first, first + rows) of `images` (bytes, [rows][channels][height][width]),
  /// to rows of `stride` floats.
  void forward(const shm::TensorView& images, std::int64_t first, std::int64_t rows,
               float* features, std::int64_t stride);

  /// The same for the rows that `rows` lists; keeps what backward() needs until the next call of
  /// anything. `images` must stay as they are until then.
  void forward_train(const shm::TensorView& images, std::span<const std::int32_t> rows,
                     float* features, std::int64_t stride);

  /// `delta`: the loss's derivative by the features, before their ReLU ([rows][features()], no
  /// gaps). Writes the places of this tower's parameters in `gradient`.
  void backward(const float* delta, std::span<float> gradient);

 protected:
  /// `gradient_size`: floats of the convolutions' gradient, of one shard.
  ConvolutionTower(const ImageTower& tower, const Parameters& parameters, const MlpKernels& kernels,
                   ThreadTeam& team, std::int64_t gradient_size);

  const MlpKernels& kernels() const noexcept { return kernels_; }
  ThreadTeam& team() const noexcept { return team_; }
  /// Of the parameter at this index.
  std::span<const float> values(std::size_t parameter) const noexcept {
    return parameters_.values(parameter);
  }
  /// Of a convolution. The first one's takes pixel_mean from each of its inputs, which is one number for each
  /// output, since no convolution pads.
  std::span<const float> bias(const Layer& layer);
  std::span<float> place(std::size_t parameter, std::span<float> gradient) const noexcept {
    const Parameter& p = parameters_[parameter];
    return gradient.subspan(p.offset, p.numel());
  }
  const std::uint8_t* image(std::int64_t row) const noexcept {
    return reinterpret_cast<const std::uint8_t*>(bytes_[static_cast<std::size_t>(row)]);
  }

 private:
  virtual void pack_forward() = 0;
  virtual void pack_backward() = 0;
  /// Room for so many rows, with what is kept for backward() or without.
  virtual void reserve(std::int64_t rows, bool keep) = 0;
  /// image(row) through the convolutions, by any number of threads at once.
  virtual void convolve(std::int64_t row, bool keep, int thread) noexcept = 0;
  /// What they made of rows [0, rows) through the linear layer.
  virtual void linear_forward(std::int64_t rows, float* features, std::int64_t stride) = 0;
  /// Back through that, to its places in `gradient`.
  virtual void linear_backward(std::int64_t rows, const float* delta,
                               std::span<float> gradient) = 0;
  /// Adds the share of rows [first, last) to the gradient of their shard; as convolve().
  virtual void back(std::int64_t first, std::int64_t last, int thread,
                    float* gradient) noexcept = 0;
  /// Such a gradient to its places.
  virtual void unpack_gradient(const float* sum, std::span<float> gradient) const noexcept = 0;

  void run_all(std::int64_t rows, bool keep, float* features, std::int64_t stride);
  /// What the mean that is taken from pixels makes of the gradient by the first layer's weights.
  void center_gradient(std::span<float> gradient) const;
  /// Adds the shards up, to the first.
  void add_shards(std::int64_t shards);

  const ImageTower tower_;
  const Parameters& parameters_;
  const MlpKernels& kernels_;
  ThreadTeam& team_;
  const std::int64_t gradient_size_;
  bool forward_packed_ = false, backward_packed_ = false;
  std::vector<const std::byte*> bytes_;  // the images of the last rows
  AlignedFloats shard_gradients_;        // [shards][gradient_size_]
  std::vector<float> first_bias_;        // where pixel_mean is not 0
};

}  // namespace shoal::learn
