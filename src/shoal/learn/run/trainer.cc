#include "shoal/learn/run/trainer.h"

#include <fmt/format.h>
#include <signal.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "shoal/learn/run/train_journal.h"
#include "shoal/learn/run/training_run.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

/// Blocks all signals while it lives, so that a thread started meanwhile never takes one: Ctrl-C is
/// the main thread's.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

struct Trainer::Impl {
  explicit Impl(TrainSetup setup) : run(std::move(setup), journal) {}
  ~Impl() { stop.request_stop(); }

  void train() noexcept {
    std::optional<TrainResult> outcome;
    std::exception_ptr error;
    try {
      outcome = run.run(stop.get_token());
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    result = std::move(outcome);
    failure = std::move(error);
    ended = true;
    journal.update([](TrainStatus& status) { status.phase = TrainStatus::Phase::kEnded; });
    ended_changed.notify_all();
  }

  TrainJournal journal;
  TrainingRun run;
  std::stop_source stop;
  std::mutex mutex;
  std::condition_variable ended_changed;
  bool started = false;
  bool ended = false;
  std::optional<TrainResult> result;
  std::exception_ptr failure;
  std::jthread thread;  // last: it uses all of the above, and its destructor joins
};

Trainer::Trainer(TrainSetup setup) {
  const auto group = setup.group;
  try {
    impl_ = std::make_unique<Impl>(std::move(setup));
  } catch (const group::PeerLost&) {
    throw;
  } catch (const std::exception& error) {
    if (group) group->fail(error.what());
    throw;
  }
}
Trainer::~Trainer() = default;

void Trainer::start() {
  if (std::exchange(impl_->started, true))
    throw InvalidState("Trainer.start: this run has been started; make a new Trainer to resume it");
  const SignalsBlocked blocked;
  impl_->thread = std::jthread([me = impl_.get()] { me->train(); });
}

void Trainer::stop() noexcept { impl_->stop.request_stop(); }

bool Trainer::wait(std::optional<std::chrono::nanoseconds> timeout) {
  if (!impl_->started) throw InvalidState("Trainer.wait: the run has not been started");
  std::unique_lock lock(impl_->mutex);
  const auto ended = [me = impl_.get()] { return me->ended; };
  if (timeout) {
    if (!impl_->ended_changed.wait_for(lock, *timeout, ended)) return false;
  } else {
    impl_->ended_changed.wait(lock, ended);
  }
  if (impl_->failure) std::rethrow_exception(impl_->failure);
  return true;
}

TrainStatus Trainer::status() const { return impl_->journal.status(); }

std::vector<ScalarRecord> Trainer::poll() { return impl_->journal.poll(); }

TrainResult Trainer::result() const {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->failure) std::rethrow_exception(impl_->failure);
  if (!impl_->result) throw InvalidState("Trainer.result: the run has not ended");
  return *impl_->result;
}

std::string name(TrainResult::Ending ending) {
  switch (ending) {
    case TrainResult::Ending::kBudget:
      return "budget";
    case TrainResult::Ending::kTarget:
      return "target";
    case TrainResult::Ending::kStopped:
      return "stopped";
  }
  return "";
}

nlohmann::json to_json(const TrainResult& result) {
  const auto number = [](const auto& value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
  };
  return {{"ending", name(result.ending)},
          {"run_dir", result.run_directory.string()},
          {"steps", result.steps},
          {"episodes", result.episodes},
          {"seconds", result.seconds},
          {"mean_return", number(result.mean_return)},
          {"std_return", number(result.std_return)},
          {"evaluated_episodes", result.evaluated_episodes},
          {"best_return", number(result.best_return)},
          {"best_step", result.best_step}};
}

}  // namespace shoal::learn
