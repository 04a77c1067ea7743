#include "shoal/vector/worker_loop.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/os/log.h"
#include "shoal/os/memory_use.h"
#include "shoal/process/welcome.h"
#include "shoal/sync/spin_policy.h"
#include "shoal/sync/spin_wait.h"
#include "shoal/vector/control_block.h"
#include "shoal/vector/fault_guard.h"
#include "shoal/vector/messages.h"

namespace shoal::vector {
namespace {

// Longest sleep without a look at whether the parent is still there. It normally needs none: the
// worker is killed then.
constexpr std::chrono::seconds kParkSlice{1};

// For a parent that has not taken what was said before.
constexpr std::chrono::seconds kTellTimeout{1};

// Between two looks at the own memory, which take some microseconds each.
constexpr std::uint64_t kMeasureNs = 20'000'000;

class WorkerLoop {
 public:
  WorkerLoop(process::Channel& channel, Stepper& stepper, const WorkerHooks& hooks)
      : channel_(channel), stepper_(stepper), hooks_(hooks) {}

  void run() {
    const std::vector<std::byte> hello = encode_hello(stepper_.hello(), stepper_.count());
    if (!send(hello) || !attach()) return;
    while (obey(next_command())) {
    }
  }

 private:
  bool attach();
  Command next_command();
  sync::WaitOutcome wait(std::uint32_t seen);
  bool obey(Command command);
  void step_or_reset(Command command);
  void publish_info();
  void answer_request();
  void hand_over();
  void close_envs();
  void measure_memory();
  process::ErrorReport describe_failure();
  void finish_command();
  bool send(std::span<const std::byte> message) {
    return channel_.send(message) == os::SendOutcome::kSent;
  }

  process::Channel& channel_;
  Stepper& stepper_;
  const WorkerHooks& hooks_;
  ControlBlock control_;
  WorkerCell* cell_ = nullptr;
  int cell_index_ = 0;
  EnvMarker marker_;
  FaultGuard guard_;
  std::uint64_t measured_ns_ = 0;
  std::uint64_t sequence_ = 0;  // of the command that was obeyed last, or is being obeyed
  int obs_set_ = 0;             // that came with it
  sync::SpinPolicy spin_policy_;
};

bool WorkerLoop::attach() {
  os::Message message;
  if (hooks_.before_park) hooks_.before_park();
  const os::RecvOutcome outcome = process::recv_past_welcome(channel_, message);
  if (hooks_.after_park) hooks_.after_park();
  if (outcome != os::RecvOutcome::kMessage) return false;
  const AttachMessage attach = decode_attach(message.bytes);
  if (message.fds.size() != 1) throw Error("attach to a vector environment: no segment came along");
  control_ = ControlBlock::attach(shm::Arena::attach(std::move(message.fds.front())));
  control_.close_fd();
  cell_index_ = attach.cell;
  sequence_ = attach.sequence;
  cell_ = &control_.cell(cell_index_);
  marker_ = EnvMarker(&cell_->env_now, &cell_->env_since);
  spin_policy_ = sync::SpinPolicy(
      sync::SpinOptions{.group_size = static_cast<int>(control_.header().num_workers)},
      sync::CpuLoad(), static_cast<int>(control_.header().cpus));
  const Hello& hello = stepper_.hello();
  const Rows rows = Rows::map(control_.rows(), hello.observation_space, hello.action_space,
                              static_cast<int>(control_.header().num_envs),
                              static_cast<AutoresetMode>(control_.header().autoreset_mode),
                              static_cast<int>(control_.header().obs_sets));
  stepper_.attach(rows, attach.first_env, marker_);
  if (!attach.handed.empty()) stepper_.take_over(attach.handed);
  guard_ = FaultGuard(stepper_, rows, attach.first_env, marker_, control_.header().tolerant != 0,
                      [this] { return describe_failure(); });
  return true;
}

// Waits for a command that has not been obeyed yet; kClose when the parent is gone.
Command WorkerLoop::next_command() {
  for (;;) {
    // The generation first: a command left after this look comes with a ring that ends the wait.
    const std::uint32_t seen = control_.doorbell().generation();
    const std::uint64_t word = cell_->command.load(std::memory_order_acquire);  // [command]
    if (WorkerCell::sequence_of(word) != sequence_) {
      sequence_ = WorkerCell::sequence_of(word);
      obs_set_ = WorkerCell::obs_set_of(word);
      return WorkerCell::command_of(word);
    }
    if (wait(seen) == sync::WaitOutcome::kTimedOut && channel_.hung_up()) return Command::kClose;
  }
}

sync::WaitOutcome WorkerLoop::wait(std::uint32_t seen) {
  const os::Deadline deadline = os::deadline_after(kParkSlice);
  const auto park = [&] {
    add_alone(cell_->parks, 1);
    if (hooks_.before_park) hooks_.before_park();
    const sync::WaitOutcome outcome = control_.doorbell().park(seen, deadline);
    if (hooks_.after_park) hooks_.after_park();
    return outcome;
  };
  return sync::spin_then_park(
      spin_policy_, deadline, [&] { return control_.doorbell().generation() != seen; }, park);
}

// Returns false when the loop is to end.
bool WorkerLoop::obey(Command command) {
  switch (command) {
    case Command::kStep:
    case Command::kReset:
      step_or_reset(command);
      finish_command();
      return true;
    case Command::kRequest:
      answer_request();
      cell_->done.store(sequence_, std::memory_order_release);  // [done] nobody waits at the gather
      return true;
    case Command::kHandOver:
      hand_over();
      cell_->done.store(sequence_, std::memory_order_release);  // [done] as for a request
      return true;
    case Command::kNone:
      return true;
    case Command::kClose:
      close_envs();
      break;
  }
  return false;
}

void WorkerLoop::step_or_reset(Command command) {
  const std::uint64_t start_ns = os::now_ns();
  auto failed = WorkerFailure::kNone;
  marker_.none();
  guard_.select_obs(obs_set_);
  try {
    // relaxed: both are ordered by [command]
    const bool has_orders = cell_->has_orders.load(std::memory_order_relaxed) != 0;
    stepper_.hold_resets(cell_->hold_resets.load(std::memory_order_relaxed) != 0);
    if (command == Command::kStep) {
      guard_.step(has_orders);
    } else {
      guard_.reset(has_orders);
    }
    if (!guard_.reports().empty()) {
      failed = WorkerFailure::kEnvironments;
      static_cast<void>(
          send(encode_bytes(MessageKind::kFaults, sequence_, encode_reports(guard_.reports()))));
    }
    publish_info();
  } catch (...) {
    failed = WorkerFailure::kWorker;
    cell_->info_bytes.store(0,
                            std::memory_order_relaxed);  // relaxed: [done] and the gather order it
    static_cast<void>(send(describe_failure().encode()));  // a parent that is gone needs no report
  }
  cell_->failed.store(static_cast<std::uint32_t>(failed),
                      std::memory_order_relaxed);  // relaxed: [done] and the gather order it
  if (control_.header().memory_limit > 0) measure_memory();
  add_alone(command == Command::kStep ? cell_->steps : cell_->resets, 1);
  add_alone(cell_->busy_ns, os::now_ns() - start_ns);
}

void WorkerLoop::measure_memory() {
  const std::uint64_t now = os::coarse_now_ns();
  if (now - measured_ns_ < kMeasureNs) return;
  measured_ns_ = now;
  // relaxed: a measure
  cell_->memory_bytes.store(os::memory_use(::getpid()).own_bytes, std::memory_order_relaxed);
}

void WorkerLoop::finish_command() {
  cell_->done.store(sequence_, std::memory_order_release);  // [done]
  control_.gather().arrive(static_cast<std::uint32_t>(sequence_));
}

void WorkerLoop::publish_info() {
  const std::span<const std::byte> info = stepper_.info();
  std::uint64_t bytes = info.size();
  if (bytes != 0) {
    const std::span<std::byte> area = control_.info(cell_index_);
    if (bytes <= area.size()) {
      std::memcpy(area.data(), info.data(), bytes);
    } else {
      // The parent takes it out of the channel before it leaves the next command, so this never
      // waits for long.
      bytes = WorkerCell::kInfoOnChannel;
      if (!send(encode_bytes(MessageKind::kInfo, sequence_, info))) bytes = 0;
    }
  }
  cell_->info_bytes.store(bytes,
                          std::memory_order_relaxed);  // relaxed: [done] and the gather order it
}

// Of the exception that is being handled.
process::ErrorReport WorkerLoop::describe_failure() {
  process::ErrorReport report = hooks_.describe_exception
                                    ? hooks_.describe_exception()
                                    : process::ErrorReport::from_current_exception();
  if (report.env_index < 0) report.env_index = EnvMarker::blamed(marker_.word());
  return report;
}

void WorkerLoop::answer_request() {
  os::Message message;
  BytesMessage request;
  do {  // those of older sequences were given up by a parent whose deadline passed
    if (channel_.recv(message, os::deadline_after(kParkSlice)) != os::RecvOutcome::kMessage) return;
    request = decode_bytes(message.bytes);
  } while (request.sequence != sequence_);
  marker_.none();
  add_alone(cell_->requests, 1);
  try {
    const std::vector<std::byte> reply = stepper_.request(request.bytes);
    static_cast<void>(send(encode_bytes(MessageKind::kReply, sequence_, reply)));
  } catch (...) {
    static_cast<void>(
        send(encode_bytes(MessageKind::kRefusal, sequence_, describe_failure().encode())));
  }
}

void WorkerLoop::hand_over() {
  marker_.none();
  try {
    static_cast<void>(send(encode_bytes(MessageKind::kReply, sequence_, stepper_.hand_over())));
  } catch (...) {
    static_cast<void>(
        send(encode_bytes(MessageKind::kRefusal, sequence_, describe_failure().encode())));
  }
}

// The parent waits for the end of this process before it looks at what came.
void WorkerLoop::close_envs() {
  marker_.none();
  std::vector<process::ErrorReport> reports;
  try {
    reports = stepper_.close();
  } catch (...) {
    reports.push_back(describe_failure());
  }
  if (reports.empty()) return;
  try {
    if (channel_.send(encode_bytes(MessageKind::kClosed, sequence_, encode_reports(reports)), {},
                      os::deadline_after(kTellTimeout)) == os::SendOutcome::kSent) {
      return;
    }
  } catch (const std::exception&) {  // too much for one message
  }
  for (const process::ErrorReport& report : reports) {
    os::log(os::LogLevel::kError, "while it was closed: {}", report.describe());
  }
}

}  // namespace

void run_worker(process::Channel& channel, Stepper& stepper, const WorkerHooks& hooks) {
  WorkerLoop(channel, stepper, hooks).run();
}

}  // namespace shoal::vector
