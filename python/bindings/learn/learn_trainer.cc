// shoal._learn: training runs, in a C++ thread that needs no GIL.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "learn/learn_bindings.h"
#include "shoal/learn/run/trainer.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shoal::python {
namespace {

using learn::Trainer;
using Seconds = std::chrono::duration<double>;
using EnvsPtr = std::shared_ptr<vector::VectorEnv>;

/// A Trainer that gives the GIL up while it waits for its thread, which may need it to step Python
/// environments.
class PyTrainer {
 public:
  PyTrainer(EnvsPtr envs, EnvsPtr eval_envs, const std::string& config_json,
            const std::string& run_dir, bool resume, const std::string& about_json,
            std::shared_ptr<learn::ActorProcesses> actors, std::shared_ptr<group::Group> group,
            std::shared_ptr<learn::RemoteCollectors> collectors) {
    learn::TrainSetup setup;
    setup.envs = std::move(envs);
    setup.actors = std::move(actors);
    setup.group = std::move(group);
    setup.collectors = std::move(collectors);
    setup.eval_envs = std::move(eval_envs);
    apply_overrides(parse_json(config_json, "the configuration"), setup.config);
    setup.run_directory = run_dir;
    setup.resume = resume;
    setup.about = parse_json(about_json, "the description of the run");
    const nb::gil_scoped_release unlocked;
    trainer_ = std::make_unique<Trainer>(std::move(setup));
  }
  ~PyTrainer() {
    const nb::gil_scoped_release unlocked;
    trainer_.reset();
  }
  PyTrainer(const PyTrainer&) = delete;
  PyTrainer& operator=(const PyTrainer&) = delete;

  Trainer& get() noexcept { return *trainer_; }

  /// Calls `ask`, which may throw what made the run fail. nanobind hands an exception of Python's on only once: whoever
  /// asks later gets another one.
  template <class Ask>
  auto told_once(Ask&& ask) {
    try {
      return ask();
    } catch (const nb::python_error&) {
      const nb::gil_scoped_acquire locked;
      if (std::exchange(told_, true))
        throw InvalidState("the run has failed, and another call was told why");
      throw;
    }
  }

  bool wait(std::optional<double> timeout) {
    constexpr Seconds kSlice(0.05);
    const nb::gil_scoped_release unlocked;
    const auto start = std::chrono::steady_clock::now();
    SignalCheck check;
    while (true) {
      check();
      Seconds left = kSlice;
      if (timeout) {
        const Seconds spent = std::chrono::steady_clock::now() - start;
        left = std::clamp(Seconds(*timeout) - spent, Seconds(0), kSlice);
      }
      const auto slice = std::chrono::duration_cast<std::chrono::nanoseconds>(left);
      if (told_once([&] { return trainer_->wait(slice); })) return true;
      if (timeout && Seconds(std::chrono::steady_clock::now() - start).count() >= *timeout)
        return false;
    }
  }

 private:
  std::unique_ptr<Trainer> trainer_;
  bool told_ = false;  // with the GIL
};

const char* name(learn::TrainStatus::Phase phase) {
  switch (phase) {
    case learn::TrainStatus::Phase::kReady:
      return "ready";
    case learn::TrainStatus::Phase::kTraining:
      return "training";
    case learn::TrainStatus::Phase::kEvaluating:
      return "evaluating";
    case learn::TrainStatus::Phase::kEnded:
      return "ended";
  }
  return "";
}

const char* name(learn::ResumeKind kind) {
  switch (kind) {
    case learn::ResumeKind::kNone:
      return "none";
    case learn::ResumeKind::kPending:
      return "pending";
    case learn::ResumeKind::kExact:
      return "exact";
    case learn::ResumeKind::kRestarted:
      return "restarted";
    case learn::ResumeKind::kAnew:
      return "anew";
  }
  return "";
}

nb::dict status(PyTrainer& trainer) {
  const learn::TrainStatus status = trainer.get().status();
  const learn::IterationStats& last = status.last;
  nb::dict result;
  result["phase"] = name(status.phase);
  result["resume"] = name(status.resume);
  result["step"] = last.steps;
  result["total_steps"] = status.total_steps;
  result["iteration"] = last.iteration;
  result["episodes"] = last.episodes;
  result["seconds"] = status.seconds;
  result["steps_per_second"] = status.steps_per_second;
  result["seconds_left"] = status.steps_per_second > 0
                               ? number_or_none(static_cast<double>(std::max<std::int64_t>(
                                                    0, status.total_steps - last.steps)) /
                                                status.steps_per_second)
                               : nb::none();
  result["ep_return_mean"] = number_or_none(last.episode_return_mean);
  result["ep_length_mean"] = number_or_none(last.episode_length_mean);
  result["loss"] = number_or_none(last.loss);
  result["policy_loss"] = number_or_none(last.policy_loss);
  result["value_loss"] = number_or_none(last.value_loss);
  result["entropy"] = number_or_none(last.entropy);
  result["approx_kl"] = number_or_none(last.approx_kl);
  result["clip_fraction"] = number_or_none(last.clip_fraction);
  result["explained_variance"] = number_or_none(last.explained_variance);
  result["grad_norm"] = number_or_none(last.grad_norm);
  result["learning_rate"] = last.learning_rate;
  result["clip_range"] = number_or_none(last.clip_range);
  result["policy_lag"] = number_or_none(last.policy_lag);
  result["collectors"] = last.collectors;
  result["stale_steps"] = last.stale_steps;
  result["lost_rollouts"] = last.lost_rollouts;
  result["q_value"] = number_or_none(last.q_value);
  result["exploration"] = number_or_none(last.exploration);
  result["temperature"] = number_or_none(last.temperature);
  result["updates"] = last.updates;
  result["splits_update"] = last.splits_update;
  result["steps_cut"] = last.steps_cut;
  result["collect_seconds"] = last.collect_seconds;
  result["update_seconds"] = last.update_seconds;
  result["eval_return_mean"] = number_or_none(status.eval_return);
  result["eval_step"] = status.eval_step;
  result["best_return_mean"] = number_or_none(status.best_return);
  result["best_step"] = status.best_step;
  return result;
}

nb::list poll(PyTrainer& trainer) {
  nb::list records;
  for (const learn::ScalarRecord& record : trainer.get().poll()) {
    nb::dict values;
    for (const auto& [name, value] : record.values) values[name.c_str()] = value;
    records.append(nb::make_tuple(record.step, values));
  }
  return records;
}

}  // namespace

void bind_learn_trainer(nb::module_& module) {
  nb::class_<PyTrainer>(module, "Trainer")
      .def(nb::init<EnvsPtr, EnvsPtr, const std::string&, const std::string&, bool,
                    const std::string&, std::shared_ptr<learn::ActorProcesses>,
                    std::shared_ptr<group::Group>, std::shared_ptr<learn::RemoteCollectors>>(),
           "envs"_a.none(), "eval_envs"_a.none(), "config_json"_a, "run_dir"_a, "resume"_a = false,
           "about_json"_a = "{}", "actors"_a = nb::none(), "group"_a = nb::none(),
           "collectors"_a = nb::none())
      .def("start", [](PyTrainer& trainer) { trainer.get().start(); })
      .def("stop", [](PyTrainer& trainer) { trainer.get().stop(); })
      .def("wait", &PyTrainer::wait, "timeout"_a = nb::none())
      .def("status", &status)
      .def("poll", &poll)
      .def("result", [](PyTrainer& trainer) {
        return trainer.told_once([&] { return to_json(trainer.get().result()).dump(); });
      });
}

}  // namespace shoal::python
