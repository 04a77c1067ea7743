// shoal._learn: the actors of A3C, seen from their learner's process and from their own.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>
#include <vector>

#include "bytes.h"
#include "learn/learn_bindings.h"
#include "shoal/learn/a3c/actor_processes.h"
#include "shoal/learn/a3c/learning_actor.h"
#include "shoal/os/fd.h"
#include "shoal/vector/vector_env.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using learn::ActorProcesses;

std::shared_ptr<ActorProcesses> actors(std::shared_ptr<process::Launcher> launcher,
                                       const nb::list& payloads, const std::vector<int>& counts,
                                       vector::VectorEnv& like, double start_timeout) {
  await_ready(*launcher);
  ActorProcesses::Setup setup{.launcher = std::move(launcher),
                              .actors = {},
                              .observation_space = like.single_observation_space(),
                              .action_space = like.single_action_space(),
                              .start_timeout = milliseconds(start_timeout)};
  int first_env = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    process::WorkerSpec spec;
    spec.entry = "python";
    spec.payload = to_vector(payloads[i]);
    spec.first_env = first_env;
    spec.num_envs = counts[i];
    first_env += counts[i];
    setup.actors.push_back(std::move(spec));
  }
  const nb::gil_scoped_release unlocked;
  return std::make_shared<ActorProcesses>(std::move(setup));
}

void run_actor(vector::VectorEnv& envs, const nb::bytes& order, int arena_fd) {
  os::Fd fd(arena_fd);
  const auto its = learn::ActorOrder::decode(view(order));
  const nb::gil_scoped_release unlocked;
  learn::LearningActor(envs, its, std::move(fd)).run();
}

}  // namespace

void bind_learn_a3c(nb::module_& module) {
  const nb::call_guard<nb::gil_scoped_release> unlocked;  // a start may need the GIL
  nb::class_<ActorProcesses>(module, "Actors", "The processes of A3C's actors.")
      .def_prop_ro("pids", &ActorProcesses::pids, unlocked, "Of those that run.")
      .def_prop_ro("replaced", &ActorProcesses::replaced, unlocked,
                   "How many took the place of one that had died.")
      .def(
          "close", [](ActorProcesses& actors) { actors.close(); }, unlocked,
          "Ends them. Idempotent.");
  module.def(
      "start_actors", &actors, "launcher"_a, "payloads"_a, "counts"_a, "like"_a, "start_timeout"_a,
      "Starts an actor for each payload, with so many environments, which have the spaces of "
      "`like`.");
  module.def(
      "run_actor", &run_actor, "envs"_a, "order"_a, "arena_fd"_a,
      "In an actor's process: learns until its learner has it end. Takes the descriptor over.");
}

}  // namespace shoal::python
