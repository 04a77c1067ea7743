#include "shoal/learn/network/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/os/testing/message_of.h"

namespace shoal::learn {
namespace {

using os::testing::message_of;
using shm::DType;

const env::Space kFourNumbers = env::Box{{DType::kF32, {4}}, {-1}, {1}};

struct Built {
  Built(const env::Space& observation, const env::Space& action, LearnerConfig with = {})
      : config(std::move(with)),
        network(Network::create(collect::ObservationEncoder(observation),
                                collect::ActionDecoder(action), config, parameters)) {
    network.initialize(parameters, config, Philox(1));
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& p : parameters.list()) out.push_back(p.name);
    return out;
  }
  std::span<const float> values(const char* name) const {
    return parameters.values(static_cast<std::size_t>(parameters.find(name)));
  }

  LearnerConfig config;
  Parameters parameters;
  Network network;
};

// The largest deviation of the Gram matrix of rows (or columns, if fewer) from gain^2 times the
// identity.
double deviation(std::span<const float> weight, std::int64_t rows, std::int64_t columns,
                 double gain) {
  const bool by_rows = rows <= columns;
  const std::int64_t count = by_rows ? rows : columns;
  const std::int64_t length = by_rows ? columns : rows;
  auto at = [&](std::int64_t v, std::int64_t k) {
    return static_cast<double>(
        weight[static_cast<std::size_t>(by_rows ? v * columns + k : k * columns + v)]);
  };
  double worst = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      double dot = 0;
      for (std::int64_t k = 0; k < length; ++k) dot += at(i, k) * at(j, k);
      worst = std::max(worst, std::abs(dot - (i == j ? gain * gain : 0.0)));
    }
  }
  return worst;
}

TEST(Network, SeparateMlpsCarryTheNamesOfTheirModules) {
  const Built built(kFourNumbers, env::Discrete{.n = 2});
  EXPECT_EQ(built.names(),
            (std::vector<std::string>{"actor.0.weight", "actor.0.bias", "actor.2.weight",
                                      "actor.2.bias", "actor.4.weight", "actor.4.bias",
                                      "critic.0.weight", "critic.0.bias", "critic.2.weight",
                                      "critic.2.bias", "critic.4.weight", "critic.4.bias"}));
  EXPECT_EQ(built.parameters[0].shape, (std::vector<std::int64_t>{64, 4}));
  EXPECT_EQ(built.parameters[4].shape, (std::vector<std::int64_t>{2, 64}));
}

TEST(Network, SharedMlpHasATrunkAndTwoHeads) {
  const Built built(kFourNumbers, env::Box{{DType::kF32, {3}}, {-1}, {1}},
                    {.policy_hidden = {32, 16}, .shared_hidden = true, .log_std_init = -0.5});
  EXPECT_EQ(built.names(),
            (std::vector<std::string>{"trunk.0.weight", "trunk.0.bias", "trunk.2.weight",
                                      "trunk.2.bias", "actor.0.weight", "actor.0.bias",
                                      "critic.0.weight", "critic.0.bias", "log_std"}));
  EXPECT_EQ(built.parameters[4].shape, (std::vector<std::int64_t>{3, 16}));
  for (const float s : built.values("log_std")) EXPECT_EQ(s, -0.5F);
}

TEST(Network, ImagesGetTheNatureCnnBesideTheDenseVector) {
  env::Dict dict;
  dict.spaces.emplace_back("camera", env::Space{env::Box{{DType::kU8, {84, 84, 4}}, {0}, {255}}});
  dict.spaces.emplace_back("speed", env::Space{env::Box{{DType::kF32, {2}}, {-1}, {1}}});
  const Built built(dict, env::Discrete{.n = 6}, {.policy_hidden = {}, .value_hidden = {}});
  auto shape = [&](const char* name) {
    return built.parameters[static_cast<std::size_t>(built.parameters.find(name))].shape;
  };
  EXPECT_EQ(shape("cnn.camera.0.weight"), (std::vector<std::int64_t>{32, 4, 8, 8}));
  EXPECT_EQ(shape("cnn.camera.2.weight"), (std::vector<std::int64_t>{64, 32, 4, 4}));
  EXPECT_EQ(shape("cnn.camera.4.weight"), (std::vector<std::int64_t>{64, 64, 3, 3}));
  EXPECT_EQ(shape("cnn.camera.7.weight"), (std::vector<std::int64_t>{512, 3136}));
  EXPECT_EQ(shape("actor.0.weight"), (std::vector<std::int64_t>{6, 514}));
  EXPECT_LT(deviation(built.values("cnn.camera.0.weight"), 32, 256, std::sqrt(2.0)), 1e-5);
}

TEST(Network, WeightsBeginOrthogonalWithTheirGains) {
  const Built built(kFourNumbers, env::Discrete{.n = 3});
  EXPECT_LT(deviation(built.values("actor.0.weight"), 64, 4, std::sqrt(2.0)), 1e-5);
  EXPECT_LT(deviation(built.values("critic.2.weight"), 64, 64, std::sqrt(2.0)), 1e-5);
  EXPECT_LT(deviation(built.values("actor.4.weight"), 3, 64, 0.01), 1e-7);
  EXPECT_LT(deviation(built.values("critic.4.weight"), 1, 64, 1.0), 1e-5);
  for (const float b : built.values("actor.2.bias")) EXPECT_EQ(b, 0.0F);
  EXPECT_NE(built.values("actor.2.weight")[0], built.values("critic.2.weight")[0]);
  const Built wider(kFourNumbers, env::Discrete{.n = 3}, {.value_gain = 1.5});
  EXPECT_LT(deviation(wider.values("critic.4.weight"), 1, 64, 1.5), 1e-5);
}

TEST(Network, TorchsOwnInitialisationStaysWithinItsBound) {
  const Built built(kFourNumbers, env::Discrete{.n = 3}, {.orthogonal_init = false});
  float largest = 0;
  for (const float w : built.values("actor.0.weight")) largest = std::max(largest, std::abs(w));
  EXPECT_LE(largest, 0.5F);
  EXPECT_GT(largest, 0.4F);
  EXPECT_NE(built.values("actor.0.bias")[0], 0.0F);
}

TEST(Network, InitialValuesAreAFunctionOfTheSeed) {
  const Built one(kFourNumbers, env::Discrete{.n = 2});
  const Built same(kFourNumbers, env::Discrete{.n = 2});
  EXPECT_TRUE(std::ranges::equal(one.parameters.flat(), same.parameters.flat()));
  Built other(kFourNumbers, env::Discrete{.n = 2});
  other.network.initialize(other.parameters, other.config, Philox(2));
  EXPECT_FALSE(std::ranges::equal(one.parameters.flat(), other.parameters.flat()));
}

/// What it says when it refuses; "" where it does not.
TEST(Network, Bfloat16IsForPictures) {
  const LearnerConfig config{.precision = Precision::kBfloat16};
  const std::string said =
      message_of<InvalidArgument>([&] { Built(kFourNumbers, env::Discrete{.n = 2}, config); });
  EXPECT_NE(said.find("precision = bfloat16"), std::string::npos) << said;
  EXPECT_NE(said.find("choose float32"), std::string::npos) << said;
  const env::Space pictures = env::Box{{DType::kU8, {1, 36, 36}}, {0}, {255}};
  EXPECT_EQ(Built(pictures, env::Discrete{.n = 2}, config).network.features.precision,
            Precision::kBfloat16);
}

TEST(Network, AMeanOfPixelsIsForPictures) {
  const LearnerConfig config{.pixel_mean = 0.25};
  const std::string said =
      message_of<InvalidArgument>([&] { Built(kFourNumbers, env::Discrete{.n = 2}, config); });
  EXPECT_NE(said.find("pixel_mean = 0.25"), std::string::npos) << said;
  EXPECT_NE(said.find("leave it 0"), std::string::npos) << said;
}

TEST(Network, LearningInBfloat16IsRefusedWhereItWouldBeSlower) {
  const std::string nothing = "nothing was thrown";
  for (const MlpKernels& kernels : mlp_kernels()) {
    EXPECT_EQ(message_of<InvalidArgument>([&] { require_fast(Precision::kFloat32, kernels); }),
              nothing);
    const std::string said =
        message_of<InvalidArgument>([&] { require_fast(Precision::kBfloat16, kernels); });
    EXPECT_EQ(said == nothing, kernels.bfloat16_is_faster) << kernels.name << ": " << said;
    if (said == nothing) continue;
    EXPECT_NE(said.find("AVX512_BF16"), std::string::npos) << said;
    EXPECT_NE(said.find("AMX"), std::string::npos) << said;
    EXPECT_NE(said.find("choose float32"), std::string::npos) << said;
  }
}

TEST(Parameters, BeginOnCacheLinesWithZerosBetween) {
  const Built built(kFourNumbers, env::Discrete{.n = 3});
  std::vector<bool> used(built.parameters.flat().size());
  for (const auto& p : built.parameters.list()) {
    EXPECT_EQ(p.offset % 16, 0U) << p.name;
    for (std::size_t k = 0; k < p.numel(); ++k) {
      EXPECT_FALSE(used[p.offset + k]) << p.name;
      used[p.offset + k] = true;
    }
  }
  for (std::size_t k = 0; k < used.size(); ++k) {
    EXPECT_TRUE(used[k] || built.parameters.flat()[k] == 0.0F) << k;
  }
}

}  // namespace
}  // namespace shoal::learn
