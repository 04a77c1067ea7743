// Images on own kernels against the definition, and what holds whatever computes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "shoal/learn/network/fused_actor_critic.h"
#include "shoal/learn/testing/gradient_difference.h"
#include "shoal/learn/testing/network_oracle.h"
#include "shoal/learn/testing/random_floats.h"

namespace shoal::learn {
namespace {

using shm::DType;
using Rows = std::vector<std::int32_t>;

struct ImageCase {
  std::string name;
  std::vector<std::int64_t> image;  // channels, height, width
  std::int64_t numbers = 0;         // beside the image
  int images = 1;
  LearnerConfig config = {.policy_hidden = {}, .value_hidden = {}};
};

void PrintTo(const ImageCase& c, std::ostream* out) { *out << c.name; }

env::Space space_of(const ImageCase& c) {
  env::Dict dict;
  for (int k = 0; k < c.images; ++k)
    dict.spaces.emplace_back("camera" + std::to_string(k),
                             env::Space{env::Box{{DType::kU8, c.image}, {0}, {255}}});
  if (c.numbers > 0)
    dict.spaces.emplace_back("speed", env::Space{env::Box{{DType::kF32, {c.numbers}}, {-1}, {1}}});
  return dict;
}

/// A network for such observations, with parameters that hide no mistake, and random observations.
struct Seen {
  Seen(const ImageCase& c, std::int64_t count)
      : config(c.config),
        network(Network::create(collect::ObservationEncoder(space_of(c)),
                                collect::ActionDecoder(env::Space{env::Discrete{.n = 3}}), config,
                                parameters)) {
    network.initialize(parameters, config, Philox(4));
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0F, 0.02F);
    for (std::size_t k = 0; k < parameters.list().size(); ++k) {
      for (auto& x : parameters.values(k)) x += normal(random);
    }
    if (c.numbers > 0) {
      numbers = random_floats(static_cast<std::size_t>(count * c.numbers), 2);
      views.push_back(
          {reinterpret_cast<std::byte*>(numbers.data()), count, {DType::kF32, {c.numbers}}});
    }
    images.resize(static_cast<std::size_t>(c.images));
    for (auto& bytes : images) {
      const shm::TensorSpec spec{DType::kU8, c.image};
      bytes.resize(static_cast<std::size_t>(count) * spec.bytes());
      for (auto& x : bytes) x = static_cast<std::uint8_t>(random());
      views.push_back({reinterpret_cast<std::byte*>(bytes.data()), count, spec});
    }
  }

  NetworkOracle::Outputs forward(ActorCritic& model) const {
    const auto rows = static_cast<std::size_t>(views[0].rows);
    NetworkOracle::Outputs out{std::vector<float>(rows * 3), std::vector<float>(rows)};
    model.forward(views, {}, out.head, out.value);
    return out;
  }
  NetworkOracle::Outputs forward_train(ActorCritic& model, const Rows& rows) const {
    NetworkOracle::Outputs out{std::vector<float>(rows.size() * 3),
                               std::vector<float>(rows.size())};
    model.forward_train(views, Sequences(rows), out.head, out.value);
    return out;
  }
  std::vector<float> gradient(ActorCritic& model, const Rows& rows) const {
    forward_train(model, rows);
    std::vector<float> gradient(parameters.flat().size(), NAN);
    model.backward(random_floats(rows.size() * 3, 3), random_floats(rows.size(), 4), gradient);
    return gradient;
  }

  LearnerConfig config;
  Parameters parameters;
  Network network;
  std::vector<float> numbers;
  std::vector<std::vector<std::uint8_t>> images;
  std::vector<shm::TensorView> views;
};

Rows all_of(std::int64_t count) {
  Rows rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

class FusedImages : public testing::TestWithParam<std::tuple<ImageCase, std::size_t>> {
 protected:
  const ImageCase& case_ = std::get<0>(GetParam());
  const MlpKernels& kernels_ = mlp_kernels()[std::get<1>(GetParam())];
};

TEST_P(FusedImages, OutputsAndGradientsEqualThoseOfTheTape) {
  const std::int64_t count = case_.image[1] > 50 ? 2 : 9;
  const Seen seen(case_, count);
  FusedActorCritic fused(seen.network, seen.parameters, kernels_, 2);
  NetworkOracle oracle(seen.network, seen.parameters);
  Rows rows = all_of(count);
  std::ranges::reverse(rows);
  rows.back() = rows.front();  // rows may repeat and come in any order
  const auto ours = seen.forward_train(fused, rows);
  const auto theirs = oracle.forward(seen.views, rows);
  // The tape rounds what goes forward, as the network does, but no derivatives.
  const bool is_float = case_.config.precision == Precision::kFloat32;
  const double of_outputs = is_float ? 1e-5 : 1e-3, of_gradient = is_float ? 1e-5 : 1e-2;
  expect_near(ours.head, theirs.head, of_outputs, "head");
  expect_near(ours.value, theirs.value, of_outputs, "value");
  expect_same_gradient(seen.parameters, seen.gradient(fused, rows),
                       oracle.gradient(seen.views, rows, random_floats(rows.size() * 3, 3),
                                       random_floats(rows.size(), 4)),
                       of_gradient);
}

TEST_P(FusedImages, ARowIsTheSameBesideAnyOthersAndInEitherForward) {
  const Seen seen(case_, 7);
  FusedActorCritic fused(seen.network, seen.parameters, kernels_, 2);
  const auto all = seen.forward(fused);
  EXPECT_EQ(seen.forward_train(fused, all_of(7)).head, all.head);
  const auto one = seen.forward_train(fused, {3});
  EXPECT_EQ(one.value[0], all.value[3]);
  for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(one.head[k], all.head[9 + k]);
  std::vector<float> value(7);
  fused.forward(seen.views, {}, {}, value);
  EXPECT_EQ(value, all.value) << "of values alone";
}

TEST_P(FusedImages, AnyNumberOfThreadsGivesTheSameBits) {
  const Seen seen(case_, 11);
  FusedActorCritic alone(seen.network, seen.parameters, kernels_, 1);
  const auto outputs = seen.forward(alone);
  const auto gradient = seen.gradient(alone, all_of(11));
  for (const int threads : {2, 3, 5}) {
    FusedActorCritic team(seen.network, seen.parameters, kernels_, threads);
    EXPECT_EQ(seen.forward(team).head, outputs.head) << threads;
    const auto theirs = seen.gradient(team, all_of(11));
    for (const auto& p : seen.parameters.list()) {
      for (std::size_t k = p.offset; k < p.offset + p.numel(); ++k)
        ASSERT_EQ(theirs[k], gradient[k]) << p.name << ", " << threads << " threads";
    }
  }
}

TEST_P(FusedImages, EveryParameterIsWrittenAndNoGap) {
  const Seen seen(case_, 3);
  FusedActorCritic fused(seen.network, seen.parameters, kernels_, 2);
  const std::vector<float> g = seen.gradient(fused, {1, 2});  // begun as NaN
  std::vector<bool> used(g.size());
  for (const auto& p : seen.parameters.list()) {
    for (std::size_t k = 0; k < p.numel(); ++k) used[p.offset + k] = true;
  }
  for (std::size_t k = 0; k < g.size(); ++k) ASSERT_EQ(std::isnan(g[k]), !used[k]) << k;
}

TEST_P(FusedImages, ChangedParametersAreSeen) {
  Seen seen(case_, 2);
  FusedActorCritic fused(seen.network, seen.parameters, kernels_, 2);
  seen.gradient(fused, {0, 1});
  for (std::size_t k = 0; k < seen.parameters.list().size(); ++k) {
    for (auto& x : seen.parameters.values(k)) x *= 1.25F;
  }
  fused.parameters_changed();
  FusedActorCritic fresh(seen.network, seen.parameters, kernels_, 2);
  EXPECT_EQ(seen.forward(fused).head, seen.forward(fresh).head);
  const auto ours = seen.gradient(fused, {0, 1});
  const auto theirs = seen.gradient(fresh, {0, 1});
  for (const auto& p : seen.parameters.list()) {
    for (std::size_t k = p.offset; k < p.offset + p.numel(); ++k)
      ASSERT_EQ(ours[k], theirs[k]) << p.name;
  }
}

class FusedImagesInBfloat16 : public FusedImages {};

TEST_P(FusedImagesInBfloat16, AreNearFloat32) {
  ImageCase in_floats = case_;
  in_floats.config.precision = Precision::kFloat32;
  constexpr std::int64_t kCount = 64;
  const Seen seen(case_, kCount), as_floats(in_floats, kCount);
  FusedActorCritic fused(seen.network, seen.parameters, kernels_, 2);
  FusedActorCritic floats(as_floats.network, as_floats.parameters, kernels_, 2);
  const auto ours = seen.forward(fused), theirs = as_floats.forward(floats);
  expect_near(ours.head, theirs.head, 0.02, "head");
  expect_near(ours.value, theirs.value, 0.02, "value");
  // Rounding turns some ReLUs on and off, which of random derivatives, that cancel each other, is the most.
  expect_same_gradient(seen.parameters, seen.gradient(fused, all_of(kCount)),
                       as_floats.gradient(floats, all_of(kCount)), 0.2);
}

const ImageCase kCases[] = {
    {"Atari",
     {4, 84, 84},
     0,
     1,
     {.policy_hidden = {}, .value_hidden = {}, .orthogonal_init = false}},
    {"SmallestGray", {1, 36, 36}, 0, 1, {.pixel_mean = 0.25}},
    {"OddSidesRgb", {3, 41, 54}, 2, 1, {.policy_hidden = {20}, .value_hidden = {7, 9}}},
    {"TwoCamerasAndNumbers",
     {2, 36, 44},
     5,
     2,
     {.policy_hidden = {24},
      .shared_hidden = true,
      .activation = Activation::kRelu,
      .pixel_mean = 0.5}},
    {"AtariBfloat16",
     {4, 84, 84},
     0,
     1,
     {.policy_hidden = {},
      .value_hidden = {},
      .orthogonal_init = false,
      .precision = Precision::kBfloat16,
      .pixel_mean = 0.36}},
    {"OddLinesBfloat16",
     {3, 36, 41},
     2,
     1,
     {.policy_hidden = {20}, .value_hidden = {7, 9}, .precision = Precision::kBfloat16}},
    {"TwoCamerasBfloat16",
     {2, 36, 44},
     5,
     2,
     {.policy_hidden = {24},
      .shared_hidden = true,
      .precision = Precision::kBfloat16,
      .pixel_mean = 0.1}},
};

std::vector<ImageCase> cases_in(Precision precision) {
  std::vector<ImageCase> cases;
  std::ranges::copy_if(kCases, std::back_inserter(cases), [&](const ImageCase& image_case) {
    return image_case.config.precision == precision;
  });
  return cases;
}

std::string name_of(const testing::TestParamInfo<FusedImages::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + mlp_kernels()[std::get<1>(info.param)].name;
}

INSTANTIATE_TEST_SUITE_P(Networks, FusedImages,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Range(std::size_t{0}, mlp_kernels().size())),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Networks, FusedImagesInBfloat16,
                         testing::Combine(testing::ValuesIn(cases_in(Precision::kBfloat16)),
                                          testing::Range(std::size_t{0}, mlp_kernels().size())),
                         name_of);

TEST(FusedImage, GradientsEqualFiniteDifferences) {
  const LearnerConfig config{
      .policy_hidden = {16}, .shared_hidden = true, .activation = Activation::kRelu};
  Seen seen({"", {1, 36, 36}, 2, 1, config}, 5);
  const auto model = make_fused_actor_critic(seen.network, seen.parameters);
  const Rows rows = all_of(5);
  const auto d_head = random_floats(15, 3);
  const auto d_value = random_floats(5, 4);
  const auto gradient = seen.gradient(*model, rows);
  const auto loss = [&] {
    model->parameters_changed();
    const auto [head, value] = seen.forward(*model);
    return std::inner_product(head.begin(), head.end(), d_head.begin(), 0.0) +
           std::inner_product(value.begin(), value.end(), d_value.begin(), 0.0);
  };
  constexpr float kStep = 1e-3F;  // across few kinks of ReLU
  for (const auto& p : seen.parameters.list()) {
    // Along the gradient itself: the derivative there is its length.
    const auto part = std::span(gradient).subspan(p.offset, p.numel());
    const double length = norm(part);
    ASSERT_GT(length, 1e-6) << p.name;
    const auto values = seen.parameters.flat().subspan(p.offset, p.numel());
    const std::vector<float> start(values.begin(), values.end());
    const auto moved = [&](float by) {
      for (std::size_t k = 0; k < start.size(); ++k)
        values[k] = start[k] + by * part[k] / static_cast<float>(length);
      return loss();
    };
    const double slope = (moved(kStep) - moved(-kStep)) / (2 * static_cast<double>(kStep));
    moved(0);
    EXPECT_NEAR(slope / length, 1, 0.03) << p.name;
  }
}

/// What a network says of a white image whose first convolution averages its patch.
float said_of_white(double pixel_mean) {
  Seen seen({"",
             {1, 36, 36},
             2,
             1,
             {.policy_hidden = {16}, .shared_hidden = true, .pixel_mean = pixel_mean}},
            5);
  std::ranges::fill(seen.parameters.flat(), 0.0F);
  auto set = [&](const char* name, std::size_t element, float value) {
    seen.parameters.values(static_cast<std::size_t>(seen.parameters.find(name)))[element] = value;
  };
  std::ranges::fill(seen.images[0], std::uint8_t{255});
  for (std::size_t k = 0; k < 64; ++k)
    set("cnn.camera0.0.weight", k, 1.0F / 64);  // channel 0: mean of 8 x 8
  for (std::size_t k = 0; k < 16; ++k) set("cnn.camera0.2.weight", k, 1.0F / 16);
  for (std::size_t k = 0; k < 9; ++k) set("cnn.camera0.4.weight", k, 1.0F / 9);
  set("cnn.camera0.7.weight", 0, 1);
  set("trunk.0.weight", 2, 1);  // the features are two numbers, then the image's
  set("critic.0.weight", 0, 3);
  return seen.forward(*make_fused_actor_critic(seen.network, seen.parameters)).value[0];
}

TEST(FusedImage, IsScaledToOneAndLessByTheMean) {
  EXPECT_NEAR(said_of_white(0), 3 * std::tanh(1.0), 1e-5);
  EXPECT_NEAR(said_of_white(0.25), 3 * std::tanh(0.75), 1e-5);
}

}  // namespace
}  // namespace shoal::learn
