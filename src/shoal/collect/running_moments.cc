#include "shoal/collect/running_moments.h"

#include <fmt/format.h>

#include <algorithm>

#include "shoal/os/error.h"

namespace shoal::collect {
namespace {
constexpr double kInitialCount = 1e-4;
}  // namespace

RunningMoments::RunningMoments(std::size_t size)
    : mean_(size, 0.0),
      var_(size, 1.0),
      count_(kInitialCount),
      batch_mean_(size),
      batch_var_(size) {}

RunningMoments RunningMoments::of_nothing(std::size_t size) {
  RunningMoments moments(size);
  std::fill(moments.var_.begin(), moments.var_.end(), 0.0);
  moments.count_ = 0;
  return moments;
}

template <class T>
void RunningMoments::update_rows(std::span<const T> rows) {
  const std::size_t n = size();
  if (n == 0 || rows.empty()) return;
  SHOAL_CHECK(rows.size() % n == 0, "RunningMoments::update takes whole rows");
  const std::size_t count = rows.size() / n;
  std::fill(batch_mean_.begin(), batch_mean_.end(), 0.0);
  std::fill(batch_var_.begin(), batch_var_.end(), 0.0);
  for (std::size_t r = 0; r < count; ++r) {
    for (std::size_t i = 0; i < n; ++i) batch_mean_[i] += static_cast<double>(rows[r * n + i]);
  }
  for (auto& m : batch_mean_) m /= static_cast<double>(count);
  for (std::size_t r = 0; r < count; ++r) {
    for (std::size_t i = 0; i < n; ++i) {
      const double d = static_cast<double>(rows[r * n + i]) - batch_mean_[i];
      batch_var_[i] += d * d;
    }
  }
  for (auto& v : batch_var_) v /= static_cast<double>(count);
  merge(batch_mean_, batch_var_, static_cast<double>(count));
}

void RunningMoments::update(std::span<const float> rows) { update_rows(rows); }
void RunningMoments::update(std::span<const double> rows) { update_rows(rows); }

void RunningMoments::merge(std::span<const double> mean, std::span<const double> var,
                           double count) {
  SHOAL_CHECK(mean.size() == size() && var.size() == size(),
              "RunningMoments::merge takes moments of its own size");
  const double total = count_ + count;
  for (std::size_t i = 0; i < size(); ++i) {
    const double delta = mean[i] - mean_[i];
    const double m2 = var_[i] * count_ + var[i] * count + delta * delta * count_ * count / total;
    mean_[i] += delta * count / total;
    var_[i] = m2 / total;
  }
  count_ = total;
}

void RunningMoments::restore(std::span<const double> mean, std::span<const double> var,
                             double count) {
  if (mean.size() != size() || var.size() != size() || !(count > 0)) {
    throw InvalidArgument(fmt::format(
        "restore the running moments of {} elements: got {} means, {} variances and a count of {}; "
        "they belong to other observations",
        size(), mean.size(), var.size(), count));
  }
  std::copy(mean.begin(), mean.end(), mean_.begin());
  std::copy(var.begin(), var.end(), var_.begin());
  count_ = count;
}

}  // namespace shoal::collect
