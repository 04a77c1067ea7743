// From the arrays of an observation space to what networks take: one dense float vector, and
// images.
//
// The dense vector is the concatenation, in leaf order, of every leaf that is not an image: a Box
// flattened (and, when asked, normalised by running moments and clipped; unsigned bytes scaled to
// [0, 1] instead), a Discrete or MultiDiscrete as one-hot vectors, a MultiBinary as zeros and ones.
// An image is a Box of unsigned bytes of rank 3 (height, width, channels or channels, height,
// width) whose sides are at least 36, the least that the Nature CNN takes, or, of rank 4, a stack of
// at most 32 of these; it is stored as bytes, channels first, those of one frame after the other's.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/collect/running_moments.h"
#include "shoal/collect/shard_moments.h"
#include "shoal/env/space.h"
#include "shoal/shm/tensor.h"

namespace shoal::collect {

struct ObservationEncoderOptions {
  bool normalize = false;
  double clip = 10.0;
};

class ObservationEncoder {
 public:
  explicit ObservationEncoder(const env::Space& space, ObservationEncoderOptions options = {});

  /// Leaves of an encoded observation: the dense vector first, where there is one, then the images.
  const std::vector<shm::TensorSpec>& specs() const noexcept { return specs_; }
  bool has_dense() const noexcept { return dense_ > 0; }
  /// Elements of the dense vector.
  std::int64_t dense() const noexcept { return dense_; }
  /// Paths of the image leaves in the space, in the order of specs().
  const std::vector<std::string>& image_paths() const noexcept { return image_paths_; }

  /// From now on the rows that it learns from are of so many shards of equal size, in their order,
  /// each of which is normalised by its own moments; moments() are what all agreed on.
  void split(int shards) { shards_.emplace(normalized_.size(), shards, moments_); }
  /// None before split().
  ShardMoments* shards() noexcept { return shards_ ? &*shards_ : nullptr; }

  /// Encodes all rows of `raw` (one view per leaf of the space) into `encoded` (one view per spec,
  /// same rows). `learn`: the running moments take these rows in first, but for those that are not
  /// finite. What is not finite stays as it is.
  void encode(std::span<const shm::TensorView> raw, std::span<const shm::TensorView> encoded,
              bool learn);
  /// The same for one row, without learning: row `from` of `raw` into row `to` of `encoded`. After
  /// split() it goes by the moments of that row's shard.
  void encode_row(std::span<const shm::TensorView> raw, std::int64_t from,
                  std::span<const shm::TensorView> encoded, std::int64_t to);

  /// Normalises, by the moments so far, what an encoder that does not has encoded.
  void normalize(std::span<const shm::TensorView> encoded) {
    normalize(encoded, 0, encoded.front().rows);
  }

  /// Of the normalised elements; size 0 when nothing is normalised.
  RunningMoments& moments() noexcept { return moments_; }
  const RunningMoments& moments() const noexcept { return moments_; }

 private:
  enum class Form : std::uint8_t { kNumbers, kBytes, kOneHot, kImageFirst, kImageLast };
  struct Plan {
    Form form;
    std::int64_t offset = 0;      // in the dense vector
    std::int64_t image = -1;      // index into specs_
    std::vector<std::int64_t> n;  // one-hot sizes
    std::vector<std::int64_t> start;
    std::int64_t moments = -1;  // offset in the running moments
  };

  void add_leaf(const env::Leaf& leaf);
  void widen(std::int64_t elements);
  void encode_leaf(const Plan& plan, const shm::TensorView& raw, std::int64_t from,
                   std::int64_t rows, std::span<const shm::TensorView> encoded,
                   std::int64_t to) const;
  void learn_from(std::span<const shm::TensorView> encoded, std::int64_t rows);
  void gather(std::span<const shm::TensorView> encoded, std::int64_t from, std::int64_t rows);
  void normalize(std::span<const shm::TensorView> encoded, std::int64_t from, std::int64_t rows);
  void normalize(std::span<const shm::TensorView> encoded, std::int64_t from, std::int64_t rows,
                 const RunningMoments& moments);

  ObservationEncoderOptions options_;
  std::vector<Plan> plans_;
  std::vector<shm::TensorSpec> specs_;
  std::vector<std::string> image_paths_;
  std::int64_t dense_ = 0;
  std::vector<std::int64_t> normalized_;  // elements of the dense vector, in the order of moments_
  RunningMoments moments_{0};
  std::optional<ShardMoments> shards_;
  std::vector<float> gathered_;
};

}  // namespace shoal::collect
