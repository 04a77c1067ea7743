#include "shoal/learn/run/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <limits>
#include <span>
#include <system_error>
#include <tuple>
#include <utility>
#include <variant>

#include "shoal/env/space_json.h"
#include "shoal/learn/a3c/a3c.h"
#include "shoal/learn/algorithm/make_learner.h"
#include "shoal/learn/checkpoint/durable_file.h"
#include "shoal/learn/checkpoint/json_number.h"
#include "shoal/learn/learner/all_finite.h"
#include "shoal/learn/network/philox.h"
#include "shoal/learn/run/trained_policy.h"
#include "shoal/os/error.h"
#include "shoal/os/log.h"
#include "shoal/trace/recorder.h"

namespace shoal::learn {
namespace {

using nlohmann::json;

constexpr std::int64_t kLeastReplay =
    10'000;  // steps of each environment, whatever replay_limit says
constexpr std::size_t kTrainingWindow = 100;      // episodes in IterationStats::episode_return_mean
constexpr double kRateSeconds = 2.0;              // over which steps_per_second forgets
constexpr std::uint32_t kSeedIndex = 0xFFFFFFFF;  // no environment: those of training use their own

const env::Space& observation_space_of(const TrainSetup& setup) {
  if (setup.envs) return setup.envs->single_observation_space();
  return setup.actors ? setup.actors->observation_space() : setup.collectors->observation_space();
}

const env::Space& action_space_of(const TrainSetup& setup) {
  if (setup.envs) return setup.envs->single_action_space();
  return setup.actors ? setup.actors->action_space() : setup.collectors->action_space();
}

int num_envs_of(const TrainSetup& setup) {
  if (setup.envs) return setup.envs->num_envs();
  return setup.actors ? setup.actors->num_envs() : setup.collectors->num_envs();
}

EnvRange range_of(const TrainSetup& setup) {
  return envs_of_rank(setup.config.num_envs, setup.config.algorithm, setup.group);
}

TrainSetup checked(TrainSetup setup) {
  validate(setup.config);
  if ((setup.envs != nullptr) + (setup.actors != nullptr) + (setup.collectors != nullptr) != 1)
    throw InvalidArgument(
        "train: there have to be environments, or actors that have them, here or elsewhere");
  if (setup.actors && !std::holds_alternative<A3cConfig>(setup.config.algorithm))
    throw InvalidArgument(fmt::format("train: actors are for {}, not for {}", A3cConfig::kAlgorithm,
                                      algorithm_of(setup.config.algorithm)));
  const int num_envs = num_envs_of(setup);
  const int wanted = range_of(setup).count;
  if (num_envs != wanted)
    throw InvalidArgument(
        wanted == setup.config.num_envs
            ? fmt::format("train: num_envs is {}, but there are {} environments", wanted, num_envs)
            : fmt::format("train: num_envs is {}, of which this rank has {}, but there are {}",
                          setup.config.num_envs, wanted, num_envs));
  if (setup.eval_envs &&
      (setup.eval_envs->single_observation_space() != observation_space_of(setup) ||
       setup.eval_envs->single_action_space() != action_space_of(setup)))
    throw InvalidArgument("train: the evaluation environments have other spaces");
  if (setup.eval_envs && setup.eval_envs == setup.envs)
    throw InvalidArgument("train: evaluation needs environments of its own");
  return setup;
}

template <class T>
bool has_finite(const NamedArray& array) {
  return all_finite(
      std::span(reinterpret_cast<const T*>(array.bytes.data()), array.bytes.size() / sizeof(T)));
}

/// Whether all of a policy's parameters and moments are numbers.
bool is_finite(const LearnerState& learner) {
  const auto is = [](const NamedArray& array) {
    if (array.spec.dtype == shm::DType::kF32) return has_finite<float>(array);
    return array.spec.dtype != shm::DType::kF64 || has_finite<double>(array);
  };
  return std::ranges::all_of(learner.policy, is) && std::ranges::all_of(learner.normalizer, is);
}

}  // namespace

double rest_between_saves(double every, double took) noexcept {
  constexpr double kRests = 20;
  return every == 0 ? 0 : std::max(every, kRests * took);
}

TrainingRun::TrainingRun(TrainSetup setup, TrainJournal& journal)
    : setup_(checked(std::move(setup))), journal_(journal) {
  LearnerState saved;
  if (setup_
          .resume) {  // before the learner takes the memory of its replay: what the file takes is free by then
    open_directory();
    saved = read_checkpoint();
  }
  learner_ = make_its_learner();
  if (!setup_.resume) open_directory();
  if (setup_.envs) envs_.emplace(setup_.envs);
  last_.episode_return_mean = last_.episode_length_mean = std::numeric_limits<double>::quiet_NaN();
  if (setup_.resume) load(std::move(saved));
  json config = setup_.about;
  config["config"] = to_flat_json(setup_.config);
  if (directory_) directory_->write_config(std::move(config));
  journal_.update([&](TrainStatus& status) {
    status.total_steps = setup_.config.learner().total_steps;
    status.resume = setup_.resume ? ResumeKind::kPending : ResumeKind::kNone;
  });
  publish_standing();
}

group::Group* TrainingRun::group() const noexcept {
  return setup_.group && setup_.group->size() > 1 ? setup_.group.get() : nullptr;
}

const env::Space& TrainingRun::observation_space() const { return observation_space_of(setup_); }
const env::Space& TrainingRun::action_space() const { return action_space_of(setup_); }

std::unique_ptr<Learner> TrainingRun::make_its_learner() {
  const auto& [algorithm, seed] = std::tie(setup_.config.algorithm, setup_.config.seed);
  if (setup_.actors)
    return std::make_unique<A3c>(setup_.actors, std::get<A3cConfig>(algorithm), seed);
  return make_learner(observation_space(), action_space(), setup_.config.num_envs, algorithm, seed,
                      setup_.group, setup_.collectors);
}

double TrainingRun::seconds() const { return earlier_seconds_ + os::seconds_since(started_); }

void TrainingRun::open_directory() {
  if (group() == nullptr || group()->rank() == 0)
    directory_.emplace(setup_.run_directory,
                       setup_.resume ? RunDirectory::Mode::kResume : RunDirectory::Mode::kNew);
}

/// Into `checkpoint_`, but for what is returned.
LearnerState TrainingRun::read_checkpoint() {
  if (directory_) checkpoint_ = Checkpoint::read(last(), Checkpoint::Part::kAll);
  if (group() != nullptr) checkpoint_ = share(*group(), std::move(checkpoint_));
  LearnerState learner = learner_state_of(*checkpoint_);
  checkpoint_->optimizer = {};
  return learner;
}

/// What the options say otherwise than those of the checkpoint, but for how long the run goes on.
std::string TrainingRun::told_anew() const {
  std::string differs;
  const json told = to_flat_json(setup_.config);
  for (const auto& [name, value] : checkpoint_->state.at("config").items()) {
    const auto now = told.find(name);
    if (now == told.end() || *now == value || name == "pause_at_step" || name == "total_steps")
      continue;
    differs += fmt::format("; its run had {} = {}, not {}", name, value.dump(), now->dump());
  }
  return differs;
}

void TrainingRun::load(LearnerState learner) {
  const auto fail = [&](const std::string& what) {
    throw CorruptFile(fmt::format("{}: cannot resume: {}", last().string(), what));
  };
  try {
    const auto& state = checkpoint_->state;
    if (state.at("config").at("num_envs") != setup_.config.num_envs)
      fail(fmt::format("it has {} environments, not {}: leave num_envs as it was",
                       state["config"]["num_envs"].dump(), setup_.config.num_envs));
    // Of what its network computes.
    for (const char* const name : {"activation", "normalize_obs", "pixel_mean"})
      if (const auto its = state["config"].find(name);
          its != state["config"].end() && *its != to_flat_json(setup_.config).at(name))
        throw InvalidArgument("it is of a network that computes something else");
    if (state.at("iteration") != 0) {  // else it has reset its environments alone: it begins anew
      if (group() != nullptr) take_part(range_of(setup_), learner, checkpoint_->envs);
      learner_->load_state(learner);
    }
    earlier_seconds_ = state.at("seconds").get<double>();
    const auto& evaluation = state.at("evaluation");
    standing_.evaluated_step = evaluation.at("evaluated_step").get<std::int64_t>();
    standing_.eval_return = number_or_nothing(evaluation.at("eval_return"));
    standing_.eval_std = number_or_nothing(evaluation.at("eval_std"));
    standing_.eval_episodes = evaluation.at("eval_episodes").get<int>();
    standing_.best_return = number_or_nothing(evaluation.at("best_return"));
    standing_.best_step = evaluation.at("best_step").get<std::int64_t>();
    standing_.reached_target = number_or_nothing(evaluation.at("reached_target"));
    const auto& episodes = state.at("episodes");
    last_.episodes = episodes.at("count").get<std::int64_t>();
    last_.episode_return_mean = number_of(episodes.at("return_mean"));
    last_.episode_length_mean = number_of(episodes.at("length_mean"));
    if (const auto ended = episodes.find("unrecorded"); ended != episodes.end()) {
      ended_.count = ended->at("count").get<std::int64_t>();
      ended_.return_sum = number_of(ended->at("return_sum"));
      ended_.length_sum = number_of(ended->at("length_sum"));
    }
  } catch (const json::exception& error) {
    fail(error.what());
  } catch (const InvalidArgument& error) {
    fail(fmt::format("{}{}", error.what(), told_anew()));
  }
  session_start_step_ = learner_->steps();
  last_.steps = learner_->steps();
  last_.iteration = learner_->iteration();
}

void TrainingRun::place_environments() {
  auto resume = ResumeKind::kNone;
  std::optional<vector::Batch> batch;
  if (!envs_) {
    if (checkpoint_) resume = ResumeKind::kAnew;
  } else if (checkpoint_) {
    const auto back = [&] {
      batch = envs_->replay(checkpoint_->envs);
      return group() == nullptr ? batch.has_value() : all_of(*group(), batch.has_value());
    };
    if (over()) {  // nothing is left to train; the result is the same without them
      resume = ResumeKind::kExact;
    } else if (learner_->iteration() == 0) {
      resume = ResumeKind::kExact;
      learner_->begin(*envs_);
    } else if (back()) {
      resume = ResumeKind::kExact;
      learner_->resume(*envs_, *batch);
    } else {
      resume = ResumeKind::kRestarted;
      learner_->begin(*envs_);
    }
  } else {
    learner_->begin(*envs_);
  }
  if (resume != ResumeKind::kNone) stand_by_best();
  journal_.update([&](TrainStatus& status) { status.resume = resume; });
}

/// The evaluations after the last checkpoint may not be made again (where they are, they find the
/// same): what is best stays so.
void TrainingRun::stand_by_best() {
  if (!directory_) return;
  try {
    const auto best = Checkpoint::read(directory_->best(), Checkpoint::Part::kPolicy);
    const auto& evaluation = best.state.at("evaluation");
    const auto its_return = number_or_nothing(evaluation.at("best_return"));
    if (!(its_return > standing_.best_return)) return;
    standing_.best_return = its_return;
    standing_.best_step = evaluation.at("best_step").get<std::int64_t>();
  } catch (const CorruptFile&) {
    forget_best();
  } catch (const json::exception&) {
    forget_best();
  }
  publish_standing();
}

/// There is none, or it is damaged: the next is the best.
void TrainingRun::forget_best() {
  standing_.best_return.reset();
  standing_.best_step = 0;
}

std::optional<TrainedPolicy> TrainingRun::best_policy() {
  if (!standing_.best_return) return {};
  try {
    return TrainedPolicy::load(directory_->best());
  } catch (const CorruptFile&) {
    forget_best();
    return {};
  }
}

TrainResult TrainingRun::run(const std::stop_token& stop) {
  try {
    return train(stop);
  } catch (const group::PeerLost&) {
    throw;
  } catch (const std::exception& error) {
    if (group() != nullptr) group()->fail(error.what());
    throw;
  }
}

TrainResult TrainingRun::train(const std::stop_token& stop) {
  struct Released {
    Learner& learner;
    std::optional<RunDirectory>& directory;
    ~Released() {
      learner.rest();
      if (directory) directory->release();
    }
  } released{*learner_, directory_};
  started_ = os::Clock::now();
  journal_.update([](TrainStatus& status) { status.phase = TrainStatus::Phase::kTraining; });
  if (directory_) directory_->start_progress(learner_->steps());
  const bool complete = checkpoint_ && over();
  place_environments();
  checkpoint_.reset();
  saved_ = os::Clock::now();

  auto ending = TrainResult::Ending::kStopped;
  while (true) {
    if (evaluation_due()) evaluate_now(stop);
    const Orders next = orders(stop);
    if (next.over) {
      ending = next.target ? TrainResult::Ending::kTarget : TrainResult::Ending::kBudget;
      break;
    }
    if (next.stop) break;
    if (next.save) save();
    limit_replay();
    iterate();
  }
  learner_->rest();  // what follows has the machine for itself
  if (setup_.collectors) {
    if (!complete) require_finite(learner_->policy_state());  // else nobody would resume for them
    setup_.collectors->end(ending != TrainResult::Ending::kStopped);
  }
  if (!complete) save();
  return finish(ending, stop);
}

Orders TrainingRun::orders(const std::stop_token& stop) {
  const double rest = rest_between_saves(setup_.config.save_every_seconds, write_seconds_);
  const Orders mine{
      .stop = stop.stop_requested() || paused(),
      .over = over(),
      .target = standing_.reached_target == setup_.config.target_return && standing_.reached_target,
      .save = learner_->steps() > session_start_step_ && os::seconds_since(saved_) >= rest};
  return group() == nullptr ? mine : agree(*group(), mine);
}

Error TrainingRun::diverged(const std::string& how) const {
  std::string before;
  if (directory_) {
    std::error_code unknown;
    before = std::filesystem::exists(find_directory(last()), unknown)
                 ? fmt::format(". {} is from before", last().string())
                 : ". There is no checkpoint from before";
  }
  return Error(
      fmt::format("training diverged: {}. Too large a learning_rate does this, and very large "
                  "observations or rewards{}",
                  how, before));
}

void TrainingRun::require_finite(const LearnerState& learner) const {
  if (!is_finite(learner))
    throw diverged(fmt::format("iteration {} made parameters or moments that are not finite",
                               learner_->iteration()));
}

void TrainingRun::limit_replay() {
  const auto limit = setup_.config.replay_limit;
  if (envs_ && limit > 0 &&
      envs_->recorded_steps() >= std::max(limit / setup_.config.num_envs, kLeastReplay))
    learner_->begin(*envs_);
}

void TrainingRun::iterate() {
  const auto begun = os::Clock::now();
  const auto before = learner_->steps();
  const auto iterations = learner_->iteration();
  last_ = learner_->iterate();
  if (last_.learned && !std::isfinite(last_.loss))
    throw diverged(fmt::format("the loss of iteration {} is {}", last_.iteration, last_.loss));
  const double took = os::seconds_since(begun);
  const double rate = static_cast<double>(last_.steps - before) / took;
  const double keep = recent_rate_ > 0 ? std::exp(-took / kRateSeconds) : 0.0;
  recent_rate_ = keep * recent_rate_ + (1 - keep) * rate;

  if (!setup_.eval_envs && setup_.config.target_return &&
      last_.episodes >= static_cast<std::int64_t>(kTrainingWindow) &&
      last_.episode_return_mean >= *setup_.config.target_return)
    standing_.reached_target = setup_.config.target_return;

  ended_.add(last_.finished);
  const int interval = setup_.config.learner().log_interval;
  if (last_.iteration / interval > iterations / interval || over()) {
    const double session_rate =
        static_cast<double>(last_.steps - session_start_step_) / (seconds() - earlier_seconds_);
    record(scalars_of(last_, ended_, seconds(), session_rate));
    ended_ = {};
  }
  journal_.update([&](TrainStatus& status) {
    status.last = last_;
    status.seconds = seconds();
    status.steps_per_second = recent_rate_;
  });
}

bool TrainingRun::evaluation_due() const {
  if (!setup_.eval_envs || learner_->steps() == standing_.evaluated_step) return false;
  const auto& [every, final_episodes, target] =
      std::tie(setup_.config.eval_every, setup_.config.final_episodes, setup_.config.target_return);
  if (learner_->steps() >= setup_.config.learner().total_steps)
    return every > 0 || final_episodes > 0 || target;
  return every > 0 && learner_->steps() / every > standing_.evaluated_step / every;
}

bool TrainingRun::over() const {
  const auto& target = setup_.config.target_return;
  return learner_->steps() >= setup_.config.learner().total_steps ||
         (target && standing_.reached_target == target);
}

bool TrainingRun::paused() const {
  return setup_.config.pause_at_step && learner_->steps() >= *setup_.config.pause_at_step;
}

Evaluation TrainingRun::run_evaluation(ActingPolicy& policy, int episodes, Purpose purpose,
                                       const std::stop_token& stop) {
  const trace::Scope scope(trace::Span::kEvaluate);
  journal_.update([](TrainStatus& status) { status.phase = TrainStatus::Phase::kEvaluating; });
  const Philox random(setup_.config.seed);
  const auto bits = random(Stream::kReset, static_cast<std::uint64_t>(learner_->steps()),
                           kSeedIndex, static_cast<std::uint32_t>(purpose));
  EvaluationOptions options;
  options.episodes = episodes;
  options.seed = bits[0] >> 2;  // seed + environment stays below 2^31
  options.cancelled = [&] {
    learner_->attend();
    return stop.stop_requested();
  };
  auto evaluation = evaluate(*setup_.eval_envs, policy, true, options);
  journal_.update([](TrainStatus& status) { status.phase = TrainStatus::Phase::kTraining; });
  tell_of_cuts(evaluation, options.max_episode_steps);
  return evaluation;
}

/// Once.
void TrainingRun::tell_of_cuts(const Evaluation& evaluation, std::int64_t longest) {
  const auto cut = std::ranges::count_if(evaluation.lengths,
                                         [&](std::int64_t length) { return length >= longest; });
  if (cut == 0 || std::exchange(has_told_of_cuts_, true)) return;
  os::log(os::LogLevel::kWarning, "learn",
          "{} of {} episodes of an evaluation were cut after {} steps, and count as they were "
          "then: give the environment a time limit, max_episode_steps=",
          cut, evaluation.lengths.size(), longest);
}

void TrainingRun::evaluate_now(const std::stop_token& stop) {
  const auto& config = setup_.config;
  auto evaluation =
      run_evaluation(learner_->acting(), config.eval_episodes, Purpose::kEvaluation, stop);
  if (!evaluation.complete) return;
  const auto good_enough = [&] {
    return config.target_return && evaluation.mean_return() >= *config.target_return;
  };
  if (good_enough() && config.final_episodes > 0) {
    evaluation = run_evaluation(learner_->acting(), config.final_episodes, Purpose::kFinal, stop);
    if (!evaluation.complete) return;
  }
  standing_.evaluated_step = learner_->steps();
  standing_.eval_return = evaluation.mean_return();
  standing_.eval_std = evaluation.std_return();
  standing_.eval_episodes = static_cast<int>(evaluation.returns.size());
  record(scalars_of(evaluation, learner_->steps(), seconds()));
  if (!(standing_.best_return > standing_.eval_return)) keep_best(evaluation.mean_return());
  if (good_enough()) {
    standing_.reached_target = config.target_return;
    confirmation_ = std::move(evaluation);
  }
  publish_standing();
}

void TrainingRun::keep_best(double mean_return) {
  if (std::isnan(mean_return)) return;
  const auto learner = learner_->policy_state();
  require_finite(learner);
  standing_.best_return = mean_return;
  standing_.best_step = learner_->steps();
  auto arrays = arrays_of(learner, {});
  arrays.optimizer.clear();
  write_checkpoint(directory_->best(), arrays, state_json(learner));
}

void TrainingRun::save() {
  const trace::Scope scope(trace::Span::kSave);
  auto learner = learner_->state();  // which waits for a rollout that is under way
  require_finite(learner);
  const auto begun = os::Clock::now();
  auto envs = envs_ ? envs_->record() : std::vector<NamedArray>();
  if (group() == nullptr || bring_together(*group(), learner, envs))
    write_checkpoint(last(), arrays_of(learner, envs), state_json(learner));
  saved_ = os::Clock::now();
  write_seconds_ = os::seconds_between(begun, saved_);
}

json TrainingRun::state_json(const LearnerState& learner) const {
  return {{"step", learner_->steps()},
          {"iteration", learner_->iteration()},
          {"seconds", seconds()},
          {"config", to_flat_json(setup_.config)},
          {"observation_space", env::space_to_json(observation_space())},
          {"action_space", env::space_to_json(action_space())},
          {"evaluation",
           {{"evaluated_step", standing_.evaluated_step},
            {"eval_return", json_of(standing_.eval_return)},
            {"eval_std", json_of(standing_.eval_std)},
            {"eval_episodes", standing_.eval_episodes},
            {"best_return", json_of(standing_.best_return)},
            {"best_step", standing_.best_step},
            {"reached_target", json_of(standing_.reached_target)}}},
          {"episodes",
           {{"count", last_.episodes},
            {"return_mean", json_of(last_.episode_return_mean)},
            {"length_mean", json_of(last_.episode_length_mean)},
            {"unrecorded",
             {{"count", ended_.count},
              {"return_sum", json_of(ended_.return_sum)},
              {"length_sum", json_of(ended_.length_sum)}}}}},
          {"learner", learner.counters}};
}

TrainResult TrainingRun::finish(TrainResult::Ending ending, const std::stop_token& stop) {
  TrainResult result;
  result.ending = ending;
  result.run_directory = setup_.run_directory;
  result.steps = learner_->steps();
  result.episodes = last_.episodes;
  if (setup_.eval_envs && standing_.eval_return) {
    result.mean_return = standing_.eval_return;
    result.std_return = standing_.eval_std;
    result.evaluated_episodes = standing_.eval_episodes;
  } else if (!std::isnan(last_.episode_return_mean)) {
    result.mean_return = last_.episode_return_mean;
  }
  if (setup_.eval_envs && setup_.config.final_episodes > 0 &&
      ending != TrainResult::Ending::kStopped)
    final_evaluation(result, stop);
  result.best_return = standing_.best_return;
  result.best_step = standing_.best_step;
  result.seconds = seconds();
  if (directory_) directory_->write_result(to_json(result));
  journal_.update([&](TrainStatus& status) { status.seconds = result.seconds; });
  return result;
}

void TrainingRun::final_evaluation(TrainResult& result, const std::stop_token& stop) {
  auto evaluation = std::exchange(confirmation_, std::nullopt);
  if (!evaluation) {
    auto best = best_policy();
    evaluation = run_evaluation(best ? best->acting() : learner_->acting(),
                                setup_.config.final_episodes, Purpose::kFinal, stop);
    if (!evaluation->complete) return;
  }
  result.mean_return = evaluation->mean_return();
  result.std_return = evaluation->std_return();
  result.evaluated_episodes = static_cast<int>(evaluation->returns.size());
}

void TrainingRun::publish_standing() {
  journal_.update([&](TrainStatus& status) {
    status.eval_return = standing_.eval_return;
    status.eval_step = standing_.evaluated_step;
    status.best_return = standing_.best_return;
    status.best_step = standing_.best_step;
    status.last = last_;
    status.seconds = seconds();
  });
}

void TrainingRun::record(ScalarRecord scalars) {
  if (directory_) directory_->append_progress(scalars);
  journal_.add(std::move(scalars));
}

}  // namespace shoal::learn
