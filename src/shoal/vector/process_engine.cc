#include "shoal/vector/process_engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "shoal/os/affinity.h"
#include "shoal/process/stack_dump.h"
#include "shoal/process/welcome.h"
#include "shoal/sync/spin_wait.h"
#include "shoal/vector/messages.h"

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

int choose_obs_sets(const Options& options, const env::Space& observation, int num_envs) {
  std::size_t bytes = 0;
  for (const env::Leaf& leaf : env::leaves(observation)) bytes += leaf.spec.bytes();
  bytes *= static_cast<std::size_t>(num_envs);
  return options.lend_obs && bytes >= kMinLentBytes && bytes <= kMaxLentBytes ? kLentObsSets : 1;
}

// For a worker that is still in somebody's step when it is told to close.
constexpr std::chrono::milliseconds kBusyCloseTimeout{1000};

std::vector<WorkerSeat> make_seats(std::vector<process::WorkerSpec> workers) {
  if (workers.empty()) throw InvalidArgument("ProcessVectorEnv: no workers");
  std::vector<WorkerSeat> seats;
  int first_env = 0;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    process::WorkerSpec& spec = workers[w];
    if (spec.num_envs < 1) {
      throw InvalidArgument(fmt::format(
          "ProcessVectorEnv: worker {} has num_envs={}; it needs at least one", w, spec.num_envs));
    }
    spec.index = static_cast<int>(w);
    spec.first_env = first_env;
    if (spec.name.empty()) spec.name = fmt::format("worker {}", w);
    first_env += spec.num_envs;
    seats.emplace_back(std::move(spec));
  }
  return seats;
}

int count_envs(const std::vector<WorkerSeat>& seats) {
  return seats.back().first_env() + seats.back().num_envs();
}

}  // namespace

ProcessEngine::ProcessEngine(std::shared_ptr<process::Launcher> launcher,
                             std::vector<process::WorkerSpec> workers, const Options& options)
    : launcher_(std::move(launcher)),
      options_(options),
      owner_pid_(::getpid()),
      exits_(std::make_shared<std::atomic<std::uint64_t>>(0)),
      seats_(make_seats(std::move(workers))),
      state_(count_envs(seats_), options_.step_before_reset),
      cpus_(options_.cpus, options_.pin_workers, seats_.size()),
      spread_policy_(cpus_.choice()),
      allowed_cpus_(os::allowed_cpus()),
      spin_policy_(spinning_beside(static_cast<int>(seats_.size()))),
      ledger_(options_.faults, count_envs(seats_)),
      health_(seats_.size()),
      seeds_(static_cast<std::size_t>(count_envs(seats_))) {
  std::vector<process::WorkerSpec> specs;
  for (const WorkerSeat& seat : seats_) specs.push_back(seat.spec());
  if (!options_.board) options_.board = process::Board::create();
  Starts started = launch(std::move(specs));
  for (std::size_t w = 0; w < seats_.size(); ++w) seats_[w].occupy(std::move(started[w]));
  receive_hellos();
  make_segment();
  for (WorkerSeat& seat : seats_) attach(seat);
}

void ProcessEngine::attach(WorkerSeat& seat, std::span<const std::byte> handed) {
  const int pid = seat.process().pid();
  cpus_.place(seat.index(), pid);
  seat.attach(control_, sequence_, handed);
  for (int row = seat.first_env(); row < seat.first_env() + seat.num_envs(); ++row) {
    ledger_.stand(row);
  }
  health_.change(seat.index(), [&](WorkerHealth& health) {
    health.first_env = seat.first_env();
    health.num_envs = seat.num_envs();
    health.pid = pid;
    health.state = WorkerState::kIdle;
    health.restarts = seat.restarts();
    health.recycles = seat.recycles;
    health.cell = seat.cell;
  });
}

ProcessEngine::Starts ProcessEngine::launch(std::vector<process::WorkerSpec> specs) {
  const auto count_exit = [exits = exits_](int) {
    exits->fetch_add(1, std::memory_order_release);  // [exits]
  };
  return launcher_->start(std::move(specs), count_exit, [this](process::WorkerProcess& worker) {
    if (cpus_.chosen()) cpus_.place(worker.spec().index, worker.pid());
    process::send_welcome(worker, *options_.board, static_cast<int>(seats_.size()));
  });
}

Patience ProcessEngine::patience_for_start() const {
  return {os::deadline_after(options_.faults.start_timeout), options_.interrupt_check};
}

Patience ProcessEngine::patience_for(std::optional<std::chrono::nanoseconds> timeout) const {
  return {timeout ? os::deadline_after(*timeout) : os::kNoDeadline, options_.interrupt_check};
}

void ProcessEngine::receive_hellos() {
  Patience patience = patience_for_start();
  patience.check = [this] {
    if (options_.interrupt_check) options_.interrupt_check();
    throw_if_one_died_starting();
  };
  for (WorkerSeat& seat : seats_) {
    try {
      seat.receive_hello(patience);
    } catch (const TimedOut& error) {
      throw TimedOut(account_of_late_start(
          error.what(), options_.faults.start_timeout,
          process::ask_for_stack(seat.process(), std::chrono::milliseconds{1000})));
    }
    check_same_spaces(seats_.front().hello(), seat.hello(), seat.first_env());
  }
  spaces_ = seats_.front().hello();
}

// A worker that fails at once is reported at once, also while the hello of an earlier one is waited
// for.
void ProcessEngine::throw_if_one_died_starting() {
  if (exits_->load(std::memory_order_acquire) == exits_seen_) return;  // [exits]
  for (WorkerSeat& seat : seats_) {
    if (seat.dead()) throw_death(process::DeathCertificate::of(seat.process()));
  }
}

void ProcessEngine::make_segment() {
  const int num_envs = count_envs(seats_);
  const AutoresetMode mode = options_.autoreset_mode;
  std::size_t most_envs = 0;
  for (const WorkerSeat& seat : seats_) {
    most_envs = std::max(most_envs, static_cast<std::size_t>(seat.num_envs()));
  }
  const int obs_sets = choose_obs_sets(options_, spaces_.observation_space, num_envs);
  obs_sets_ = ObsSets(obs_sets);
  control_ = ControlBlock::create(
      static_cast<int>(seats_.size()), num_envs, mode, obs_sets,
      options_.faults.on_fault != OnFault::kRaise,
      std::max(options_.memory_limit, options_.memory_hard_limit),
      Rows::bytes(spaces_.observation_space, spaces_.action_space, num_envs, mode, obs_sets),
      std::clamp(most_envs * kInfoBytesPerEnv, kMinInfoBytes, kMaxInfoBytes));
  rows_ = Rows::map(control_.rows(), spaces_.observation_space, spaces_.action_space, num_envs,
                    mode, obs_sets);
}

const WorkerSeat& ProcessEngine::seat(int worker) const {
  if (worker < 0 || static_cast<std::size_t>(worker) >= seats_.size()) {
    throw InvalidArgument(
        fmt::format("there is no worker {}; there are {}", worker, seats_.size()));
  }
  return seats_[static_cast<std::size_t>(worker)];
}

void ProcessEngine::reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                                std::span<const std::uint8_t> mask) {
  state_.require_idle("reset");
  write_reset_rows(rows_, seeds, mask);
  look_for_deaths();
  if (ledger_.impaired()) {
    // The observation of a reset comes with no mark that says it is none: its rows are waited for.
    const auto wanted = [&](const WorkerSeat& seat) {
      const auto first = rows_.reset_mask.begin() + seat.first_env();
      return std::find(first, first + seat.num_envs(), 1) != first + seat.num_envs();
    };
    await_seats(wanted, patience_for({}));
    for (WorkerSeat& seat : seats_) {
      if (wanted(seat)) seat.owes_fault = false;  // its episodes are over anyway
    }
  }
  if (watches_memory()) {
    watch_memory();
    change_over_before_reset();
  }
  state_.begin_reset(mask);
  for (std::size_t row = 0; row < seeds_.size(); ++row) {
    if (rows_.reset_mask[row] == 0) continue;
    seeds_[row] =
        rows_.has_seed[row] != 0 ? std::optional(std::uint64_t{rows_.seed[row]}) : std::nullopt;
  }
  post(Command::kReset);
}

void ProcessEngine::step_async() {
  state_.require_idle("step");
  look_for_deaths();
  if (watches_memory()) watch_memory();
  if (ledger_.impaired()) tend();
  state_.begin_step();
  post(Command::kStep);
}

void ProcessEngine::post(Command command) {
  rows_.select_obs(obs_sets_.advance());
  if (std::exchange(rows_have_faults_, false)) std::fill(rows_.fault.begin(), rows_.fault.end(), 0);
  if (!faults_.empty()) faults_.clear();
  ++sequence_;
  std::uint32_t count = 0;
  for (WorkerSeat& seat : seats_) {
    seat.command = seat.owes_fault || !seat.attached() ? Command::kNone : command;
    if (seat.command == Command::kNone) continue;
    if ((seat.has_orders || ledger_.impaired()) && !give_orders(seat, command)) {
      seat.command = Command::kNone;
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
  control_.gather().start(static_cast<std::uint32_t>(sequence_), count);
  for (WorkerSeat& seat : seats_) {
    if (seat.command != Command::kNone) give(seat, seat.command);
  }
  control_.doorbell().ring();
}

// Leaves a command with the current sequence; the ring is the caller's.
void ProcessEngine::give(WorkerSeat& seat, Command command) {
  seat.posted = sequence_;
  cell_of(seat).command.store(WorkerCell::pack(sequence_, command, rows_.obs_set),
                              std::memory_order_release);  // [command]
}

// True when the worker has not obeyed its last command yet.
bool ProcessEngine::busy(const WorkerSeat& seat) const {
  return cell_of(seat).done.load(std::memory_order_acquire) != seat.posted;  // [done]
}

Batch ProcessEngine::wait(std::optional<std::chrono::nanoseconds> timeout) {
  state_.require_pending();
  const std::uint64_t start_ns = os::now_ns();
  const Patience patience = patience_for(timeout);
  if (posted_none_) await_any_row(patience);
  wait_for_workers(patience);
  const std::uint64_t now_ns = os::now_ns();
  wait_ns_ += now_ns - start_ns;
  if (posted_command_ == Command::kStep) learn_placement(now_ns);
  return collect();
}

void ProcessEngine::wait_for_workers(const Patience& patience) {
  for (;;) {
    const os::Deadline slice_end = patience.slice_end();
    const auto park = [&] {
      ++parks_;
      return control_.gather().park(slice_end);
    };
    if (sync::spin_then_park(
            spin_policy_, slice_end, [this] { return control_.gather().left() == 0; }, park) ==
        sync::WaitOutcome::kReady) {
      return;
    }
    look_for_hangs();
    look_for_hogs();
    if (settle_dead_workers()) return;
    if (patience.check) patience.check();
    if (os::Clock::now() >= patience.deadline) throw_timed_out();
  }
}

void ProcessEngine::throw_timed_out() {
  std::string late;
  for (const WorkerSeat& seat : seats_) {
    if (seat.command == Command::kNone || seat.owes_fault) continue;
    if (!busy(seat)) continue;
    if (!late.empty()) late += ", ";
    late += seat.describe();
    const int env = EnvMarker::blamed(
        cell_of(seat).env_now.load(std::memory_order_relaxed));  // relaxed: a hint
    if (env != EnvMarker::kNone) late += fmt::format(" in environment {}", env);
  }
  throw TimedOut(fmt::format(
      "the {} did not end in time; still at it: {}. It stays under way: wait() again, or close()",
      state_.call() == CallState::Call::kStep ? "step" : "reset", late));
}

Batch ProcessEngine::collect() {
  ++(state_.call() == CallState::Call::kStep ? steps_ : resets_);
  for (WorkerSeat& seat : seats_) collect_seat(seat);
  if (ledger_.impaired()) mark_rows_that_are_not_live();
  if (watches_memory()) {  // after the marks: the last row of an episode is a transition
    for (WorkerSeat& seat : seats_) {
      if (seat.draining && seat.command != Command::kNone) rest_ended_rows(seat);
    }
  }
  state_.finish();
  return batch_of(rows_);
}

void ProcessEngine::collect_seat(WorkerSeat& seat) {
  if (!seat.large_info.empty()) seat.large_info.clear();
  const WorkerCell& cell = cell_of(seat);
  if (!seat.owes_fault && seat.command == Command::kNone) return;  // its rows are not live
  if (!seat.owes_fault &&
      cell.failed.load(std::memory_order_relaxed) != 0) {  // relaxed: after [done]
    collect_failure(seat);
  }
  if (seat.owes_fault) {
    end_rows_as_fault(seat);
    return;
  }
  if (seat.has_orders) settle_orders(seat);
  if (!seat.attached()) return;  // its last environment has been dropped
  if (cell.info_bytes.load(std::memory_order_relaxed) ==
      WorkerCell::kInfoOnChannel) {  // relaxed: as above
    seat.large_info = next_of_kind(seat, MessageKind::kInfo).bytes;
  }
}

// A message that belongs to the call under way.
BytesMessage ProcessEngine::next_of_kind(WorkerSeat& seat, MessageKind kind) {
  const Patience patience = patience_for_start();
  for (;;) {  // answers to requests that were given up may be in front of it
    BytesMessage message = decode_bytes(seat.next_message(patience, "outcome"));
    if (message.kind == kind && message.sequence == sequence_) return message;
  }
}

std::span<const std::byte> ProcessEngine::info(int worker) const {
  const WorkerSeat& at = seat(worker);
  if (!at.large_info.empty()) return at.large_info;
  if (at.command == Command::kNone || !at.attached()) return {};
  const std::uint64_t bytes =
      cell_of(at).info_bytes.load(std::memory_order_relaxed);  // relaxed: after [done]
  const std::span<const std::byte> area = control_.info(at.cell);
  return bytes <= area.size() ? area.first(bytes) : std::span<const std::byte>{};
}

Stats ProcessEngine::stats() const {
  Stats stats{.steps = steps_,
              .resets = resets_,
              .wait_ns = wait_ns_,
              .parks = parks_,
              .placement = spread_policy_.account(),
              .workers = {}};
  for (const WorkerSeat& seat : seats_) {
    const auto read = [&](std::atomic<std::uint64_t> WorkerCell::* counter) {
      std::uint64_t sum = 0;
      for (auto cell = static_cast<std::uint32_t>(seat.index()); cell < control_.header().num_cells;
           cell += control_.header().num_workers) {
        sum += (control_.cell(static_cast<int>(cell)).*counter)
                   .load(std::memory_order_relaxed);  // relaxed: telemetry
      }
      return sum;
    };
    stats.workers.push_back({.first_env = seat.first_env(),
                             .num_envs = seat.num_envs(),
                             .pid = seat.occupied() ? seat.process().pid() : 0,
                             .steps = read(&WorkerCell::steps),
                             .resets = read(&WorkerCell::resets),
                             .requests = read(&WorkerCell::requests),
                             .busy_ns = read(&WorkerCell::busy_ns),
                             .parks = read(&WorkerCell::parks),
                             .restarts = seat.restarts()});
  }
  return stats;
}

void ProcessEngine::await_end(process::WorkerProcess& worker, os::Deadline deadline) noexcept {
  const Patience patience{.deadline = deadline, .check = options_.interrupt_check};
  do {
    const auto left = os::time_left(closing_.wait_until(patience));
    if (worker.join(std::chrono::ceil<std::chrono::milliseconds>(left))) return;
  } while (closing_.goes_on(patience));
}

// Of a worker that was told to close and has ended: what its environments raised then.
std::vector<process::ErrorReport> ProcessEngine::close_failures(
    process::WorkerProcess& worker) noexcept {
  std::vector<process::ErrorReport> failures;
  try {
    os::Message message;
    while (worker.channel().recv(message, os::Clock::now()) == os::RecvOutcome::kMessage) {
      // There may be reports of the calls before, which nobody has waited for.
      if (process::ErrorReport::decode(message.bytes)) continue;
      const BytesMessage said = decode_bytes(message.bytes);
      if (said.kind != MessageKind::kClosed) continue;
      std::ranges::move(decode_reports(said.bytes), std::back_inserter(failures));
    }
  } catch (const std::exception&) {
    // A channel that broke, or a message that is damaged: the worker was killed.
  }
  return failures;
}

void ProcessEngine::close(std::chrono::milliseconds timeout) noexcept {
  if (state_.closed()) return;
  state_.close();
  if (owner_pid_ != ::getpid()) return;  // a forked copy: the workers are not its own
  const os::Deadline idle_deadline = os::deadline_after(timeout);
  const os::Deadline busy_deadline = os::deadline_after(std::min(timeout, kBusyCloseTimeout));
  std::vector<os::Deadline> deadlines;
  ++sequence_;
  for (WorkerSeat& seat : seats_) {
    if (!seat.attached()) continue;
    deadlines.push_back(busy(seat) ? busy_deadline : idle_deadline);
    give(seat, Command::kClose);
  }
  if (!deadlines.empty()) control_.doorbell().ring();
  auto deadline = deadlines.begin();
  for (WorkerSeat& seat : seats_) {
    if (!seat.attached()) continue;
    await_end(seat.process(), *deadline++);
    for (process::ErrorReport& report : close_failures(seat.process())) {
      closing_.add(seat.spec().name, std::move(report));
    }
  }
  for (WorkerSeat& seat : seats_) {  // kills those that are left
    seat.successor.reset();
    seat.vacate();
  }
  for (const Leaving& old : leaving_) tell_close_failures(old);
  leaving_.clear();
  launcher_.reset();  // and its zygote, where nobody else uses it
}

}  // namespace shoal::vector
