// Mean and variance of a stream of vectors, element by element, merged batch by batch (Chan et al.,
// 1979).
//
// Threads: one at a time. The same rows in the same order give the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shoal::collect {

class RunningMoments {
 public:
  /// Mean 0 and variance 1 with a weight of 1e-4 samples until there are real ones (as in Gymnasium
  /// and SB3).
  explicit RunningMoments(std::size_t size);
  /// Of no samples at all: update() or merge() before asking.
  static RunningMoments of_nothing(std::size_t size);

  std::size_t size() const noexcept { return mean_.size(); }

  /// Merges rows of size() elements each. `rows.size()` is a multiple of size(); an empty span
  /// changes nothing.
  void update(std::span<const float> rows);
  void update(std::span<const double> rows);

  /// Merges moments that others gathered: `count` samples with these means and (population)
  /// variances.
  void merge(std::span<const double> mean, std::span<const double> var, double count);

  std::span<const double> mean() const noexcept { return mean_; }
  std::span<const double> var() const noexcept { return var_; }  // population variance
  double count() const noexcept { return count_; }

  /// Puts back what mean(), var() and count() gave. Throws InvalidArgument when the sizes are not
  /// size().
  void restore(std::span<const double> mean, std::span<const double> var, double count);

 private:
  template <class T>
  void update_rows(std::span<const T> rows);

  std::vector<double> mean_;
  std::vector<double> var_;
  double count_;
  std::vector<double> batch_mean_;
  std::vector<double> batch_var_;
};

}  // namespace shoal::collect
