#include "shoal/process/zygote_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/process/error_report.h"
#include "shoal/process/spawn_program.h"

namespace shoal::process {
namespace {

// How long a worker's end may go unexplained while its zygote lives.
constexpr std::chrono::milliseconds kStatusGrace{1'000};
constexpr std::chrono::milliseconds kStopGrace{1'000};

}  // namespace

ZygoteClient::~ZygoteClient() { stop(); }

void ZygoteClient::launch(const LaunchOptions& options, const Environment& environment) {
  preload_ =
      options.preload.empty() ? "nothing" : fmt::format("{}", fmt::join(options.preload, ", "));
  supervisor_->loop().call([&] { spawn(options, environment); });
}

void ZygoteClient::spawn(const LaunchOptions& options, const Environment& environment) {
  OutputPipe output = OutputPipe::create();
  OutputPipe errors = OutputPipe::create();
  auto [ours, theirs] = os::SeqPacket::pair();
  SpawnedProgram program = spawn_program(options.interpreter, environment, theirs.fd(),
                                         output.write_end.get(), errors.write_end.get());
  control_ = std::move(ours);
  pidfd_ = std::move(program.pidfd);
  {
    const std::lock_guard lock(mutex_);
    pid_ = program.pid;
  }
  readers_ = supervisor_->read_output("zygote", tail_, std::move(output.read_end),
                                      std::move(errors.read_end));
  supervisor_->loop().watch(control_.fd(), POLLIN, [this] { on_control(); });
  supervisor_->loop().watch(pidfd_.fd(), POLLIN, [this] { on_ended(); });
  const wire::Setup setup{.zygote = true,
                          .hide_gpu = options.hide_gpu,
                          .threads = options.threads,
                          .parent_pid = ::getpid(),
                          .preload = options.preload,
                          .bootstrap = options.bootstrap};
  // kClosed: it has ended already, which on_ended() will tell.
  static_cast<void>(control_.send(wire::encode(setup)));
}

bool ZygoteClient::usable() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kStarting || state_ == State::kReady;
}

int ZygoteClient::pid() const {
  const std::lock_guard lock(mutex_);
  return pid_;
}

StartFailed ZygoteClient::failure() const {
  return StartFailed("the zygote cannot start workers: " + why_);
}

void ZygoteClient::wait_ready(os::Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto decided = [this] { return state_ != State::kStarting; };
  if (deadline == os::kNoDeadline) {
    changed_.wait(lock, decided);
  } else if (!changed_.wait_until(lock, deadline, decided)) {
    lock.unlock();
    stop();
    throw TimedOut(
        fmt::format("the zygote was not ready in time (start_timeout): it was still starting up or "
                    "importing its "
                    "preload ({})",
                    preload_));
  }
  if (state_ != State::kReady) throw failure();
}

void ZygoteClient::start_workers(std::span<PendingWorker> workers, os::Deadline deadline) {
  const std::uint64_t first_request = next_request_;
  next_request_ += workers.size();
  supervisor_->loop().call([&] {
    std::uint64_t request = first_request;
    for (PendingWorker& worker : workers) {
      supervisor_->adopt(worker.record, std::move(worker.output.read_end),
                         std::move(worker.errors.read_end));
      if (usable()) {
        requests_[request++] = worker.record;
      } else {
        const std::lock_guard lock(mutex_);
        worker.record->set_failed(std::make_exception_ptr(failure()));
        supervisor_->abandon(worker.record);
      }
    }
  });
  WorkerRecord* previous = nullptr;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    try {
      send_start(workers[i], first_request + i, previous, deadline);
    } catch (...) {
      give_up(workers.subspan(i), first_request + i, std::current_exception());
      throw;
    }
    previous = workers[i].record.get();
  }
}

void ZygoteClient::give_up(std::span<PendingWorker> unsent, std::uint64_t first_request,
                           const std::exception_ptr& error) {
  supervisor_->loop().call([&] {
    for (std::size_t i = 0; i < unsent.size(); ++i) {
      requests_.erase(first_request + i);
      unsent[i].record->set_failed(error);
      supervisor_->abandon(unsent[i].record);
    }
  });
}

void ZygoteClient::send_start(PendingWorker& worker, std::uint64_t request, WorkerRecord* previous,
                              os::Deadline deadline) {
  const std::array fds{worker.channel.fd(), worker.output.write_end.get(),
                       worker.errors.write_end.get()};
  const auto message = wire::encode(worker.start, request);
  for (;;) {
    try {
      if (control_.send(message, fds, deadline) == os::SendOutcome::kTimedOut) {
        throw TimedOut(
            fmt::format("the zygote did not take the request for {} in time (start_timeout)",
                        worker.start.name));
      }
      break;  // sent, or closed: then on_ended() fails the record
    } catch (const SystemError& error) {
      // Descriptors under way count against RLIMIT_NOFILE; they are fewer once the worker before
      // has them.
      if (error.error_number() != ETOOMANYREFS || previous == nullptr) throw;
      if (!previous->wait_running(deadline)) throw;
      previous = nullptr;
    }
  }
  worker.channel.close();
  worker.output.write_end.reset();
  worker.errors.write_end.reset();
}

void ZygoteClient::stop() noexcept {
  if (std::exchange(stopped_, true) || !pidfd_) return;
  try {
    // It has nothing to tidy up, and may be deep in an import; its workers end with it.
    static_cast<void>(pidfd_.send_signal(SIGKILL));
    static_cast<void>(pidfd_.wait(os::deadline_after(kStopGrace)));
    // Whether or not the loop has seen the end: nothing in it refers to this object any more.
    supervisor_->loop().call([this] {
      on_ended();
      detach();
    });
  } catch (const std::exception&) {
    // Only a lack of memory or descriptors leads here; the zygote ends with this process then.
  }
}

void ZygoteClient::on_control() {
  try {
    os::Message message;
    while (control_) {
      const auto outcome = control_.recv(message, os::Clock::now());
      if (outcome == os::RecvOutcome::kTimedOut) return;
      if (outcome == os::RecvOutcome::kClosed) {
        supervisor_->loop().unwatch(control_.fd());  // its pidfd tells the rest
        return;
      }
      on_message(std::move(message));
    }
  } catch (const std::exception& error) {
    // What it says cannot be understood or received: it is of no more use.
    set_state(State::kFailed, error.what());
    supervisor_->loop().unwatch(control_.fd());
    static_cast<void>(pidfd_.send_signal(SIGKILL));
  }
}

void ZygoteClient::on_message(os::Message message) {
  ByteReader reader(message.bytes);
  const wire::Header header = wire::read_header(reader);
  const auto found = requests_.find(header.request);
  switch (header.kind) {
    case wire::Kind::kReady:
      set_state(State::kReady, {});
      return;
    case wire::Kind::kSetupFailed: {
      const auto report = ErrorReport::decode(reader.bytes());
      set_state(State::kFailed, report ? report->describe() : "it gave no reason");
      return;
    }
    case wire::Kind::kStarted:
      on_started(header.request, reader, message);
      return;
    case wire::Kind::kStartFailed: {
      if (found == requests_.end()) return;
      const int error_number = reader.number<std::int32_t>();
      found->second->set_failed(std::make_exception_ptr(SystemError(reader.text(), error_number)));
      supervisor_->abandon(found->second);
      requests_.erase(found);
      return;
    }
    case wire::Kind::kExited: {
      if (found == requests_.end()) return;
      const wire::Exited exited = wire::decode_exited(reader);
      supervisor_->finish(found->second, {.code = exited.code, .signal = exited.signal});
      requests_.erase(found);
      return;
    }
    case wire::Kind::kSetup:
    case wire::Kind::kStart:
      break;
  }
  throw Error("a zygote sent a message that only a launcher sends");
}

void ZygoteClient::on_started(std::uint64_t request, ByteReader& reader, os::Message& message) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return;
  const int pid = reader.number<std::int32_t>();
  if (message.fds.size() != 1) throw Error("a zygote told of a worker without its pidfd");
  found->second->set_running(pid, os::PidFd(std::move(message.fds.front())));
  supervisor_->watch_foreign(found->second, kStatusGrace);
}

void ZygoteClient::on_ended() {
  if (!pidfd_ || !pidfd_.ended()) return;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kEnded) return;
  }
  on_control();  // what it said last
  ExitStatus status{.known = false};
  try {
    if (const auto end = pidfd_.reap()) status = {.code = end->code, .signal = end->signal};
  } catch (const SystemError&) {
    // Collected by somebody else's wait for all children.
  }
  detach();
  std::string why = fmt::format("it ended with {}", status.describe());
  for (const std::string& line : tail_.lines()) why += "\n  | " + line;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kFailed) why = why_;
    pid_ = -1;
  }
  set_state(State::kEnded, std::move(why));
  for (const auto& [request, record] : std::exchange(requests_, {})) {
    if (record->ended()) continue;
    if (record->pid() < 0) {
      const std::lock_guard lock(mutex_);
      record->set_failed(std::make_exception_ptr(failure()));
      supervisor_->abandon(record);
    } else {
      supervisor_->watch_foreign(record, std::chrono::milliseconds(0));
    }
  }
}

void ZygoteClient::detach() {
  supervisor_->loop().unwatch(control_.fd());
  supervisor_->loop().unwatch(pidfd_.fd());
  readers_.finish();
}

void ZygoteClient::set_state(State state, std::string why) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  why_ = std::move(why);
  changed_.notify_all();
}

}  // namespace shoal::process
