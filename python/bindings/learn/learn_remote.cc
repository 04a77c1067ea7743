// shoal._learn: collectors on other hosts, seen from their learner and from their own process.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "learn/learn_bindings.h"
#include "shoal/env/space_json.h"
#include "shoal/group/host_port.h"
#include "shoal/group/seal.h"
#include "shoal/learn/algorithm/make_learner.h"
#include "shoal/learn/algorithm/train_config.h"
#include "shoal/learn/learner/episode_standing.h"
#include "shoal/learn/remote/remote_collector.h"
#include "shoal/learn/remote/remote_collectors.h"
#include "shoal/vector/vector_env.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using learn::RemoteCollector;
using learn::RemoteCollectors;

std::shared_ptr<RemoteCollectors> listen(const std::string& address, vector::VectorEnv& like,
                                         const std::string& config_json,
                                         const std::string& about_json, const std::string& run,
                                         std::uint64_t attempt,
                                         const std::optional<std::string>& secret) {
  const auto [host, port] = group::parse_host_port(address);
  learn::TrainConfig config;
  apply_saved(parse_json(config_json, "the configuration"), config);
  auto assignment = parse_json(about_json, "the description of the run");
  assignment["config"] = to_flat_json(config);
  assignment["observation_space"] = env::space_to_json(like.single_observation_space());
  assignment["action_space"] = env::space_to_json(like.single_action_space());
  RemoteCollectors::Setup setup{.host = host,
                                .port = port,
                                .secret = secret ? *secret : group::secret_of_environment(),
                                .observation_space = like.single_observation_space(),
                                .action_space = like.single_action_space(),
                                .num_envs = config.num_envs,
                                .config = config.learner(),
                                .max_lag = learn::asynchronous_options(config.algorithm).max_lag,
                                .seed = config.seed,
                                .run = run,
                                .attempt = attempt,
                                .assignment = assignment.dump()};
  const nb::gil_scoped_release unlocked;
  return std::make_shared<RemoteCollectors>(std::move(setup));
}

nb::list collectors(const RemoteCollectors& remote) {
  nb::list there;
  for (const auto& collector : remote.collectors()) {
    nb::dict one;
    one["number"] = collector.number;
    one["host"] = collector.host;
    one["pid"] = collector.pid;
    one["rollouts"] = collector.rollouts;
    one["collecting"] = collector.collecting;
    there.append(one);
  }
  return there;
}

std::unique_ptr<RemoteCollector> come_to(const std::string& address,
                                         const std::optional<std::string>& secret,
                                         const std::string& run, double timeout) {
  const auto [host, port] = group::parse_host_port(address);
  RemoteCollector::Options options{.host = host,
                                   .port = port,
                                   .secret = secret ? *secret : group::secret_of_environment(),
                                   .run = run,
                                   .timeout = deadline(timeout) - os::Clock::now(),
                                   .look = &check_signals};
  const nb::gil_scoped_release unlocked;
  return std::make_unique<RemoteCollector>(std::move(options));
}

nb::dict collect(RemoteCollector& collector, vector::VectorEnv& envs) {
  RemoteCollector::Departure end;
  {
    const auto assignment = parse_json(collector.assignment(), "what the learner assigns");
    learn::TrainConfig config;
    apply_saved(assignment.at("config"), config);
    learn::check_environments(envs, env::space_from_json(assignment.at("observation_space")),
                              env::space_from_json(assignment.at("action_space")), config.num_envs);
    const nb::gil_scoped_release unlocked;
    end = collector.collect(envs, config.learner());
  }
  nb::dict told;
  told["why"] = end.why;
  told["over"] = end.over;
  return told;
}

}  // namespace

void bind_learn_remote(nb::module_& module) {
  const nb::call_guard<nb::gil_scoped_release> unlocked;
  nb::class_<RemoteCollectors>(module, "RemoteCollectors",
                               "Collectors that come from other processes, on this host or others.")
      .def_prop_ro("port", &RemoteCollectors::port)
      .def_prop_ro("collectors", &collectors, "Those that are there.")
      .def("end", &RemoteCollectors::end, "over"_a, unlocked,
           "Tells them that the run is over, or that this session of it is. Idempotent.");
  module.def("listen", &listen, "address"_a, "like"_a, "config_json"_a, "about_json"_a, "run"_a,
             "attempt"_a, "secret"_a = nb::none(),
             "Takes collectors at this address, for environments with the spaces of `like`.");
  nb::class_<RemoteCollector>(module, "RemoteCollector", "A collector whose learner is elsewhere.")
      .def_prop_ro("assignment", &RemoteCollector::assignment,
                   "What the learner says that is to be stepped, as JSON.")
      .def_prop_ro("run", &RemoteCollector::run)
      .def_prop_ro("attempt", &RemoteCollector::attempt)
      .def_prop_ro("number", &RemoteCollector::number)
      .def_prop_ro("rollouts", &RemoteCollector::rollouts, "That the learner was sent.")
      .def_prop_ro("steps", &RemoteCollector::steps, "Of environments, in those.")
      .def("collect", &collect, "envs"_a,
           "Until the learner takes leave: why, and whether the run is over.")
      .def("fail", &RemoteCollector::fail, "why"_a, unlocked,
           "Takes leave, since something has gone wrong: what. Idempotent.");
  module.def("come_to", &come_to, "address"_a, "secret"_a = nb::none(), "run"_a = "",
             "timeout"_a = 10.0, "Connects to the learner at this address.");
}

}  // namespace shoal::python
