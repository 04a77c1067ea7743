#include "shoal/vector/local/thread_vector_env.h"

#include <fmt/format.h>

#include <utility>

#include "shoal/trace/recorder.h"

namespace shoal::vector {

ThreadVectorEnv::ThreadVectorEnv(std::vector<std::unique_ptr<Stepper>> steppers, AutoresetMode mode,
                                 int num_threads)
    : steppers_(std::move(steppers)),
      spaces_(common_spaces(steppers_)),
      state_(count_envs(steppers_)),
      storage_(spaces_.observation_space, spaces_.action_space, count_envs(steppers_), mode),
      rows_(storage_.rows()),
      board_(rows_.num_envs, num_threads > 0 ? num_threads : static_cast<int>(steppers_.size())),
      pool_(divided() ? rows_.num_envs : static_cast<int>(steppers_.size()),
            num_threads > 0 ? num_threads : static_cast<int>(steppers_.size()),
            [this](ThreadPool::Work work, int lo, int hi) { run(work, lo, hi); }) {
  board_.set_backend("thread");
  int first_env = 0;
  for (const auto& stepper : steppers_) {
    stepper->attach(rows_, first_env, EnvMarker());
    first_env += stepper->count();
  }
}

ThreadVectorEnv::~ThreadVectorEnv() { close(); }

// Items are the environments of the one stepper, or else the steppers.
void ThreadVectorEnv::run(ThreadPool::Work work, int lo, int hi) {
  const bool step = work == ThreadPool::Work::kStep;
  if (divided()) {
    step ? steppers_[0]->step_range(lo, hi) : steppers_[0]->reset_range(lo, hi);
    return;
  }
  for (int i = lo; i < hi; ++i) {
    Stepper& stepper = *steppers_[static_cast<std::size_t>(i)];
    step ? stepper.step() : stepper.reset();
  }
}

void ThreadVectorEnv::reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                                  std::span<const std::uint8_t> mask) {
  state_.require_idle("reset");
  write_reset_rows(rows_, seeds, mask);
  state_.begin_reset(mask);
  ++stats_.resets;
  pool_.begin(ThreadPool::Work::kReset);
}

void ThreadVectorEnv::step_async() {
  state_.begin_step();
  ++stats_.steps;
  pool_.begin(ThreadPool::Work::kStep);
}

Batch ThreadVectorEnv::wait(std::optional<std::chrono::nanoseconds> timeout) {
  state_.require_pending();
  const std::uint64_t start_ns = os::now_ns();
  board_.waiting(state_.call(), start_ns);
  const bool finished = pool_.finish(timeout ? os::deadline_after(*timeout) : os::kNoDeadline);
  const std::uint64_t now_ns = os::now_ns();
  stats_.wait_ns += now_ns - start_ns;
  if (!finished) {
    throw TimedOut(
        "the environments did not end their step or reset in time; it stays under way: wait() "
        "again, or close()");
  }
  trace::note(trace::Span::kWait, start_ns, now_ns, pool_.round());
  const bool step = state_.call() == CallState::Call::kStep;
  trace::note(step ? trace::Span::kStep : trace::Span::kReset, pool_.begin_ns(), now_ns,
              pool_.round());
  if (const std::exception_ptr failure = pool_.take_failure()) {
    state_.fail("an environment failed");
    std::rethrow_exception(failure);
  }
  state_.finish();
  board_.received({.batches = stats_.steps,
                   .env_steps = stats_.steps * static_cast<std::uint64_t>(rows_.num_envs),
                   .resets = stats_.resets,
                   .wait_ns = stats_.wait_ns},
                  now_ns);
  return batch_of(rows_);
}

/// Of the contiguous share that `worker` begins with when all workers take part.
int ThreadVectorEnv::first_env(int worker) const noexcept {
  int first = 0;
  for (int w = 0; w < worker; ++w) first += envs_of_worker(num_envs(), num_workers(), w);
  return first;
}

std::vector<std::byte> ThreadVectorEnv::request(int worker, std::span<const std::byte> message,
                                                std::optional<std::chrono::nanoseconds>) {
  state_.require_idle("request");
  if (worker < 0 || worker >= num_workers()) {
    throw InvalidArgument(
        fmt::format("there is no worker {}; there are {}", worker, num_workers()));
  }
  ++requests_;
  int env = first_env(worker);
  std::size_t at = 0;
  while (env >= steppers_[at]->count()) env -= steppers_[at++]->count();
  return steppers_[at]->request(message);
}

Stats ThreadVectorEnv::stats() const {
  Stats stats = stats_;
  stats.parks = pool_.parks();
  stats.workers = pool_.stats();
  int first = 0;
  for (std::size_t w = 0; w < stats.workers.size(); ++w) {
    WorkerStats& worker = stats.workers[w];
    worker.first_env = first;
    worker.num_envs = envs_of_worker(num_envs(), num_workers(), static_cast<int>(w));
    first += worker.num_envs;
  }
  stats.workers[0].requests = requests_;
  return stats;
}

void ThreadVectorEnv::close() noexcept {
  state_.close();
  board_.end();
  pool_.stop();
}

}  // namespace shoal::vector
