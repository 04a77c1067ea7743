// shoal._learn: policies out of checkpoints, and their evaluation.
#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "learn/learn_bindings.h"
#include "shoal/env/space_json.h"
#include "shoal/learn/learner/all_finite.h"
#include "shoal/learn/run/evaluator.h"
#include "shoal/learn/run/trained_policy.h"
#include "shoal/os/error.h"
#include "shoal/vector/vector_env.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using learn::TrainedPolicy;
using Input = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<nb::c_contig, nb::device::cpu>;

bool same_type(const nb::dlpack::dtype& type, shm::DType wanted) {
  const auto code = [&] {
    switch (wanted) {
      case shm::DType::kBool:
        return nb::dlpack::dtype_code::Bool;
      case shm::DType::kF16:
      case shm::DType::kF32:
      case shm::DType::kF64:
        return nb::dlpack::dtype_code::Float;
      case shm::DType::kU8:
      case shm::DType::kU16:
      case shm::DType::kU32:
      case shm::DType::kU64:
        return nb::dlpack::dtype_code::UInt;
      default:
        return nb::dlpack::dtype_code::Int;
    }
  }();
  return type.code == static_cast<std::uint8_t>(code) && type.lanes == 1 &&
         type.bits == 8 * shm::itemsize(wanted);
}

/// Borrows one array a leaf, each [rows, …leaf shape] of the leaf's element type.
template <class Array>
std::vector<shm::TensorView> views(const env::Space& space, const std::vector<Array>& arrays,
                                   const char* what) {
  const auto leaves = env::leaves(space);
  if (arrays.size() != leaves.size())
    throw InvalidArgument(
        fmt::format("{}: {} arrays where {} are needed", what, arrays.size(), leaves.size()));
  std::vector<shm::TensorView> views;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto& spec = leaves[i].spec;
    const auto& array = arrays[i];
    bool fits = array.ndim() == spec.shape.size() + 1 && same_type(array.dtype(), spec.dtype);
    for (std::size_t d = 0; fits && d < spec.shape.size(); ++d)
      fits = static_cast<std::int64_t>(array.shape(d + 1)) == spec.shape[d];
    if (!fits)
      throw InvalidArgument(fmt::format("{}: array {} has another shape or type than {}", what, i,
                                        leaves[i].space.repr()));
    const auto rows = static_cast<std::int64_t>(array.shape(0));
    if (!views.empty() && views[0].rows != rows)
      throw InvalidArgument(fmt::format("{}: arrays of {} and {} rows", what, views[0].rows, rows));
    auto* data = const_cast<void*>(static_cast<const void*>(array.data()));
    views.push_back({static_cast<std::byte*>(data), rows, spec});
  }
  return views;
}

bool is_finite(const shm::TensorView& view) {
  if (view.row.dtype == shm::DType::kF32) return learn::all_finite<float>(view.as<float>());
  return view.row.dtype != shm::DType::kF64 || learn::all_finite<double>(view.as<double>());
}

/// A policy, and what it remembers from one call to the next.
struct RememberingPolicy {
  explicit RememberingPolicy(TrainedPolicy of)
      : policy(std::move(of)), memory(policy.acting().memory_size()) {}

  TrainedPolicy policy;
  learn::EpisodeMemory memory;
};

void act(RememberingPolicy& remembering, const std::vector<Input>& observations,
         const std::vector<Output>& actions, bool deterministic, std::uint64_t step,
         const std::vector<bool>& is_first) {
  TrainedPolicy& policy = remembering.policy;
  const auto in = views(policy.observation_space(), observations, "observations");
  const auto out = views(policy.action_space(), actions, "actions");
  if (in[0].rows != out[0].rows)
    throw InvalidArgument(
        fmt::format("{} observations and room for {} actions", in[0].rows, out[0].rows));
  if (!std::ranges::all_of(in, is_finite))
    throw InvalidArgument("the observation has a number that is not finite (NaN or infinity)");
  std::vector<std::uint8_t> first(is_first.begin(), is_first.end());
  first.resize(static_cast<std::size_t>(in[0].rows));
  if (in[0].rows > 0)
    policy.acting().act(in, remembering.memory.of(first), out, deterministic, step);
}

nb::dict evaluate_policy(RememberingPolicy& remembering, std::shared_ptr<vector::VectorEnv> envs,
                         int episodes, std::uint64_t seed, bool deterministic) {
  TrainedPolicy& policy = remembering.policy;
  if (envs->single_observation_space() != policy.observation_space() ||
      envs->single_action_space() != policy.action_space())
    throw InvalidArgument(fmt::format(
        "evaluate: the policy was trained with observations {} and actions {}; these environments "
        "have {} and {}",
        policy.observation_space().repr(), policy.action_space().repr(),
        envs->single_observation_space().repr(), envs->single_action_space().repr()));
  learn::Evaluation evaluation;
  {
    const nb::gil_scoped_release unlocked;
    SignalCheck check;
    learn::EvaluationOptions options;
    options.episodes = episodes;
    options.seed = seed;
    options.cancelled = [&check] {
      check();
      return false;
    };
    evaluation = learn::evaluate(*envs, policy.acting(), deterministic, options);
  }
  nb::dict result;
  result["returns"] = evaluation.returns;
  result["lengths"] = evaluation.lengths;
  result["mean_return"] = evaluation.mean_return();
  result["std_return"] = evaluation.std_return();
  result["mean_length"] = evaluation.mean_length();
  return result;
}

}  // namespace

void bind_learn_policy(nb::module_& module) {
  using Remembering = RememberingPolicy;
  nb::class_<Remembering>(module, "Policy")
      .def_static(
          "load",
          [](const std::string& directory) { return Remembering(TrainedPolicy::load(directory)); },
          "checkpoint"_a)
      .def_prop_ro("observation_space",
                   [](const Remembering& its) {
                     return env::space_to_json(its.policy.observation_space()).dump();
                   })
      .def_prop_ro("action_space",
                   [](const Remembering& its) {
                     return env::space_to_json(its.policy.action_space()).dump();
                   })
      .def_prop_ro("config",
                   [](const Remembering& its) { return to_flat_json(its.policy.config()).dump(); })
      .def_prop_ro("step", [](const Remembering& its) { return its.policy.steps(); })
      .def_prop_ro(
          "remembers", [](Remembering& its) { return its.policy.acting().memory_size() > 0; },
          "Whether what it did earlier in an episode changes what it does.")
      .def("act", &act, "observations"_a, "actions"_a, "deterministic"_a, "step"_a = 0,
           "is_first"_a = std::vector<bool>(),
           nb::sig("def act(self, observations: list[numpy.ndarray], actions: list[numpy.ndarray], "
                   "deterministic: bool, step: int = 0, is_first: list[bool] = []) -> None"))
      .def("evaluate", &evaluate_policy, "envs"_a, "episodes"_a, "seed"_a,
           "deterministic"_a = true);
}

}  // namespace shoal::python
