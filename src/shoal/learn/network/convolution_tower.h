// One image's part of a network on own kernels: convolutions, then one wide linear layer, each with
// ReLU. Images stay the bytes that they are in memory until the first layer reads one, which scales
// it to [0, 1].
//
// Threads share the images of forward_train() and forward(), and in backward() `shards` of rows. A
// shard's gradient is summed image by image, the shards' in their order, and how many there are depends
// on the number of rows alone: bits do not depend on the number of threads. What is kept are the
// outputs of the layers, and of a patch nothing.
//
// Threads: one at a time, which brings the team.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/learn/network/convolution.h"
#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/network/thread_team.h"
#include "shoal/learn/network/wide_linear.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

class ConvolutionTower {
 public:
  /// Borrows the parameters, the kernels and the team.
  ConvolutionTower(const ImageTower& tower, const Parameters& parameters, const MlpKernels& kernels,
                   ThreadTeam& team);

  /// Floats of a row of features.
  std::int64_t features() const noexcept { return linear_.layer().out; }

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

 private:
  // What a thread works with.
  struct Room {
    AlignedFloats image;                // the input in floats
    std::vector<AlignedFloats> output;  // of each layer; of the last one always, else where
                                        // nothing is kept
    std::vector<AlignedFloats> delta;   // of each layer
  };

  void pack_forward();
  void pack_backward();
  void reserve(std::int64_t rows);
  void unpack(const std::byte* bytes, float* image) const noexcept;
  /// One image, to `flat` in torch's order; the outputs of all layers but the last to `outputs`.
  void run(const std::byte* bytes, Room& room, std::span<float* const> outputs,
           float* flat) const noexcept;
  void run_all(std::int64_t rows, bool keep, std::span<const std::byte* const> bytes);
  /// Adds the share of one row to the gradient of its shard.
  void back(std::int64_t row, Room& room, float* gradient) noexcept;
  /// Adds the shards up, and writes the sums to their places.
  void add_shards(std::int64_t shards, std::span<float> gradient);
  float* kept(std::size_t layer, std::int64_t row) noexcept;
  const float* kept(std::size_t layer, std::int64_t row) const noexcept;

  const Parameters& parameters_;
  const MlpKernels& kernels_;
  ThreadTeam& team_;
  std::vector<Convolution> convolutions_;
  WideLinear linear_;
  bool forward_packed_ = false, backward_packed_ = false;
  std::vector<Room> rooms_;              // of each thread
  std::int64_t flat_size_;               // what the linear layer takes
  std::int64_t flat_capacity_ = 0;       // rows
  AlignedFloats flat_;                   // [rows][flat_size_], in torch's order
  std::int64_t capacity_ = 0;            // rows that what is kept has room for
  std::vector<AlignedFloats> kept_;      // of each layer but the last: [rows][its output]
  AlignedFloats d_flat_;                 // [rows][flat_size_]
  std::vector<const std::byte*> bytes_;  // the images of the last forward_train()
  std::int64_t gradient_size_ = 0;       // of the convolutions, of one shard
  AlignedFloats shard_gradients_;        // [shards][gradient_size_]
};

}  // namespace shoal::learn
