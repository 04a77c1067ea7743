// A tower of convolutions in float32. The first layer's images are scaled to [0, 1].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/learn/network/convolution.h"
#include "shoal/learn/network/convolution_tower.h"
#include "shoal/learn/network/wide_linear.h"

namespace shoal::learn {

class FloatTower final : public ConvolutionTower {
 public:
  FloatTower(const ImageTower& tower, const Parameters& parameters, const MlpKernels& kernels,
             ThreadTeam& team);

 private:
  // What a thread works with.
  struct Room {
    AlignedFloats image;                  // the input in floats
    std::vector<AlignedFloats> output;    // of each layer; of the last one always, else where
                                          // nothing is kept
    std::vector<AlignedFloats> delta;     // of each layer
    std::vector<AlignedFloats> bordered;  // of each layer
  };

  FloatTower(std::vector<Convolution> convolutions, const ImageTower& tower,
             const Parameters& parameters, const MlpKernels& kernels, ThreadTeam& team);

  void pack_forward() override;
  void pack_backward() override;
  void reserve(std::int64_t rows, bool keep) override;
  void convolve(std::int64_t row, bool keep, int thread) noexcept override;
  void linear_forward(std::int64_t rows, float* features, std::int64_t stride) override;
  void linear_backward(std::int64_t rows, const float* delta, std::span<float> gradient) override;
  void back(std::int64_t first, std::int64_t last, int thread, float* gradient) noexcept override;
  void unpack_gradient(const float* sum, std::span<float> gradient) const noexcept override;

  void back_row(std::int64_t row, Room& room, float* gradient) noexcept;
  float* kept(std::size_t layer, std::int64_t row) noexcept {
    return kept_[layer].data() + row * convolutions_[layer].out().size();
  }

  std::vector<Convolution> convolutions_;
  WideLinear linear_;
  std::vector<Room> rooms_;          // of each thread
  AlignedFloats flat_;               // [rows][what the linear layer takes], in torch's order
  std::vector<AlignedFloats> kept_;  // of each layer but the last: [rows][its output]
  AlignedFloats d_flat_;             // as flat_
};

}  // namespace shoal::learn
