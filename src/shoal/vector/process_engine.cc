#include "shoal/vector/process_engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "shoal/os/affinity.h"
#include "shoal/vector/messages.h"

namespace shoal::vector {
namespace {

// Room for the infos of one worker; what does not fit goes over the channel.
constexpr std::size_t kInfoBytesPerEnv = 1024;
constexpr std::size_t kMinInfoBytes = 4096;
constexpr std::size_t kMaxInfoBytes = 64 * 1024;

// For a worker that is still in somebody's step when it is told to close.
constexpr std::chrono::milliseconds kBusyCloseTimeout{1000};

// With fewer workers than CPUs other programs, or other environments, may need the ones chosen;
// with more, or with less time than the CPUs have, no worker can have one to itself.
std::vector<int> cpus_to_pin(const Options& options, std::size_t workers) {
  if (!options.pin_workers || workers < 2) return {};
  std::vector<int> cpus = os::cpu_set();
  const auto allowed = static_cast<std::size_t>(os::allowed_cpus());
  return cpus.size() == workers && allowed == workers ? cpus : std::vector<int>{};
}

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

os::Deadline deadline_of(std::optional<std::chrono::nanoseconds> timeout) {
  return timeout ? os::deadline_after(*timeout) : os::kNoDeadline;
}

}  // namespace

ProcessEngine::ProcessEngine(std::shared_ptr<process::Launcher> launcher,
                             std::vector<process::WorkerSpec> workers, const Options& options)
    : launcher_(std::move(launcher)),
      options_(options),
      owner_pid_(::getpid()),
      exits_(std::make_shared<std::atomic<std::uint64_t>>(0)),
      seats_(make_seats(std::move(workers))),
      state_(count_envs(seats_)),
      cpus_(cpus_to_pin(options_, seats_.size())) {
  std::vector<process::WorkerSpec> specs;
  for (const WorkerSeat& seat : seats_) specs.push_back(seat.spec());
  Starts started = launch(std::move(specs));
  for (std::size_t w = 0; w < seats_.size(); ++w) seats_[w].occupy(std::move(started[w]));
  receive_hellos();
  make_segment();
  for (WorkerSeat& seat : seats_) attach(seat);
}

// A worker with a CPU of its own is placed there: left alone, the kernel now and then puts two of
// them, or a spinning one and the caller, on one CPU, and leaves another idle.
void ProcessEngine::attach(WorkerSeat& seat) {
  const int pid = seat.process().pid();
  if (!cpus_.empty() && pid != owner_pid_) {
    try {
      os::set_cpu_set({&cpus_[static_cast<std::size_t>(seat.index())], 1}, pid);
    } catch (const SystemError&) {
      // A CPU that has gone, or a worker that is gone and shows as such later: a place is a wish.
    }
  }
  seat.attach(control_, sequence_);
}

ProcessEngine::Starts ProcessEngine::launch(std::vector<process::WorkerSpec> specs) {
  return launcher_->start(std::move(specs), [exits = exits_](int) {
    exits->fetch_add(1, std::memory_order_release);  // [exits]
  });
}

Patience ProcessEngine::patience_for_start() const {
  return {os::deadline_after(options_.start_timeout), options_.interrupt_check};
}

void ProcessEngine::receive_hellos() {
  Patience patience = patience_for_start();
  patience.check = [this] {
    if (options_.interrupt_check) options_.interrupt_check();
    throw_if_one_died_starting();
  };
  for (WorkerSeat& seat : seats_) {
    seat.receive_hello(patience);
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
  control_ = ControlBlock::create(
      static_cast<int>(seats_.size()), num_envs, mode,
      Rows::bytes(spaces_.observation_space, spaces_.action_space, num_envs, mode),
      std::clamp(most_envs * kInfoBytesPerEnv, kMinInfoBytes, kMaxInfoBytes));
  rows_ =
      Rows::map(control_.rows(), spaces_.observation_space, spaces_.action_space, num_envs, mode);
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
  seat_replacements();
  state_.begin_reset(mask);
  for (WorkerSeat& seat : seats_) {
    seat.owes_fault = false;  // its episodes are over anyway
    if (!seat.needs_reset) continue;
    std::fill_n(rows_.reset_mask.begin() + seat.first_env(), seat.num_envs(), std::uint8_t{1});
  }
  post(Command::kReset);
}

void ProcessEngine::step_async() {
  state_.require_idle("step");
  look_for_deaths();
  seat_replacements();
  state_.begin_step();
  post(Command::kStep);
}

void ProcessEngine::post(Command command) {
  if (std::exchange(rows_have_faults_, false)) std::fill(rows_.fault.begin(), rows_.fault.end(), 0);
  ++sequence_;
  std::uint32_t count = 0;
  for (WorkerSeat& seat : seats_) {
    seat.command = seat.owes_fault ? Command::kNone : seat.needs_reset ? Command::kReset : command;
    if (seat.command == Command::kNone) continue;
    ++count;
    if (command == Command::kReset || !seat.needs_reset) continue;
    std::fill_n(rows_.reset_mask.begin() + seat.first_env(), seat.num_envs(), std::uint8_t{1});
    std::fill_n(rows_.has_seed.begin() + seat.first_env(), seat.num_envs(), std::uint8_t{0});
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
  control_.cell(seat.index())
      .command.store(WorkerCell::pack(sequence_, command), std::memory_order_release);  // [command]
}

// True when the worker has not obeyed its last command yet.
bool ProcessEngine::busy(const WorkerSeat& seat) const {
  return control_.cell(seat.index()).done.load(std::memory_order_acquire) != seat.posted;  // [done]
}

Batch ProcessEngine::wait(std::optional<std::chrono::nanoseconds> timeout) {
  state_.require_pending();
  const std::uint64_t start_ns = os::now_ns();
  wait_for_workers({deadline_of(timeout), options_.interrupt_check});
  wait_ns_ += os::now_ns() - start_ns;
  return collect();
}

void ProcessEngine::wait_for_workers(const Patience& patience) {
  if (control_.gather().left() == 0) return;
  ++parks_;
  // Never a spin: the workers need the CPU, and the last of them hands its own over
  // (worker_loop.cc).
  while (control_.gather().park(patience.slice_end()) != sync::WaitOutcome::kReady) {
    if (settle_dead_workers()) return;
    if (patience.check) patience.check();
    if (os::Clock::now() >= patience.deadline) throw_timed_out();
  }
}

// Handles the deaths of workers that have not finished; true when nobody is left to wait for.
bool ProcessEngine::settle_dead_workers() {
  bool all_settled = true;
  for (WorkerSeat& seat : seats_) {
    if (seat.command == Command::kNone || seat.owes_fault) continue;
    const bool dead =
        seat.dead();  // before the look at `done`, which a dead worker no longer changes
    if (!busy(seat)) continue;
    if (!dead) {
      all_settled = false;
      continue;
    }
    control_.gather().arrive(
        static_cast<std::uint32_t>(sequence_));  // in its stead: it did not get there
    handle_death(seat, process::DeathCertificate::of(seat.process()));
  }
  return all_settled;
}

void ProcessEngine::throw_timed_out() {
  std::string late;
  for (const WorkerSeat& seat : seats_) {
    if (seat.command == Command::kNone || seat.owes_fault) continue;
    if (!busy(seat)) continue;
    if (!late.empty()) late += ", ";
    late += seat.describe();
    const int env = EnvMarker::blamed(
        control_.cell(seat.index()).env_now.load(std::memory_order_relaxed));  // relaxed: a hint
    if (env != EnvMarker::kNone) late += fmt::format(" in environment {}", env);
  }
  throw TimedOut(fmt::format(
      "the {} did not end in time; still at it: {}. It stays under way: wait() again, or close()",
      state_.call() == CallState::Call::kStep ? "step" : "reset", late));
}

Batch ProcessEngine::collect() {
  const CallState::Call call = state_.call();
  ++(call == CallState::Call::kStep ? steps_ : resets_);
  for (WorkerSeat& seat : seats_) collect_seat(seat, call);
  state_.finish();
  return batch_of(rows_);
}

void ProcessEngine::collect_seat(WorkerSeat& seat, CallState::Call call) {
  if (!seat.large_info.empty()) seat.large_info.clear();
  const WorkerCell& cell = control_.cell(seat.index());
  if (!seat.owes_fault &&
      cell.failed.load(std::memory_order_relaxed) != 0) {  // relaxed: after [done]
    collect_failure(seat);
  }
  if (seat.owes_fault) {
    end_rows_as_fault(seat);
    return;
  }
  if (std::exchange(seat.needs_reset, false) && call == CallState::Call::kStep) {
    std::fill_n(rows_.reset.begin() + seat.first_env(), seat.num_envs(), std::uint8_t{1});
  }
  if (cell.info_bytes.load(std::memory_order_relaxed) ==
      WorkerCell::kInfoOnChannel) {  // relaxed: as above
    const Patience patience = patience_for_start();
    for (;;) {  // answers to requests that were given up may be in front of it
      BytesMessage message = decode_bytes(seat.next_message(patience, "info"));
      if (message.kind != MessageKind::kInfo || message.sequence != sequence_) continue;
      seat.large_info = std::move(message.bytes);
      break;
    }
  }
}

// The step or reset of this worker threw, and the worker said so.
void ProcessEngine::collect_failure(WorkerSeat& seat) {
  process::ErrorReport report = seat.next_report(patience_for_start());
  if (options_.on_fault == OnFault::kRaise) {
    state_.fail(fmt::format("{} failed: {}: {}", seat.describe(), report.type, report.message));
    throw process::RemoteError(seat.spec().name, std::move(report));
  }
  seat.process().kill(SIGKILL);
  process::DeathCertificate certificate = process::DeathCertificate::of(seat.process());
  certificate.report = std::move(report);
  handle_death(seat, std::move(certificate));
}

std::span<const std::byte> ProcessEngine::info(int worker) const {
  const WorkerSeat& at = seat(worker);
  if (!at.large_info.empty()) return at.large_info;
  if (at.command == Command::kNone || !at.attached()) return {};
  const std::uint64_t bytes =
      control_.cell(worker).info_bytes.load(std::memory_order_relaxed);  // relaxed: after [done]
  const std::span<const std::byte> area = control_.info(worker);
  return bytes <= area.size() ? area.first(bytes) : std::span<const std::byte>{};
}

std::vector<std::byte> ProcessEngine::request(int worker, std::span<const std::byte> message,
                                              std::optional<std::chrono::nanoseconds> timeout) {
  state_.require_idle("request");
  seat(worker);
  look_for_deaths();
  seat_replacements();
  WorkerSeat& at = seats_[static_cast<std::size_t>(worker)];
  const Patience patience{deadline_of(timeout), options_.interrupt_check};
  const std::uint64_t sequence = ++sequence_;
  at.send(encode_bytes(MessageKind::kRequest, sequence, message), patience);
  give(at, Command::kRequest);
  control_.doorbell().ring();
  try {
    for (;;) {
      BytesMessage reply = decode_bytes(at.next_message(patience, "answer"));
      if (reply.sequence != sequence) continue;  // to a request that was given up
      if (reply.kind == MessageKind::kReply) return std::move(reply.bytes);
      throw process::RemoteError(at.spec().name, process::ErrorReport::decode(reply.bytes).value());
    }
  } catch (const process::WorkerDied& death) {
    handle_death(at, death.certificate());
    throw;
  }
}

Stats ProcessEngine::stats() const {
  Stats stats{
      .steps = steps_, .resets = resets_, .wait_ns = wait_ns_, .parks = parks_, .workers = {}};
  for (const WorkerSeat& seat : seats_) {
    const WorkerCell& cell = control_.cell(seat.index());
    const auto read = [](const std::atomic<std::uint64_t>& counter) {
      return counter.load(std::memory_order_relaxed);  // relaxed: telemetry
    };
    stats.workers.push_back({.first_env = seat.first_env(),
                             .num_envs = seat.num_envs(),
                             .pid = seat.occupied() ? seat.process().pid() : 0,
                             .steps = read(cell.steps),
                             .resets = read(cell.resets),
                             .requests = read(cell.requests),
                             .busy_ns = read(cell.busy_ns),
                             .parks = read(cell.parks),
                             .restarts = seat.restarts()});
  }
  return stats;
}

void ProcessEngine::close() noexcept {
  if (state_.closed()) return;
  state_.close();
  if (owner_pid_ != ::getpid()) return;  // a forked copy: the workers are not its own
  const os::Deadline idle_deadline = os::deadline_after(options_.close_timeout);
  const os::Deadline busy_deadline =
      os::deadline_after(std::min(options_.close_timeout, kBusyCloseTimeout));
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
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(os::time_left(*deadline++));
    static_cast<void>(seat.process().join(left));
  }
  for (WorkerSeat& seat : seats_) seat.vacate();  // kills those that are left
  launcher_.reset();                              // and its zygote, where nobody else uses it
}

}  // namespace shoal::vector
