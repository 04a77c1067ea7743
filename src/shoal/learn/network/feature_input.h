// What a network's layers take of encoded observations: the dense vector, then the features of each
// image.
//
// Threads: one at a time. Allocates only when there are more rows than ever before.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shoal/learn/kernels/mlp_kernels.h"
#include "shoal/learn/network/convolution_tower.h"
#include "shoal/learn/network/mlp_chain.h"
#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/network/thread_team.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

class FeatureInput {
 public:
  /// Borrows all. With images it computes with `threads` threads, the caller's among them.
  FeatureInput(const Features& features, const Parameters& parameters, const MlpKernels& kernels,
               int threads);

  bool has_images() const noexcept { return !towers_.empty(); }
  /// Null without images.
  ThreadTeam* team() noexcept { return team_.get(); }

  /// Of rows [from, from + rows); valid until the next call of anything.
  FloatRows forward(std::span<const shm::TensorView> obs, std::int64_t from, std::int64_t rows);

  /// Of the rows that `rows` lists, padded(features) floats each, and what backward() needs. `obs`
  /// must stay as they are until then.
  FloatRows forward_train(std::span<const shm::TensorView> obs, std::span<const std::int32_t> rows);

  /// The rows of forward_train() once more.
  FloatRows kept() const noexcept;

  /// From the loss's derivative by kept() ([rows][padded features]) to that by the images'
  /// parameters, whose places in `gradient` it writes. Of images alone.
  void backward(const float* d_input, std::span<float> gradient);

  void parameters_changed();

 private:
  void reserve(std::int64_t rows);

  const std::int64_t dense_;
  const MlpKernels& kernels_;
  const std::int64_t width_;          // padded
  std::unique_ptr<ThreadTeam> team_;  // with images only
  std::vector<std::unique_ptr<ConvolutionTower>> towers_;
  std::int64_t rows_ = 0;  // of the last forward_train()
  std::int64_t capacity_ = 0;
  AlignedFloats input_;       // [rows][width_]
  AlignedFloats d_features_;  // [rows][features of one tower]
};

}  // namespace shoal::learn
