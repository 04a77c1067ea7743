#include "shoal/vector/process_vector_env.h"

#include <utility>

#include "shoal/vector/process_engine.h"

namespace shoal::vector {

ProcessVectorEnv::ProcessVectorEnv(std::shared_ptr<process::Launcher> launcher,
                                   std::vector<process::WorkerSpec> workers, const Options& options)
    : engine_(std::make_unique<ProcessEngine>(std::move(launcher), std::move(workers), options)) {}

ProcessVectorEnv::~ProcessVectorEnv() = default;

int ProcessVectorEnv::num_envs() const noexcept { return engine_->rows().num_envs; }

int ProcessVectorEnv::num_workers() const noexcept {
  return static_cast<int>(engine_->seats().size());
}

const env::Space& ProcessVectorEnv::single_observation_space() const noexcept {
  return engine_->spaces().observation_space;
}

const env::Space& ProcessVectorEnv::single_action_space() const noexcept {
  return engine_->spaces().action_space;
}

AutoresetMode ProcessVectorEnv::autoreset_mode() const noexcept {
  return engine_->rows().autoreset_mode;
}

std::span<const shm::TensorView> ProcessVectorEnv::actions() const noexcept {
  return engine_->rows().actions;
}

void ProcessVectorEnv::reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                                   std::span<const std::uint8_t> mask) {
  engine_->reset_async(seeds, mask);
}

void ProcessVectorEnv::step_async() { engine_->step_async(); }

Batch ProcessVectorEnv::wait(std::optional<std::chrono::nanoseconds> timeout) {
  return engine_->wait(timeout);
}

std::shared_ptr<const void> ProcessVectorEnv::lease_obs() { return engine_->lease_obs(); }

std::span<const std::byte> ProcessVectorEnv::info(int worker) { return engine_->info(worker); }

std::vector<std::byte> ProcessVectorEnv::request(int worker, std::span<const std::byte> message,
                                                 std::optional<std::chrono::nanoseconds> timeout) {
  return engine_->request(worker, message, timeout);
}

VectorEnv::Presence ProcessVectorEnv::presence(int env) const { return engine_->presence(env); }

void ProcessVectorEnv::restored(int env) { engine_->restored(env); }

void ProcessVectorEnv::request_async(std::span<const std::vector<std::byte>> messages) {
  engine_->request_async(messages);
}

std::vector<std::vector<std::byte>> ProcessVectorEnv::request_wait(
    std::optional<std::chrono::nanoseconds> timeout) {
  return engine_->request_wait(timeout);
}

Stats ProcessVectorEnv::stats() const { return engine_->stats(); }

std::vector<WorkerHealth> ProcessVectorEnv::health() const { return engine_->health(); }

std::span<const RowFaultRecord> ProcessVectorEnv::faults() const { return engine_->faults(); }

void ProcessVectorEnv::close() noexcept { engine_->close(); }

void ProcessVectorEnv::close_within(std::chrono::milliseconds timeout) noexcept {
  engine_->close(timeout);
}

VectorEnv::CloseOutcome ProcessVectorEnv::take_close_outcome() {
  return engine_->take_close_outcome();
}

const Hello& ProcessVectorEnv::hello(int worker) const { return engine_->seat(worker).hello(); }

int ProcessVectorEnv::pid(int worker) const {
  const WorkerSeat& seat = engine_->seat(worker);
  return seat.occupied() ? seat.process().pid() : 0;
}

}  // namespace shoal::vector
