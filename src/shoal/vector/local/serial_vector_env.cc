#include "shoal/vector/local/serial_vector_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/trace/recorder.h"

namespace shoal::vector {
SerialVectorEnv::SerialVectorEnv(std::vector<std::unique_ptr<Stepper>> steppers, AutoresetMode mode,
                                 bool step_before_reset)
    : steppers_(std::move(steppers)),
      spaces_(common_spaces(steppers_)),
      state_(count_envs(steppers_), step_before_reset),
      storage_(spaces_.observation_space, spaces_.action_space, count_envs(steppers_), mode),
      rows_(storage_.rows()),
      board_(rows_.num_envs, static_cast<int>(steppers_.size())) {
  board_.set_backend("serial");
  int first_env = 0;
  for (const auto& stepper : steppers_) {
    stepper->attach(rows_, first_env, EnvMarker());
    stats_.workers.push_back({.first_env = first_env, .num_envs = stepper->count()});
    first_env += stepper->count();
  }
}

SerialVectorEnv::~SerialVectorEnv() { close(); }

template <class Work>
void SerialVectorEnv::run(Work work) {
  const bool step = state_.call() == CallState::Call::kStep;
  const std::uint64_t round = stats_.steps + stats_.resets;
  const std::uint64_t begin_ns = os::now_ns();
  std::uint64_t now_ns = begin_ns;
  board_.waiting(state_.call(), now_ns);
  std::size_t w = 0;
  try {
    for (; w < steppers_.size(); ++w) {
      const std::uint64_t start_ns = now_ns;
      work(*steppers_[w], stats_.workers[w]);
      now_ns = os::now_ns();
      stats_.workers[w].busy_ns += now_ns - start_ns;
      trace::note(step ? trace::Span::kWorkerStep : trace::Span::kWorkerReset, start_ns, now_ns,
                  round);
    }
  } catch (...) {
    failure_ = std::current_exception();
    if (steppers_[w]->is_interrupt(
            failure_)) {  // now: the environments may be closed as this call leaves
      state_.interrupt();
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }
  trace::note(step ? trace::Span::kStep : trace::Span::kReset, begin_ns, now_ns, round);
  board_.received({.batches = stats_.steps,
                   .env_steps = stats_.steps * static_cast<std::uint64_t>(rows_.num_envs),
                   .resets = stats_.resets},
                  now_ns);
}

void SerialVectorEnv::reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                                  std::span<const std::uint8_t> mask) {
  state_.require_idle("reset");
  write_reset_rows(rows_, seeds, mask);
  state_.begin_reset(mask);
  ++stats_.resets;
  run([](Stepper& stepper, WorkerStats& stats) {
    stepper.reset();
    ++stats.resets;
  });
}

void SerialVectorEnv::step_async() {
  state_.begin_step();
  ++stats_.steps;
  run([](Stepper& stepper, WorkerStats& stats) {
    stepper.step();
    ++stats.steps;
  });
}

Batch SerialVectorEnv::wait(std::optional<std::chrono::nanoseconds>) {
  state_.require_pending();
  if (failure_) {
    state_.fail("an environment failed");
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  state_.finish();
  return batch_of(rows_);
}

Stepper& SerialVectorEnv::stepper(int worker) {
  if (worker < 0 || static_cast<std::size_t>(worker) >= steppers_.size()) {
    throw InvalidArgument(
        fmt::format("there is no worker {}; there are {}", worker, steppers_.size()));
  }
  return *steppers_[static_cast<std::size_t>(worker)];
}

std::span<const std::byte> SerialVectorEnv::info(int worker) { return stepper(worker).info(); }

std::vector<std::byte> SerialVectorEnv::request(int worker, std::span<const std::byte> message,
                                                std::optional<std::chrono::nanoseconds>) {
  state_.require_idle("request");
  ++stats_.workers.at(static_cast<std::size_t>(worker)).requests;
  return stepper(worker).request(message);
}

void SerialVectorEnv::request_async(std::span<const std::vector<std::byte>> messages) {
  state_.require_idle("request");
  if (messages.size() != steppers_.size()) {
    throw InvalidArgument(fmt::format("request_async: {} messages for {} workers", messages.size(),
                                      steppers_.size()));
  }
  state_.begin_request();
  answers_.assign(steppers_.size(), {});
  failure_ = nullptr;
  for (std::size_t w = 0; w < steppers_.size(); ++w) {
    if (messages[w].empty()) continue;
    ++stats_.workers[w].requests;
    try {
      answers_[w] = steppers_[w]->request(messages[w]);
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
  }
  if (failure_ && std::ranges::any_of(steppers_, [&](const auto& stepper) {
        return stepper->is_interrupt(failure_);
      })) {
    state_.finish();
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

std::vector<std::vector<std::byte>> SerialVectorEnv::request_wait(
    std::optional<std::chrono::nanoseconds>) {
  state_.require_pending_request();
  state_.finish();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return std::move(answers_);
}

Stats SerialVectorEnv::stats() const { return stats_; }

void SerialVectorEnv::close() noexcept {
  state_.close();
  board_.end();
  steppers_.clear();
}

}  // namespace shoal::vector
