// Observation and action spaces: Gymnasium's fundamental spaces, as values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "shoal/shm/tensor.h"

namespace shoal::env {

class Space;

/// Real-valued or integer array within bounds. `low` and `high` hold one value for all elements, or
/// one per element.
struct Box {
  Box() = default;
  Box(shm::TensorSpec spec, std::vector<double> low, std::vector<double> high)
      : spec(std::move(spec)), low(std::move(low)), high(std::move(high)) {}

  shm::TensorSpec spec;
  std::vector<double> low;
  std::vector<double> high;
  bool operator==(const Box&) const = default;
};

/// One integer in [start, start + n).
struct Discrete {
  std::int64_t n = 0;
  std::int64_t start = 0;
  shm::DType dtype = shm::DType::kI64;
  bool operator==(const Discrete&) const = default;
};

/// An array of integers, element i in [start[i], start[i] + nvec[i]); nvec and start are flat,
/// `shape` says the shape.
struct MultiDiscrete {
  std::vector<std::int64_t> nvec;
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> shape;
  shm::DType dtype = shm::DType::kI64;
  bool operator==(const MultiDiscrete&) const = default;
};

/// An array of zeros and ones (int8).
struct MultiBinary {
  std::vector<std::int64_t> shape;
  bool operator==(const MultiBinary&) const = default;
};

/// Named spaces, in Gymnasium's iteration order.
struct Dict {
  std::vector<std::pair<std::string, Space>> spaces;
  bool operator==(const Dict&) const = default;
};

/// Spaces by position.
struct Tuple {
  std::vector<Space> spaces;
  bool operator==(const Tuple&) const = default;
};

/// A space whose samples have no array of fixed size: its owner's, beside the rows. `type` names
/// its class and alone counts for equality; `text` is for messages.
struct Opaque {
  std::string type;
  std::string text;
  bool operator==(const Opaque& other) const { return type == other.type; }
};

/// One of the above.
class Space {
 public:
  using Kind = std::variant<Box, Discrete, MultiDiscrete, MultiBinary, Dict, Tuple, Opaque>;

  Space() : kind_(Discrete{}) {}
  template <class T>
    requires(!std::is_same_v<std::remove_cvref_t<T>, Space>)
  Space(T&& kind) : kind_(std::forward<T>(kind)) {}  // NOLINT: a Box is a Space

  const Kind& kind() const noexcept { return kind_; }
  template <class T>
  const T* get_if() const noexcept {
    return std::get_if<T>(&kind_);
  }
  bool operator==(const Space&) const = default;

  /// "Box(-4.8, 4.8, (4,), float32)", "Discrete(2)", …: Gymnasium's spelling.
  std::string repr() const;

 private:
  Kind kind_;
};

/// A float32 Box of one dimension, one bound an element, rounded to float32. Throws InvalidArgument
/// for different sizes.
Box float_box(const std::vector<double>& low, const std::vector<double>& high);

/// One array of a space: a Dict or Tuple has several, an Opaque none, every other space one.
struct Leaf {
  std::string path;      // "" for the space itself, "camera", "joints/left", "0/1"
  Space space;           // never a Dict, Tuple or Opaque
  shm::TensorSpec spec;  // dtype and shape of one sample
  bool operator==(const Leaf&) const = default;
};

/// The arrays of `space`, depth first, Dicts in their iteration order.
std::vector<Leaf> leaves(const Space& space);

/// Throws InvalidArgument where `space` has no samples that arrays can hold, naming the leaf: a shape that no array has, as
/// many values of an attribute as there are no elements, ranges without an integer, a key that a Dict has twice,
/// integers that the element type does not have.
void check(const Space& space);

/// check() of a space that is written in C++, whose Boxes have their bounds in order, too. `which` space of an
/// environment it is, "observation" or "action", stands in the message.
void check_native(const char* which, const Space& space);

/// The first Opaque of `space`; nullptr when all of its samples is arrays.
const Opaque* first_opaque(const Space& space);

}  // namespace shoal::env
