// The description of a space: what a worker says of its environments, and a checkpoint of its policy.
#include <limits>

#include "../input.h"
#include "shoal/collect/action_decoder.h"
#include "shoal/collect/observation_encoder.h"
#include "shoal/env/json_text.h"
#include "shoal/env/space_json.h"
#include "shoal/os/error.h"
#include "shoal/vector/step/rows.h"

namespace shoal::fuzz {
namespace {

using env::Space;

void read(const std::string& text) {
  const auto json = env::parse_json(text);
  if (json.is_discarded()) return;
  const Space space = env::space_from_json(json);
  SHOAL_CHECK(env::space_from_json(env::parse_json(env::space_to_json(space).dump())) == space ||
                  env::space_to_json(space).dump().find("nan") != std::string::npos,
              "a space is what was written of it");
  SHOAL_CHECK(!space.repr().empty() || env::first_opaque(space) != nullptr, "it has a text");
  const auto leaves = env::leaves(space);
  if (leaves.empty()) return;
  static_cast<void>(
      vector::Rows::bytes(space, env::Discrete{2}, 65'535, vector::AutoresetMode::kSameStep, 3));
  std::size_t bytes = 0;
  for (const env::Leaf& leaf : leaves) bytes += leaf.spec.bytes();
  if (bytes > 4096) return;  // whose encoding takes as much
  try {
    const collect::ObservationEncoder encoder(space, {});
  } catch (const Error&) {
  }
  const collect::ActionDecoder decoder(space);
}

}  // namespace

std::vector<Bytes> seeds() {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Space box = env::Box{{shm::DType::kF32, {2}}, {-0.1, -kInf}, {0.1, kInf}};
  const Space picture = env::Box{{shm::DType::kU8, {4, 40, 40}}, {0}, {255}};
  const Space discrete = env::Discrete{5, -2, shm::DType::kI32};
  const Space multi = env::MultiDiscrete{{3, 4}, {0, 1}, {2}, shm::DType::kI64};
  const Space binary = env::MultiBinary{{2, 3}};
  const Space dict = env::Dict{{{"b", env::Tuple{{box, discrete}}}, {"a", binary}, {"c", multi}}};
  std::vector<Bytes> all;
  for (const Space& space : {box, picture, discrete, multi, binary, dict,
                             Space(env::Opaque{"module.Text", "Text(1, 5)"})}) {
    all.push_back(Output().put_text(env::space_to_json(space).dump()).take());
  }
  return all;
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return shoal::fuzz::refused_at_most(
      [&] { shoal::fuzz::read({reinterpret_cast<const char*>(data), size}); });
}
