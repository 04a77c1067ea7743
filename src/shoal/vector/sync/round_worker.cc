#include "shoal/vector/sync/round_worker.h"

#include <cstring>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/trace/recorder.h"

namespace shoal::vector {

RoundWorker::RoundWorker(ControlBlock control, int worker, int first_env, std::uint64_t sequence,
                         std::unique_ptr<Stepper> stepper, RoundWorkerHooks hooks)
    : control_(std::move(control)),
      worker_(worker),
      cell_(&control_.cell(worker)),
      stepper_(std::move(stepper)),
      hooks_(std::move(hooks)),
      marker_(&cell_->env_now, &cell_->env_since),
      sequence_(sequence) {
  const ControlHeader& header = control_.header();
  const Hello& hello = stepper_->hello();
  const Rows rows = Rows::map(control_.rows(), hello.observation_space, hello.action_space,
                              static_cast<int>(header.num_envs),
                              static_cast<AutoresetMode>(header.autoreset_mode),
                              static_cast<int>(header.obs_sets));
  stepper_->attach(rows, first_env, marker_);
  guard_ = FaultGuard(*stepper_, rows, first_env, marker_, hooks_.tolerant,
                      [this] { return describe_failure(); });
}

int RoundWorker::serve(int) {
  const std::uint64_t word = command_word();
  if (WorkerCell::sequence_of(word) == sequence_) return 0;
  sequence_ = WorkerCell::sequence_of(word);
  const Command command = WorkerCell::command_of(word);
  if (command == Command::kNone) return 1;
  step_or_reset(command, WorkerCell::obs_set_of(word));
  cell_->done.store(sequence_, std::memory_order_release);  // [done]
  control_.gather().arrive(static_cast<std::uint32_t>(sequence_));
  return 1;
}

void RoundWorker::step_or_reset(Command command, int obs_set) {
  const std::uint64_t start_ns = os::now_ns();
  auto failed = WorkerFailure::kNone;
  marker_.none();
  guard_.select_obs(obs_set);
  try {
    // relaxed: both are ordered by [command]
    const bool has_orders = cell_->has_orders.load(std::memory_order_relaxed) != 0;
    stepper_->hold_resets(cell_->hold_resets.load(std::memory_order_relaxed) != 0);
    if (command == Command::kStep) {
      guard_.step(has_orders);
    } else {
      guard_.reset(has_orders);
    }
    if (!guard_.reports().empty()) {
      failed = WorkerFailure::kEnvironments;
      tell_faults(guard_.reports(), false);
    }
    publish_info();
  } catch (...) {
    failed = WorkerFailure::kWorker;
    // relaxed: [done] and the gather order it
    cell_->info_bytes.store(0, std::memory_order_relaxed);
    const process::ErrorReport report = describe_failure();
    tell_faults(std::span(&report, 1), true);
  }
  marker_.none();
  // relaxed: [done] and the gather order it
  cell_->failed.store(static_cast<std::uint32_t>(failed), std::memory_order_relaxed);
  add_alone(command == Command::kStep ? cell_->steps : cell_->resets, 1);
  const std::uint64_t end_ns = os::now_ns();
  add_alone(cell_->busy_ns, end_ns - start_ns);
  trace::note(command == Command::kStep ? trace::Span::kWorkerStep : trace::Span::kWorkerReset,
              start_ns, end_ns, sequence_);
}

// A parent that is gone needs no reports.
void RoundWorker::tell_faults(std::span<const process::ErrorReport> reports, bool all) {
  static_cast<void>(hooks_.send({.kind = PoolKind::kFaults,
                                 .flag = all,
                                 .sequence = sequence_,
                                 .bytes = encode_reports(reports)}));
}

void RoundWorker::publish_info() {
  const std::span<const std::byte> info = stepper_->info();
  std::uint64_t bytes = info.size();
  if (bytes != 0) {
    const std::span<std::byte> area = control_.info(worker_);
    if (bytes <= area.size()) {
      std::memcpy(area.data(), info.data(), bytes);
    } else {
      // The parent takes it out of the channel before it leaves the next command, so this never
      // waits for long.
      bytes = WorkerCell::kInfoOnChannel;
      if (!hooks_.send({.kind = PoolKind::kInfo,
                        .sequence = sequence_,
                        .bytes = {info.begin(), info.end()}})) {
        bytes = 0;
      }
    }
  }
  // relaxed: [done] and the gather order it
  cell_->info_bytes.store(bytes, std::memory_order_relaxed);
}

// Of the exception that is being handled.
process::ErrorReport RoundWorker::describe_failure() {
  process::ErrorReport report = hooks_.describe_exception
                                    ? hooks_.describe_exception()
                                    : process::ErrorReport::from_current_exception();
  if (report.env_index < 0) report.env_index = EnvMarker::blamed(marker_.word());
  return report;
}

}  // namespace shoal::vector
