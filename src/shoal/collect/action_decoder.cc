#include "shoal/collect/action_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "shoal/collect/element_cast.h"
#include "shoal/os/error.h"

namespace shoal::collect {
namespace {

std::vector<double> per_element(const std::vector<double>& bound, std::int64_t n, double none) {
  if (bound.empty()) return std::vector<double>(static_cast<std::size_t>(n), none);
  if (bound.size() == 1) return std::vector<double>(static_cast<std::size_t>(n), bound[0]);
  return bound;
}

}  // namespace

ActionDecoder::ActionDecoder(const env::Space& space) {
  if (const auto* box = space.get_if<env::Box>()) {
    const std::int64_t n = box->spec.numel();
    constexpr double kInf = std::numeric_limits<double>::infinity();
    low_ = per_element(box->low, n, -kInf);
    high_ = per_element(box->high, n, kInf);
    spec_ = {shm::DType::kF32, {n}};
    return;
  }
  if (const auto* discrete = space.get_if<env::Discrete>()) {
    categories_ = {discrete->n};
    start_ = {discrete->start};
  } else if (const auto* multi = space.get_if<env::MultiDiscrete>()) {
    categories_ = multi->nvec;
    start_ = multi->start;
    start_.resize(categories_.size(), 0);
  } else if (const auto* binary = space.get_if<env::MultiBinary>()) {
    const std::int64_t n = shm::TensorSpec{shm::DType::kI8, binary->shape}.numel();
    categories_.assign(static_cast<std::size_t>(n), 2);
    start_.assign(static_cast<std::size_t>(n), 0);
  } else {
    throw InvalidArgument(
        fmt::format("learn actions of the space {}: Box, Discrete, MultiDiscrete and MultiBinary "
                    "are supported; in the place of a Dict or Tuple give the environment one "
                    "MultiDiscrete (of Discrete parts) or one Box, and take it apart in step()",
                    space.repr()));
  }
  spec_ = {shm::DType::kI32, {static_cast<std::int64_t>(categories_.size())}};
}

void ActionDecoder::decode(const shm::TensorView& policy, const shm::TensorView& to) const {
  const auto columns = static_cast<std::size_t>(spec_.shape[0]);
  SHOAL_CHECK(policy.rows == to.rows && to.row.numel() == spec_.shape[0],
              "the same rows of the same elements");
  visit_elements(to.row.dtype, to.data, [&](auto* out) {
    using T = std::remove_pointer_t<decltype(out)>;
    for (std::int64_t r = 0; r < policy.rows; ++r, out += columns) {
      if (is_continuous()) {
        const auto* in = reinterpret_cast<const float*>(policy.row_data(r));
        for (std::size_t k = 0; k < columns; ++k) {
          const auto value = static_cast<double>(in[k]);
          if constexpr (std::is_integral_v<T>)  // NaN gives the lower bound
            out[k] = static_cast<T>(std::nearbyint(std::fmin(std::fmax(value, low_[k]), high_[k])));
          else
            out[k] = static_cast<T>(std::clamp(value, low_[k], high_[k]));
        }
      } else {
        const auto* in = reinterpret_cast<const std::int32_t*>(policy.row_data(r));
        for (std::size_t k = 0; k < columns; ++k) out[k] = static_cast<T>(in[k] + start_[k]);
      }
    }
  });
}

}  // namespace shoal::collect
