// All parameters of a policy in one flat buffer, with the name and place of each.
//
// One buffer makes the optimiser, the gradient norm and a checkpoint one loop each. Every parameter
// begins on a cache line; the gaps hold zeros, for ever: their gradients are zero.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/learn/kernels/bfloat16.h"

namespace shoal::learn {

/// Numbers of four bytes on cache lines of their own; zero at first.
template <class Number>
class Aligned {
 public:
  explicit Aligned(std::size_t size = 0);

  std::size_t size() const noexcept { return size_; }
  Number* data() noexcept { return data_.get(); }
  const Number* data() const noexcept { return data_.get(); }
  std::span<Number> span() noexcept { return {data_.get(), size_}; }
  std::span<const Number> span() const noexcept { return {data_.get(), size_}; }

  /// Room for `size` numbers. Where it grows, what it held is lost.
  Number* room(std::int64_t size);

 private:
  struct Free {
    void operator()(Number* p) const noexcept;
  };
  std::unique_ptr<Number[], Free> data_;
  std::size_t size_;
};

using AlignedFloats = Aligned<float>;
using AlignedPairs = Aligned<Bfloat16Pair>;

struct Parameter {
  std::string name;  // as in the state_dict of the equivalent torch.nn.Module
  std::vector<std::int64_t> shape;
  std::size_t offset = 0;  // in floats
  std::size_t numel() const noexcept;
};

class Parameters {
 public:
  /// Adds one, before build(). Returns its index.
  std::size_t add(std::string name, std::vector<std::int64_t> shape);
  /// Allocates the buffer.
  void build();

  const std::vector<Parameter>& list() const noexcept { return list_; }
  const Parameter& operator[](std::size_t index) const noexcept { return list_[index]; }
  /// The index of `name`, or -1.
  std::ptrdiff_t find(std::string_view name) const noexcept;

  /// All of them, gaps included.
  std::span<float> flat() noexcept { return values_.span(); }
  std::span<const float> flat() const noexcept { return values_.span(); }
  std::span<float> values(std::size_t index) noexcept;
  std::span<const float> values(std::size_t index) const noexcept;

 private:
  std::vector<Parameter> list_;
  std::size_t size_ = 0;
  AlignedFloats values_;
};

}  // namespace shoal::learn
