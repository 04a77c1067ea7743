#include "shoal/vector/sync/process_vector_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "shoal/sync/spin_wait.h"
#include "shoal/trace/recorder.h"

namespace shoal::vector {
namespace {

// Room for the infos of one worker; what does not fit goes over the channel.
constexpr std::size_t kInfoBytesPerEnv = 1024;
constexpr std::size_t kMinInfoBytes = 4096;
constexpr std::size_t kMaxInfoBytes = 64 * 1024;

// Below this a copy costs less than lending; above it three sets would cost too much memory.
constexpr std::size_t kMinLentBytes = 64 * 1024;
constexpr std::size_t kMaxLentBytes = 256 * 1024 * 1024;
constexpr int kLentObsSets = 3;  // the caller's last and newest result, and the one being made

// For an old worker to hand its generators over; it is idle then.
constexpr std::chrono::milliseconds kHandOverTimeout{1000};

int choose_obs_sets(const Options& options, const env::Space& observation, int num_envs) {
  std::size_t bytes = 0;
  for (const env::Leaf& leaf : env::leaves(observation)) bytes += leaf.spec.bytes();
  bytes *= static_cast<std::size_t>(num_envs);
  return options.lend_obs && bytes >= kMinLentBytes && bytes <= kMaxLentBytes ? kLentObsSets : 1;
}

// Fills in which environments each has.
std::vector<WorkerSet::Payload> divide(std::vector<process::WorkerSpec>& workers) {
  if (workers.empty()) throw InvalidArgument("ProcessVectorEnv: no workers");
  std::vector<WorkerSet::Payload> payloads;
  int first_env = 0;
  for (process::WorkerSpec& spec : workers) {
    if (spec.num_envs < 1) {
      throw InvalidArgument(
          fmt::format("ProcessVectorEnv: worker {} has num_envs={}; it needs at least one",
                      payloads.size(), spec.num_envs));
    }
    spec.first_env = first_env;
    first_env += spec.num_envs;
    payloads.push_back({spec.num_envs, {}});
  }
  return payloads;
}

}  // namespace

ProcessVectorEnv::Start::Start(std::shared_ptr<process::Launcher> launcher,
                               std::vector<process::WorkerSpec> workers, const Options& options)
    : payloads(divide(workers)),
      num_envs(workers.back().first_env + workers.back().num_envs),
      pool(std::make_shared<WorkerPool>(std::move(launcher), std::move(workers),
                                        PoolOptions{.pin_workers = options.pin_workers,
                                                    .cpus = options.cpus,
                                                    .shared_state = options.shared_state,
                                                    .close_timeout = options.close_timeout,
                                                    .rounds = true})) {}

ProcessVectorEnv::ProcessVectorEnv(std::shared_ptr<process::Launcher> launcher,
                                   std::vector<process::WorkerSpec> workers, const Options& options)
    : ProcessVectorEnv(Start(std::move(launcher), std::move(workers), options), options) {}

ProcessVectorEnv::ProcessVectorEnv(Start start, const Options& options)
    : options_(options),
      state_(start.num_envs, options.step_before_reset),
      set_(start.pool, std::move(start.payloads), options_, state_, *this, true),
      placement_(start.pool),
      parts_(static_cast<std::size_t>(set_.size())),
      seeds_(static_cast<std::size_t>(set_.num_envs())) {
  try {
    set_.open();
    make_segment();
    set_.attach_all();
  } catch (...) {
    set_.close(std::chrono::milliseconds{0});
    throw;
  }
}

ProcessVectorEnv::~ProcessVectorEnv() { close(); }

void ProcessVectorEnv::make_segment() {
  const Hello& spaces = set_.spaces();
  const AutoresetMode mode = options_.autoreset_mode;
  const int num_envs = set_.num_envs();
  std::size_t most_envs = 0;
  for (int worker = 0; worker < set_.size(); ++worker) {
    most_envs = std::max(most_envs, static_cast<std::size_t>(slot(worker).scene.num_envs));
  }
  const int obs_sets = choose_obs_sets(options_, spaces.observation_space, num_envs);
  obs_sets_ = ObsSets(obs_sets);
  control_ = ControlBlock::create(
      set_.size(), num_envs, mode, obs_sets,
      Rows::bytes(spaces.observation_space, spaces.action_space, num_envs, mode, obs_sets),
      std::clamp(most_envs * kInfoBytesPerEnv, kMinInfoBytes, kMaxInfoBytes));
  has_segment_ = true;
  board().set_backend("process");
  board().set_segment(control_.fd());
  rows_ = Rows::map(control_.rows(), spaces.observation_space, spaces.action_space, num_envs, mode,
                    obs_sets);
}

// --- calls

void ProcessVectorEnv::reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                                   std::span<const std::uint8_t> mask) {
  state_.require_idle("reset");
  write_reset_rows(rows_, seeds, mask);
  static_cast<void>(set_.poll());
  if (set_.is_moving()) drain_before_reset();
  if (ledger().impaired()) await_chosen_rows();
  state_.begin_reset(mask);
  for (std::size_t row = 0; row < seeds_.size(); ++row) {
    if (rows_.reset_mask[row] == 0) continue;
    seeds_[row] =
        rows_.has_seed[row] != 0 ? std::optional(std::uint64_t{rows_.seed[row]}) : std::nullopt;
  }
  post(Command::kReset);
}

void ProcessVectorEnv::step_async() {
  state_.require_idle("step");
  static_cast<void>(set_.poll());
  state_.begin_step();
  post(Command::kStep);
}

void ProcessVectorEnv::post(Command command) {
  rows_.select_obs(obs_sets_.advance());
  if (std::exchange(rows_have_faults_, false)) std::fill(rows_.fault.begin(), rows_.fault.end(), 0);
  if (!faults_.empty()) faults_.clear();
  ++sequence_;
  std::uint32_t count = 0;
  for (int worker = 0; worker < set_.size(); ++worker) {
    Part& part = this->part(worker);
    part.command = part.owes_fault || !slot(worker).is_up() ? Command::kNone : command;
    if (part.command == Command::kNone) continue;
    if ((part.has_orders || ledger().impaired()) && !give_orders(worker, command)) {
      part.command = Command::kNone;
      continue;
    }
    ++count;
  }
  posted_none_ = count == 0;
  posted_command_ = command;
  posted_ns_ = os::now_ns();
  if (command == Command::kReset) {
    for (int row = 0; row < rows_.num_envs; ++row) {
      if (rows_.reset_mask[static_cast<std::size_t>(row)] == 0) rows_.carry_over(row);
    }
  }
  const trace::Scope scope(trace::Span::kWake, sequence_);
  control_.gather().start(static_cast<std::uint32_t>(sequence_), count);
  for (int worker = 0; worker < set_.size(); ++worker) {
    if (part(worker).command != Command::kNone) give(worker, part(worker).command);
  }
  control_.doorbell().ring();
}

// Leaves a command with the current sequence; the ring is the caller's.
void ProcessVectorEnv::give(int worker, Command command) {
  part(worker).posted = sequence_;
  cell(worker).command.store(WorkerCell::pack(sequence_, command, rows_.obs_set),
                             std::memory_order_release);  // [command]
}

Batch ProcessVectorEnv::wait(std::optional<std::chrono::nanoseconds> timeout) {
  state_.require_pending();
  const std::uint64_t start_ns = os::now_ns();
  board().waiting(state_.call(), start_ns);
  const Patience patience = patience_for(timeout);
  if (posted_none_) await_any_row(patience);
  wait_for_workers(patience);
  const std::uint64_t now_ns = os::now_ns();
  wait_ns_ += now_ns - start_ns;
  if (posted_command_ == Command::kStep) placement_.learn(now_ns, now_ns - posted_ns_);
  trace::note(trace::Span::kWait, start_ns, now_ns, sequence_);
  trace::note(posted_command_ == Command::kStep ? trace::Span::kStep : trace::Span::kReset,
              posted_ns_, now_ns, sequence_);
  const Batch batch = collect();
  board().received({.batches = steps_,
                    .env_steps = steps_ * static_cast<std::uint64_t>(rows_.num_envs),
                    .resets = resets_,
                    .wait_ns = wait_ns_},
                   now_ns);
  return batch;
}

std::function<bool(os::Deadline)> ProcessVectorEnv::awaited() {
  const CallState::Call call = state_.call();
  if (call != CallState::Call::kStep && call != CallState::Call::kReset) return {};
  if (posted_none_) {  // wait() looks for a row that is live
    return [](os::Deadline deadline) {
      std::this_thread::sleep_until(deadline);
      return false;
    };
  }
  return [&gather = control_.gather()](os::Deadline deadline) {
    return gather.park(deadline) == sync::WaitOutcome::kReady;
  };
}

bool ProcessVectorEnv::somebody_is_at_work() const {
  for (int worker = 0; worker < set_.size(); ++worker) {
    if (is_at_work(worker)) return true;
  }
  return false;
}

void ProcessVectorEnv::wait_for_workers(const Patience& patience) {
  for (;;) {
    const os::Deadline slice_end = patience.slice_end();
    const auto park = [&] {
      ++parks_;
      return control_.gather().park(slice_end);
    };
    if (sync::spin_then_park(
            placement_.spin_policy(), slice_end, [this] { return control_.gather().left() == 0; },
            park) == sync::WaitOutcome::kReady) {
      return;
    }
    static_cast<void>(set_.watch());
    // One that ended between its last row and its arrival is done, and never arrives.
    if (!somebody_is_at_work()) return;
    if (patience.check) patience.check();
    if (patience.over()) throw_timed_out();
  }
}

void ProcessVectorEnv::throw_timed_out() {
  std::string late;
  for (int worker = 0; worker < set_.size(); ++worker) {
    if (!is_at_work(worker)) continue;
    if (!late.empty()) late += ", ";
    late += slot(worker).scene.describe();
    const int env = mark_of(worker).env;
    if (env != EnvMarker::kNone) late += fmt::format(" in environment {}", env);
  }
  throw TimedOut(
      fmt::format("the {} did not end in time; still at it: {}. It stays under way: wait for it "
                  "again, or close()",
                  state_.call() == CallState::Call::kStep ? "step" : "reset", late));
}

Batch ProcessVectorEnv::collect() {
  ++(state_.call() == CallState::Call::kStep ? steps_ : resets_);
  for (int worker = 0; worker < set_.size(); ++worker) collect_from(worker);
  if (ledger().impaired()) mark_rows_that_are_not_live();
  // After the marks: the last row of an episode is a transition.
  for (int worker = 0; worker < set_.size(); ++worker) {
    if (part(worker).drains && part(worker).command != Command::kNone) rest_ended_rows(worker);
  }
  state_.finish();
  return batch_of(rows_);
}

void ProcessVectorEnv::collect_from(int worker) {
  Part& part = this->part(worker);
  if (!part.large_info.empty()) part.large_info.clear();
  if (!part.owes_fault && part.command == Command::kNone) return;  // its rows are not live
  if (!part.owes_fault &&
      cell(worker).failed.load(std::memory_order_relaxed) != 0) {  // relaxed: after [done]
    collect_failure(worker);
  }
  if (part.owes_fault) {
    end_rows_as_fault(worker);
    return;
  }
  if (part.has_orders) settle_orders(worker);
  if (!slot(worker).is_up()) return;  // its last environment has been dropped
  if (cell(worker).info_bytes.load(std::memory_order_relaxed) ==
      WorkerCell::kInfoOnChannel) {  // relaxed: as above
    part.large_info = outcome(worker, PoolKind::kInfo).bytes;
  }
}

// A message that belongs to the call under way.
PoolMessage ProcessVectorEnv::outcome(int worker, PoolKind kind) {
  return set_.await_message(worker, os::deadline_after(options_.faults.start_timeout), "outcome",
                            [&](const PoolMessage& message) {
                              return message.kind == kind && message.sequence == sequence_;
                            });
}

// The step or reset of this worker threw, or that of some of its environments, and it said so.
void ProcessVectorEnv::collect_failure(int worker) {
  const PoolMessage said = outcome(worker, PoolKind::kFaults);
  std::vector<process::ErrorReport> reports = decode_reports(said.bytes);
  if (reports.empty()) reports.push_back(report_in({}));
  const bool whose = std::ranges::all_of(reports, [&](const process::ErrorReport& report) {
    return report.env_index >= slot(worker).scene.first_env &&
           report.env_index < slot(worker).end_env();
  });
  if (!said.flag && whose) {
    lose_rows(worker, std::move(reports));
  } else if (options_.faults.on_fault == OnFault::kRaise) {
    process::RemoteError failure =
        set_.faults().failure(slot(worker).scene, std::move(reports.front()));
    add_later_failures(worker, failure);
    throw failure;
  } else {
    set_.fail(worker, std::move(reports.front()));
  }
}

// What has failed in the workers after `first`, whose reports nobody else will read.
void ProcessVectorEnv::add_later_failures(int first, process::RemoteError& failure) {
  for (int worker = first + 1; worker < set_.size(); ++worker) {
    if (part(worker).command == Command::kNone || part(worker).owes_fault) continue;
    if (cell(worker).failed.load(std::memory_order_relaxed) == 0)
      continue;  // relaxed: after [done]
    try {
      auto reports = decode_reports(outcome(worker, PoolKind::kFaults).bytes);
      failure.also({slot(worker).scene.name, std::move(reports.at(0))});
    } catch (const Error&) {  // it died since, or its report is damaged: the first failure counts
    }
  }
}

std::span<const std::byte> ProcessVectorEnv::info(int worker) {
  set_.hello(worker);  // refuses a worker that there is not
  const Part& part = this->part(worker);
  if (!part.large_info.empty()) return part.large_info;
  if (part.command == Command::kNone || !slot(worker).is_up()) return {};
  const std::uint64_t bytes =
      cell(worker).info_bytes.load(std::memory_order_relaxed);  // relaxed: after [done]
  const std::span<const std::byte> area = control_.info(worker);
  return bytes <= area.size() ? area.first(bytes) : std::span<const std::byte>{};
}

Stats ProcessVectorEnv::stats() const {
  Stats stats{.steps = steps_,
              .resets = resets_,
              .wait_ns = wait_ns_,
              .parks = parks_,
              .placement = placement_.account(),
              .workers = {}};
  const auto read = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);  // relaxed: telemetry
  };
  for (int worker = 0; worker < set_.size(); ++worker) {
    const WorkerCell& words = cell(worker);
    stats.workers.push_back({.first_env = slot(worker).scene.first_env,
                             .num_envs = slot(worker).scene.num_envs,
                             .pid = set_.pid(worker),
                             .steps = read(words.steps),
                             .resets = read(words.resets),
                             .requests = read(words.requests),
                             .busy_ns = read(words.busy_ns),
                             .parks = read(words.parks),
                             .restarts = set_.restarts(worker)});
  }
  return stats;
}

// --- the workers' transport

std::uint64_t ProcessVectorEnv::prepare(int worker) {
  WorkerCell& words = cell(worker);
  // relaxed: nobody is there yet
  words.env_now.store(EnvMarker::kNone, std::memory_order_relaxed);
  words.env_since.store(os::coarse_now_ns(), std::memory_order_relaxed);
  words.has_orders.store(0, std::memory_order_relaxed);
  words.hold_resets.store(0, std::memory_order_relaxed);
  words.failed.store(0, std::memory_order_relaxed);
  words.info_bytes.store(0, std::memory_order_relaxed);
  words.command.store(WorkerCell::pack(sequence_, Command::kNone), std::memory_order_release);
  words.done.store(sequence_, std::memory_order_relaxed);
  part(worker).posted = sequence_;
  return sequence_;
}

void ProcessVectorEnv::ring(int) {
  if (has_segment_) control_.doorbell().ring();
}

WorkerEngine::Work ProcessVectorEnv::mark_of(int worker) const noexcept {
  const std::int32_t word = cell(worker).env_now.load(std::memory_order_acquire);  // [marker]
  if (word == EnvMarker::kNone) return {};
  return {.env = EnvMarker::blamed(word),
          .in_reset = EnvMarker::in_reset(word),
          .since_ns = cell(worker).env_since.load(std::memory_order_relaxed)};
}

std::optional<WorkerEngine::Work> ProcessVectorEnv::work_of(int worker, std::uint64_t) {
  if (!is_at_work(worker)) return {};
  Work work = mark_of(worker);
  work.in_reset = work.in_reset || part(worker).command == Command::kReset;
  // It may sleep since the last call.
  work.since_ns =
      std::max({work.since_ns, posted_ns_, cell(worker).env_since.load(std::memory_order_relaxed)});
  return work;
}

bool ProcessVectorEnv::is_busy(int worker) const {
  return cell(worker).done.load(std::memory_order_acquire) != part(worker).posted;  // [done]
}

bool ProcessVectorEnv::may_lose(int worker) const {
  const CallState::Call call = state_.call();
  const bool stepping = call == CallState::Call::kStep || call == CallState::Call::kReset;
  return !stepping || is_at_work(worker);
}

std::optional<std::chrono::milliseconds> ProcessVectorEnv::hand_over_wait() const {
  return kHandOverTimeout;
}

}  // namespace shoal::vector
