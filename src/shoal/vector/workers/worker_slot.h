// A worker's slot in a vector environment: which process fills it, and what it is waiting for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/vector/fault/fault_account.h"
#include "shoal/vector/step/stepper.h"
#include "shoal/vector/workers/worker_pool.h"

namespace shoal::vector {

/// A value; WorkerSet keeps it.
struct WorkerSlot {
  enum class State : std::uint8_t {
    kUp,       // its environments are built and attached
    kAway,     // they are not; the next try is at restart_at
    kOpening,  // its worker builds them, until start_deadline
    kGone,     // they were dropped
  };

  /// The way to a successor: a younger incarnation of the same worker.
  struct Move {
    enum class Step : std::uint8_t {
      kOpening,   // its environments are being built there
      kDraining,  // they are built: those here finish their episodes
      kHanding,   // all have: the old worker was asked for their generators
    };
    WorkerPool::Entry to;
    Step step{};
    os::Deadline deadline{};     // of the step
    std::uint64_t sequence = 0;  // of what the old worker was asked
  };

  FaultScene scene;  // worker: of the pool
  std::vector<std::byte> payload;
  Hello hello;
  bool can_rebuild = false;
  State state = State::kOpening;
  Incarnation incarnation;
  std::shared_ptr<PoolDoor> door;
  os::Deadline restart_at{};
  os::Deadline start_deadline{};
  std::uint64_t asked = 0;     // sequence of the last request that was sent
  std::uint64_t answered = 0;  // and of the last that was answered

  std::optional<Move> move;
  os::Deadline move_retry{};       // not before, where one has failed
  std::uint64_t memory_bytes = 0;  // when it was weighed last
  std::uint64_t recycles = 0;
  int begun_anew = 0;  // of these, those without the generators of the worker before

  int end_env() const noexcept { return scene.first_env + scene.num_envs; }
  bool is_up() const noexcept { return state == State::kUp; }
  /// Whether it has a place in the incarnation that it names.
  bool sits() const noexcept { return is_up() || state == State::kOpening; }
  /// Whether it can be asked something.
  bool answers() const noexcept { return is_up() && !(move && move->step == Move::Step::kHanding); }
};

}  // namespace shoal::vector
