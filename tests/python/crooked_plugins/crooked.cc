// Environments that are allowed to do what they do, and others that are not.
#include <cmath>
#include <stdexcept>

#include "shoal/env/register_env.h"

namespace {

using namespace shoal::env;
using shoal::shm::DType;

/// Does nothing, between the spaces that it is given.
struct Still : Env {
  explicit Still(Space observation_space, Space action_space = Discrete{2})
      : Env(std::move(observation_space), std::move(action_space)) {}
  void reset(const Row& obs) override { obs.as<float>()[0] = 0; }
  Outcome step(const Row&, const Row&) override { return {}; }
};

const Box kOne{{DType::kF32, {1}}, {0}, {1}};

/// A Dict whose keys are not in the order of the alphabet, in observations and actions.
struct Ordered : Env {
  Ordered()
      : Env(Dict{{{"zeta", Box{{DType::kF32, {2}}, {0}, {9}}},
                  {"alpha", Box{{DType::kI32, {3}}, {0}, {9}}}}},
            Dict{{{"second", Discrete{9}}, {"first", Discrete{3}}}}) {}
  void reset(const Row& obs) override { write(obs, 1, 2); }
  Outcome step(const Row& action, const Row& obs) override {
    write(obs, static_cast<float>(action.as<std::int64_t>(0)[0]),
          static_cast<std::int32_t>(action.as<std::int64_t>(1)[0]));
    return {};
  }
  static void write(const Row& obs, float zeta, std::int32_t alpha) {
    for (float& value : obs.as<float>(0)) value = zeta;
    for (std::int32_t& value : obs.as<std::int32_t>(1)) value = alpha;
  }
};

struct Throwing : Still {
  Throwing() : Still(kOne) {}
  Outcome step(const Row& action, const Row&) override {
    if (action.as<std::int64_t>()[0] == 1) throw std::runtime_error("rare");
    return {};
  }
};

struct ThrowsANumber : Still {
  ThrowsANumber() : Still(kOne) {}
  Outcome step(const Row&, const Row&) override { throw 42; }
};

struct NoSuchArray : Still {
  NoSuchArray() : Still(kOne) {}
  Outcome step(const Row&, const Row& obs) override {
    obs.as<float>(3)[0] = 0;
    return {};
  }
};

struct KeyTwice : Still {
  KeyTwice() : Still(Dict{{{"a", kOne}, {"a", kOne}}}) {}
};
struct WrongBounds : Still {
  WrongBounds() : Still(Dict{{{"camera", Box{{DType::kF32, {3}}, {0, 0}, {1}}}}}) {}
};
struct NoBounds : Still {
  NoBounds() : Still(Box{{DType::kF32, {3}}, {}, {}}) {}
};
struct NanBounds : Still {
  NanBounds() : Still(kOne, Box{{DType::kF32, {1}}, {std::nan("")}, {1}}) {}
};
struct NegativeShape : Still {
  NegativeShape() : Still(Box{{DType::kF32, {-3}}, {0}, {1}}) {}
};

struct BytesBeyond : Still {
  BytesBeyond() : Still(Box{{DType::kU8, {2}}, {-5}, {500}}) {}
};
struct FloatChoices : Still {
  FloatChoices() : Still(kOne, Discrete{3, 0, DType::kF32}) {}
};

/// Spaces that Gymnasium has, too: a Box of bool, and one of integers without bounds.
struct Odd : Still {
  Odd()
      : Still(Dict{{{"flags", Box{{DType::kBool, {2}}, {0}, {1}}},
                    {"any", Box{{DType::kI16, {1}}, {-INFINITY}, {INFINITY}}}}}) {}
  void reset(const Row&) override {}
};

/// Sells so many of an article, by the number of its shelf.
struct Shop : Still {
  Shop() : Still(kOne, MultiDiscrete{{3, 5}, {0, 0}, {2}}) {}
  Outcome step(const Row& action, const Row&) override {
    const auto sold = action.as<std::int64_t>();
    stock_[sold[0]] -= sold[1];
    return {};
  }
  std::int64_t stock_[3] = {};
};

SHOAL_REGISTER_ENV("crooked/Ordered-v0", Ordered);
SHOAL_REGISTER_ENV("crooked/BytesBeyond-v0", BytesBeyond);
SHOAL_REGISTER_ENV("crooked/FloatChoices-v0", FloatChoices);
SHOAL_REGISTER_ENV("crooked/Odd-v0", Odd);
SHOAL_REGISTER_ENV("crooked/Shop-v0", Shop);
SHOAL_REGISTER_ENV("crooked/Throwing-v0", Throwing);
SHOAL_REGISTER_ENV("crooked/ThrowsANumber-v0", ThrowsANumber);
SHOAL_REGISTER_ENV("crooked/NoSuchArray-v0", NoSuchArray);
SHOAL_REGISTER_ENV("crooked/KeyTwice-v0", KeyTwice);
SHOAL_REGISTER_ENV("crooked/WrongBounds-v0", WrongBounds);
SHOAL_REGISTER_ENV("crooked/NoBounds-v0", NoBounds);
SHOAL_REGISTER_ENV("crooked/NanBounds-v0", NanBounds);
SHOAL_REGISTER_ENV("crooked/NegativeShape-v0", NegativeShape);

}  // namespace
