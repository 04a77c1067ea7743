// Q-networks of images against the tape, as the actor and the critic that they amount to: with dueling streams
// Q = V + A - mean A, without them the actor is all of it.
#include "shoal/learn/network/q_network.h"

#include <gtest/gtest.h>

#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "shoal/learn/testing/gradient_difference.h"
#include "shoal/learn/testing/network_oracle.h"
#include "shoal/learn/testing/random_floats.h"

namespace shoal::learn {
namespace {

using shm::DType;

constexpr std::size_t kActions = 3;
constexpr std::int64_t kRows = 5;
constexpr std::int64_t kNumbers = 4;

struct QCase {
  std::string name;
  std::vector<int> hidden;
  bool dueling = false;
  bool numbers = false;  // beside the image
};

void PrintTo(const QCase& c, std::ostream* out) { *out << c.name; }

env::Space space_of(const QCase& c) {
  env::Dict dict;
  dict.spaces.emplace_back("camera", env::Space{env::Box{{DType::kU8, {2, 36, 40}}, {0}, {255}}});
  if (c.numbers)
    dict.spaces.emplace_back("speed", env::Space{env::Box{{DType::kF32, {kNumbers}}, {-1}, {1}}});
  return dict;
}

class QNetworkOfImages : public testing::TestWithParam<QCase> {
 protected:
  QNetworkOfImages() {
    config_.policy_hidden = GetParam().hidden;
    config_.activation = Activation::kTanh;
    layers_ = QLayers::create(collect::ObservationEncoder(space_of(GetParam())), kActions,
                              GetParam().dueling, config_, parameters_);
    layers_.initialize(parameters_, config_, Philox(4));
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0F, 0.02F);  // parameters that hide no mistake
    for (std::size_t k = 0; k < parameters_.list().size(); ++k)
      for (auto& x : parameters_.values(k)) x += normal(random);
    if (GetParam().numbers) {
      numbers_ = random_floats(kRows * kNumbers, 2);
      views_.push_back(
          {reinterpret_cast<std::byte*>(numbers_.data()), kRows, {DType::kF32, {kNumbers}}});
    }
    const shm::TensorSpec image{DType::kU8, {2, 36, 40}};
    bytes_.resize(static_cast<std::size_t>(kRows) * image.bytes());
    for (auto& x : bytes_) x = static_cast<std::uint8_t>(random());
    views_.push_back({reinterpret_cast<std::byte*>(bytes_.data()), kRows, image});
    network_ = make_q_network(layers_, parameters_);
    as_actor_critic_.features = layers_.features;
    as_actor_critic_.head = kActions;
    as_actor_critic_.activation = layers_.activation;
    if (layers_.dueling()) {
      as_actor_critic_.trunk = layers_.trunk;
      as_actor_critic_.actor = layers_.advantage;
      as_actor_critic_.critic = layers_.value;
    } else {
      as_actor_critic_.actor = layers_.trunk;
    }
    order_.resize(kRows);
    std::iota(order_.begin(), order_.end(), 0);
  }

  std::vector<float> expected() {
    const auto [head, value] = NetworkOracle(as_actor_critic_, parameters_).forward(views_, order_);
    std::vector<float> q = head;
    for (std::size_t r = 0; r < kRows && layers_.dueling(); ++r) {
      const auto row = std::span(q).subspan(r * kActions, kActions);
      const float mean = std::accumulate(row.begin(), row.end(), 0.0F) / kActions;
      for (float& x : row) x += value[r] - mean;
    }
    return q;
  }

  std::vector<float> expected_gradient(std::vector<float> d_q) {
    std::vector<float> d_value(kRows);
    for (std::size_t r = 0; r < kRows && layers_.dueling(); ++r) {
      const auto row = std::span(d_q).subspan(r * kActions, kActions);
      d_value[r] = std::accumulate(row.begin(), row.end(), 0.0F);
      for (float& x : row) x -= d_value[r] / kActions;
    }
    return NetworkOracle(as_actor_critic_, parameters_).gradient(views_, order_, d_q, d_value);
  }

  std::vector<float> q(bool train = false) {
    std::vector<float> values(kRows * kActions);
    train ? network_->forward_train(views_, values) : network_->forward(views_, values);
    return values;
  }

  LearnerConfig config_;
  Parameters parameters_;
  QLayers layers_;
  std::vector<float> numbers_;
  std::vector<std::uint8_t> bytes_;
  std::vector<shm::TensorView> views_;
  std::unique_ptr<QNetwork> network_;
  Network as_actor_critic_;
  std::vector<std::int32_t> order_;
};

TEST_P(QNetworkOfImages, ValuesAndGradientsEqualThoseOfTheTape) {
  const auto theirs = expected();
  const auto ours = q(true);
  for (std::size_t k = 0; k < theirs.size(); ++k) EXPECT_NEAR(ours[k], theirs[k], 1e-5) << k;
  EXPECT_EQ(q(), ours);
  const auto d_q = random_floats(kRows * kActions, 3);
  std::vector<float> gradient(parameters_.flat().size(), NAN);
  q(true);
  network_->backward(d_q, gradient);
  expect_same_gradient(parameters_, gradient, expected_gradient(d_q));
}

TEST_P(QNetworkOfImages, ChangedParametersAreSeen) {
  const auto before = q(true);
  for (std::size_t k = 0; k < parameters_.list().size(); ++k)
    for (auto& x : parameters_.values(k)) x *= 1.25F;
  network_->parameters_changed();
  EXPECT_NE(q(true), before);
  const auto fresh = make_q_network(layers_, parameters_);
  std::vector<float> values(kRows * kActions);
  fresh->forward(views_, values);
  EXPECT_EQ(q(), values);
}

INSTANTIATE_TEST_SUITE_P(Layers, QNetworkOfImages,
                         testing::Values(QCase{"linear", {}}, QCase{"hidden", {9, 7}, false, true},
                                         QCase{"dueling", {}, true},
                                         QCase{"dueling_hidden", {9, 7}, true, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shoal::learn
