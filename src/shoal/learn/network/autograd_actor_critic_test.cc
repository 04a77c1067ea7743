// The network on LibTorch, where own kernels do not reach: images beside numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "shoal/learn/network/actor_critic.h"

namespace shoal::learn {
namespace {

using shm::DType;

env::Space camera_and_speed() {
  env::Dict dict;
  dict.spaces.emplace_back("camera", env::Space{env::Box{{DType::kU8, {36, 36, 1}}, {0}, {255}}});
  dict.spaces.emplace_back("speed", env::Space{env::Box{{DType::kF32, {2}}, {-1}, {1}}});
  return dict;
}

class AutogradActorCritic : public testing::Test {
 protected:
  static constexpr std::int64_t kRows = 5;

  AutogradActorCritic()
      : network_(Network::create(collect::ObservationEncoder(camera_and_speed()),
                                 collect::ActionDecoder(env::Space{env::Discrete{.n = 3}}), config_,
                                 parameters_)) {
    network_.initialize(parameters_, config_, Philox(4));
    std::mt19937 random(1);
    speed_.resize(kRows * 2);
    for (auto& x : speed_) x = std::normal_distribution<float>()(random);
    camera_.resize(kRows * 36 * 36);
    for (auto& x : camera_) x = static_cast<std::uint8_t>(random());
    view_ = {{reinterpret_cast<std::byte*>(speed_.data()), kRows, {DType::kF32, {2}}},
             {reinterpret_cast<std::byte*>(camera_.data()), kRows, {DType::kU8, {1, 36, 36}}}};
    model_ = make_autograd_actor_critic(network_, parameters_);
  }

  // A loss whose derivatives by head and value are given: their weighted sum.
  double loss(const std::vector<float>& d_head, const std::vector<float>& d_value) {
    std::vector<float> head(kRows * 3), value(kRows);
    model_->forward(view_, head, value);
    double sum = 0;
    for (std::size_t k = 0; k < head.size(); ++k) sum += static_cast<double>(head[k]) * d_head[k];
    for (std::size_t k = 0; k < value.size(); ++k)
      sum += static_cast<double>(value[k]) * d_value[k];
    return sum;
  }

  LearnerConfig config_{
      .policy_hidden = {16}, .shared_hidden = true, .activation = Activation::kRelu};
  Parameters parameters_;
  Network network_;
  std::vector<float> speed_;
  std::vector<std::uint8_t> camera_;
  std::vector<shm::TensorView> view_;
  std::unique_ptr<ActorCritic> model_;
};

TEST_F(AutogradActorCritic, GradientsEqualFiniteDifferences) {
  const std::vector<float> d_head{1, -1, 0.5F, 2, 0, -0.5F, 1, 1, -2, 0.3F, 0.1F, 1, -1, 2, 0.7F};
  const std::vector<float> d_value{0.5F, -1, 2, 1, -0.3F};
  std::vector<float> head(kRows * 3), value(kRows), gradient(parameters_.flat().size());
  model_->forward_train(view_, std::vector<std::int32_t>{0, 1, 2, 3, 4}, head, value);
  model_->backward(d_head, d_value, gradient);
  constexpr float kStep = 1e-2F;
  for (const char* name :
       {"cnn.camera.0.weight", "cnn.camera.0.bias", "cnn.camera.2.weight", "cnn.camera.4.bias",
        "cnn.camera.7.weight", "trunk.0.weight", "actor.0.weight", "critic.0.bias"}) {
    const auto index = static_cast<std::size_t>(parameters_.find(name));
    const auto part = std::span<const float>(gradient).subspan(parameters_[index].offset,
                                                               parameters_[index].numel());
    // Along the gradient itself: the derivative there is its length.
    double length = 0;
    for (const float g : part) length += static_cast<double>(g) * g;
    length = std::sqrt(length);
    ASSERT_GT(length, 1e-6) << name;
    const std::vector<float> start(parameters_.values(index).begin(),
                                   parameters_.values(index).end());
    auto moved = [&](float by) {
      for (std::size_t k = 0; k < start.size(); ++k) {
        parameters_.values(index)[k] = start[k] + by * part[k] / static_cast<float>(length);
      }
      model_->parameters_changed();
      return loss(d_head, d_value);
    };
    const double slope = (moved(kStep) - moved(-kStep)) / (2 * kStep);
    moved(0);
    EXPECT_NEAR(slope / length, 1, 0.03) << name;
  }
}

TEST_F(AutogradActorCritic, ChosenRowsAreThoseOfTheWhole) {
  std::vector<float> head(kRows * 3), value(kRows), one_head(3), one_value(1);
  model_->forward(view_, head, value);
  model_->forward_train(view_, std::vector<std::int32_t>{3}, one_head, one_value);
  EXPECT_NEAR(one_value[0], value[3], 1e-5);
  for (std::size_t k = 0; k < 3; ++k) EXPECT_NEAR(one_head[k], head[9 + k], 1e-6);
}

TEST_F(AutogradActorCritic, ImagesAreScaledToOne) {
  // A white image through one convolution that averages its patch: what the first layer sees must
  // be 1, not 255.
  std::ranges::fill(parameters_.flat(), 0.0F);
  auto set = [&](const char* name, std::size_t element, float value) {
    parameters_.values(static_cast<std::size_t>(parameters_.find(name)))[element] = value;
  };
  std::ranges::fill(camera_, std::uint8_t{255});
  for (std::size_t k = 0; k < 64; ++k)
    set("cnn.camera.0.weight", k, 1.0F / 64);  // channel 0: mean of 8 x 8
  for (std::size_t k = 0; k < 16; ++k) set("cnn.camera.2.weight", k, 1.0F / 16);
  for (std::size_t k = 0; k < 9; ++k) set("cnn.camera.4.weight", k, 1.0F / 9);
  set("cnn.camera.7.weight", 0, 1);
  set("trunk.0.weight", 2, 1);  // the features are two numbers, then the image's
  set("critic.0.weight", 0, 3);
  std::vector<float> head(kRows * 3), value(kRows);
  model_->forward(view_, head, value);
  EXPECT_NEAR(value[0], 3, 1e-5);
}

}  // namespace
}  // namespace shoal::learn
