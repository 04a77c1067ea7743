#include "shoal/vector/thread_vector_env.h"

#include <utility>

namespace shoal::vector {
namespace {

std::vector<std::unique_ptr<Stepper>> attached(std::vector<std::unique_ptr<Stepper>> steppers,
                                               const Rows& rows) {
  int first_env = 0;
  for (const auto& stepper : steppers) {
    stepper->attach(rows, first_env, EnvMarker());
    first_env += stepper->count();
  }
  return steppers;
}

}  // namespace

ThreadVectorEnv::ThreadVectorEnv(std::vector<std::unique_ptr<Stepper>> steppers, AutoresetMode mode)
    : spaces_(common_spaces(steppers)),
      num_workers_(static_cast<int>(steppers.size())),
      state_(count_envs(steppers)),
      storage_(spaces_.observation_space, spaces_.action_space, count_envs(steppers), mode),
      rows_(storage_.rows()),
      pool_(attached(std::move(steppers), rows_)) {}

ThreadVectorEnv::~ThreadVectorEnv() { close(); }

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
  const bool finished = pool_.finish(timeout ? os::deadline_after(*timeout) : os::kNoDeadline);
  stats_.wait_ns += os::now_ns() - start_ns;
  if (!finished) {
    throw TimedOut(
        "the environments did not end their step or reset in time; it stays under way: wait() "
        "again, or close()");
  }
  if (const std::exception_ptr failure = pool_.take_failure()) {
    state_.fail("an environment failed");
    std::rethrow_exception(failure);
  }
  state_.finish();
  return batch_of(rows_);
}

Stats ThreadVectorEnv::stats() const {
  Stats stats = stats_;
  stats.parks = pool_.parks();
  stats.workers = pool_.stats();
  return stats;
}

void ThreadVectorEnv::close() noexcept {
  state_.close();
  pool_.stop();
}

}  // namespace shoal::vector
