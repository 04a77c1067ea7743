// A tower of convolutions in bfloat16: images, weights, what layers say and the derivatives by it are
// rounded before they are multiplied; sums, biases, the parameters and their gradient are float32.
//
// A byte is a bfloat16 as it is, and the scale to [0, 1] is the first layer's.
// A shard's gradient is summed by two rows at a time, in their order; a last one without another counts
// with one of zeros.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/learn/network/bfloat16_linear.h"
#include "shoal/learn/network/convolution.h"
#include "shoal/learn/network/convolution_tower.h"

namespace shoal::learn {

class Bfloat16Tower final : public ConvolutionTower {
 public:
  Bfloat16Tower(const ImageTower& tower, const Parameters& parameters, const MlpKernels& kernels,
                ThreadTeam& team);

 private:
  // What a thread works with. All numbers of an image: of the largest layer.
  struct Room {
    AlignedPairs image;                  // the first layer's input
    AlignedFloats sums;                  // of an image: what a layer says, or a derivative by it
    AlignedFloats flat;                  // the same of the last layer, in torch's order
    std::vector<AlignedPairs> output;    // of each layer, where nothing is kept
    std::vector<AlignedPairs> bordered;  // of each layer
    AlignedPairs delta, earlier_delta;   // of two images: of a layer, and of the one before
    AlignedPairs in, paired_delta;       // pairs of both
  };

  Bfloat16Tower(std::vector<Bfloat16Convolution> convolutions, const ImageTower& tower,
                const Parameters& parameters, const MlpKernels& kernels, ThreadTeam& team);

  void pack_forward() override;
  void pack_backward() override;
  void reserve(std::int64_t rows, bool keep) override;
  void convolve(std::int64_t row, bool keep, int thread) noexcept override;
  void linear_forward(std::int64_t rows, float* features, std::int64_t stride) override;
  void linear_backward(std::int64_t rows, const float* delta, std::span<float> gradient) override;
  void back(std::int64_t first, std::int64_t last, int thread, float* gradient) noexcept override;
  void unpack_gradient(const float* sum, std::span<float> gradient) const noexcept override;

  /// Of one row or two.
  void back_rows(std::int64_t row, std::int64_t count, Room& room, float* gradient) noexcept;
  Bfloat16Pair* kept(std::size_t layer, std::int64_t row) noexcept {
    return kept_[layer].data() + row * convolutions_[layer].out().size() / 2;
  }

  const std::int64_t channels_;  // of an image; the first layer's may be padded
  std::vector<Bfloat16Convolution> convolutions_;
  Bfloat16Linear linear_;
  std::vector<Room> rooms_;         // of each thread
  AlignedPairs flat_;               // [rows][what the linear layer takes / 2], in torch's order
  std::vector<AlignedPairs> kept_;  // of each layer: [rows][its output / 2]
  AlignedFloats d_flat_;            // [rows][what the linear layer takes]
};

}  // namespace shoal::learn
