#include "shoal/collect/observation_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <variant>

#include "shoal/collect/element_cast.h"
#include "shoal/os/error.h"

namespace shoal::collect {
namespace {

constexpr std::int64_t kMinImageSide = 36;
constexpr std::int64_t kMaxChannels = 32;
constexpr std::int64_t kMaxFrames = 32;
constexpr std::int64_t kMaxDense = std::int64_t{1} << 31;
constexpr double kVarianceFloor = 1e-8;  // added to the variance, as SB3 and Gymnasium do

enum class ImageOrder : std::uint8_t { kNone, kFirst, kLast };

// Of the last three dimensions: channels first when the first of them is the smallest (a stack of
// frames), else last.
ImageOrder image_order(const env::Box& box) {
  std::span<const std::int64_t> shape = box.spec.shape;
  if (box.spec.dtype != shm::DType::kU8) return ImageOrder::kNone;
  if (shape.size() == 4 && shape[0] <= kMaxFrames) shape = shape.subspan(1);
  if (shape.size() != 3) return ImageOrder::kNone;
  const bool first =
      shape[0] <= kMaxChannels && shape[1] >= kMinImageSide && shape[2] >= kMinImageSide;
  const bool last =
      shape[2] <= kMaxChannels && shape[0] >= kMinImageSide && shape[1] >= kMinImageSide;
  if (first) return ImageOrder::kFirst;
  return last ? ImageOrder::kLast : ImageOrder::kNone;
}

template <class T>
void copy_numbers(const T* in, std::int64_t n, float scale, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]) * scale;
}

template <class T>
void one_hot(const T* in, std::span<const std::int64_t> n, std::span<const std::int64_t> start,
             float* out) {
  for (std::size_t k = 0; k < n.size(); ++k) {
    std::fill(out, out + n[k], 0.0F);
    const std::int64_t index = static_cast<std::int64_t>(in[k]) - start[k];
    if (index < 0 || index >= n[k]) {
      throw InvalidArgument(fmt::format("an observation is {} where its space allows {} to {}",
                                        static_cast<std::int64_t>(in[k]), start[k],
                                        start[k] + n[k] - 1));
    }
    out[index] = 1.0F;
    out += n[k];
  }
}

std::int64_t frames_of(std::span<const std::int64_t> shape) {
  return shape.size() == 4 ? shape[0] : 1;
}

// What an image of that order is stored as. The channels of stacked frames follow each other.
std::vector<std::int64_t> stored_shape(std::span<const std::int64_t> shape, ImageOrder order) {
  const std::int64_t frames = frames_of(shape);
  const auto s = shape.last(3);
  if (order == ImageOrder::kFirst) return {frames * s[0], s[1], s[2]};
  return {frames * s[2], s[0], s[1]};
}

// [height, width, channels] to [channels, height, width], `frames` times.
void channels_first(const std::byte* in, const shm::TensorSpec& out_spec, std::int64_t frames,
                    std::byte* out) {
  const std::int64_t channels = out_spec.shape[0] / frames;
  const std::int64_t pixels = out_spec.shape[1] * out_spec.shape[2];
  for (std::int64_t f = 0; f < frames; ++f, in += channels * pixels, out += channels * pixels) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t p = 0; p < pixels; ++p) out[c * pixels + p] = in[p * channels + c];
    }
  }
}

}  // namespace

ObservationEncoder::ObservationEncoder(const env::Space& space, ObservationEncoderOptions options)
    : options_(options) {
  if (const env::Opaque* opaque = env::first_opaque(space)) {
    throw InvalidArgument(fmt::format(
        "learn from the observation space {}: samples of {} are no arrays of fixed size; wrap the "
        "environment with gymnasium.wrappers.TransformObservation",
        space.repr(), opaque->text));
  }
  for (const auto& leaf : env::leaves(space)) add_leaf(leaf);
  if (dense_ > 0) {
    specs_.insert(specs_.begin(), shm::TensorSpec{shm::DType::kF32, {dense_}});
    for (auto& plan : plans_) {
      if (plan.image >= 0) ++plan.image;
    }
  }
  if (specs_.empty())
    throw InvalidArgument("learn from the observation space " + space.repr() +
                          ": it has no arrays");
  moments_ = RunningMoments(normalized_.size());
}

void ObservationEncoder::add_leaf(const env::Leaf& leaf) {
  Plan plan;
  plan.offset = dense_;
  const std::int64_t numel = leaf.spec.numel();
  if (const auto* box = leaf.space.get_if<env::Box>()) {
    const ImageOrder order = image_order(*box);
    if (order != ImageOrder::kNone) {
      plan.form = order == ImageOrder::kFirst ? Form::kImageFirst : Form::kImageLast;
      plan.image = static_cast<std::int64_t>(specs_.size());
      specs_.push_back({shm::DType::kU8, stored_shape(box->spec.shape, order)});
      image_paths_.push_back(leaf.path);
    } else {
      plan.form = box->spec.dtype == shm::DType::kU8 ? Form::kBytes : Form::kNumbers;
      widen(numel);
      if (plan.form == Form::kNumbers && options_.normalize) {
        plan.moments = static_cast<std::int64_t>(normalized_.size());
        for (std::int64_t i = 0; i < numel; ++i) normalized_.push_back(plan.offset + i);
      }
    }
  } else if (const auto* discrete = leaf.space.get_if<env::Discrete>()) {
    plan.form = Form::kOneHot;
    plan.n = {discrete->n};
    plan.start = {discrete->start};
    widen(discrete->n);
  } else if (const auto* multi = leaf.space.get_if<env::MultiDiscrete>()) {
    plan.form = Form::kOneHot;
    plan.n = multi->nvec;
    plan.start = multi->start;
    plan.start.resize(plan.n.size(), 0);
    for (const auto n : plan.n) widen(n);
  } else {
    plan.form = Form::kNumbers;  // MultiBinary
    widen(numel);
  }
  plans_.push_back(std::move(plan));
}

void ObservationEncoder::widen(std::int64_t elements) {
  if (elements > kMaxDense - dense_)
    throw InvalidArgument(fmt::format(
        "learn from an observation space: as numbers its samples have more than {} elements, since "
        "each choice of a Discrete is one",
        kMaxDense));
  dense_ += elements;
}

void ObservationEncoder::encode(std::span<const shm::TensorView> raw,
                                std::span<const shm::TensorView> encoded, bool learn) {
  SHOAL_CHECK(raw.size() == plans_.size() && encoded.size() == specs_.size(), "one view per leaf");
  const std::int64_t rows = raw.front().rows;
  for (std::size_t leaf = 0; leaf < plans_.size(); ++leaf) {
    encode_leaf(plans_[leaf], raw[leaf], 0, rows, encoded, 0);
  }
  if (learn) {
    learn_from(encoded, rows);
  } else {
    normalize(encoded, 0, rows);
  }
}

void ObservationEncoder::encode_row(std::span<const shm::TensorView> raw, std::int64_t from,
                                    std::span<const shm::TensorView> encoded, std::int64_t to) {
  SHOAL_CHECK(raw.size() == plans_.size() && encoded.size() == specs_.size(), "one view per leaf");
  for (std::size_t leaf = 0; leaf < plans_.size(); ++leaf) {
    encode_leaf(plans_[leaf], raw[leaf], from, 1, encoded, to);
  }
  if (shards_) {
    const std::int64_t rows = raw.front().rows / shards_->shards();
    return normalize(encoded, to, 1, shards_->of(static_cast<int>(from / rows)));
  }
  normalize(encoded, to, 1);
}

void ObservationEncoder::encode_leaf(const Plan& plan, const shm::TensorView& raw,
                                     std::int64_t from, std::int64_t rows,
                                     std::span<const shm::TensorView> encoded,
                                     std::int64_t to) const {
  const std::int64_t numel = raw.row.numel();
  if (plan.form == Form::kImageFirst || plan.form == Form::kImageLast) {
    const auto& image = encoded[static_cast<std::size_t>(plan.image)];
    const std::int64_t frames = frames_of(raw.row.shape);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::byte* in = raw.row_data(from + r);
      if (plan.form == Form::kImageFirst) {
        std::memcpy(image.row_data(to + r), in, image.row_bytes());
      } else {
        channels_first(in, image.row, frames, image.row_data(to + r));
      }
    }
    return;
  }
  float* out = reinterpret_cast<float*>(encoded[0].data) + to * dense_ + plan.offset;
  visit_elements(
      raw.row.dtype, static_cast<const std::byte*>(raw.row_data(from)), [&](const auto* in) {
        for (std::int64_t r = 0; r < rows; ++r, in += numel, out += dense_) {
          if (plan.form == Form::kOneHot) {
            one_hot(in, plan.n, plan.start, out);
          } else {
            copy_numbers(in, numel, plan.form == Form::kBytes ? 1.0F / 255.0F : 1.0F, out);
          }
        }
      });
}

void ObservationEncoder::learn_from(std::span<const shm::TensorView> encoded, std::int64_t rows) {
  if (normalized_.empty()) return;
  if (!shards_) {
    gather(encoded, 0, rows);
    moments_.update(std::span<const float>(gathered_));
    return normalize(encoded, 0, rows);
  }
  const std::int64_t each = rows / shards_->shards();
  for (int shard = 0; shard < shards_->shards(); ++shard) {
    gather(encoded, shard * each, each);
    normalize(encoded, shard * each, each,
              shards_->update(shard, std::span<const float>(gathered_), moments_));
  }
}

void ObservationEncoder::gather(std::span<const shm::TensorView> encoded, std::int64_t from,
                                std::int64_t rows) {
  const float* dense = reinterpret_cast<const float*>(encoded[0].data) + from * dense_;
  gathered_.resize(static_cast<std::size_t>(rows) * normalized_.size());
  auto out = gathered_.begin();
  for (std::int64_t r = 0; r < rows; ++r, dense += dense_) {
    bool finite = true;
    for (const auto element : normalized_) {
      finite &= std::isfinite(dense[element]);
      *out++ = dense[element];
    }
    if (!finite) out -= static_cast<std::ptrdiff_t>(normalized_.size());
  }
  gathered_.erase(out, gathered_.end());
}

void ObservationEncoder::normalize(std::span<const shm::TensorView> encoded, std::int64_t from,
                                   std::int64_t rows) {
  normalize(encoded, from, rows, moments_);
}

void ObservationEncoder::normalize(std::span<const shm::TensorView> encoded, std::int64_t from,
                                   std::int64_t rows, const RunningMoments& moments) {
  if (normalized_.empty()) return;
  float* dense = reinterpret_cast<float*>(encoded[0].data) + from * dense_;
  const auto mean = moments.mean();
  const auto var = moments.var();
  for (std::int64_t r = 0; r < rows; ++r, dense += dense_) {
    for (std::size_t k = 0; k < normalized_.size(); ++k) {
      float& x = dense[normalized_[k]];
      const double z = (static_cast<double>(x) - mean[k]) / std::sqrt(var[k] + kVarianceFloor);
      if (std::isfinite(x)) x = static_cast<float>(std::clamp(z, -options_.clip, options_.clip));
    }
  }
}

}  // namespace shoal::collect
