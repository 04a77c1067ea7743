#include "shoal/process/zygote/zygote_link.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/process/error_report.h"
#include "shoal/process/supervise/orphans.h"

namespace shoal::process {

bool ZygoteLink::usable() const {
  const std::lock_guard lock(mutex_);
  return state_ != State::kFailed;
}

StartFailed ZygoteLink::failure() const {
  const std::lock_guard lock(mutex_);
  return StartFailed("the zygote cannot start workers: " + why_, end_);
}

bool ZygoteLink::decided_by(os::Deadline until) {
  std::unique_lock lock(mutex_);
  const auto decided = [this] { return state_ != State::kStarting; };
  if (until != os::kNoDeadline) return changed_.wait_until(lock, until, decided);
  changed_.wait(lock, decided);
  return true;
}

bool ZygoteLink::wait_ready(os::Deadline deadline) {
  if (!decided_by(deadline)) return false;
  if (!usable()) throw failure();
  return true;
}

void ZygoteLink::send_setup(wire::Setup setup, const os::SeqPacket& up) {
  setup.line = line_->name();
  const std::array fds{up.fd(), line_->cells().fd()};
  // kClosed: it has ended already, which its pidfd tells.
  static_cast<void>(control_.send(wire::encode(setup), fds));
  line_->cells().close_fd();
}

void ZygoteLink::send_sub_zygote(std::uint64_t request, ZygoteLink& sub_zygote,
                                 const os::SeqPacket& control, os::Deadline deadline) {
  supervisor_.loop().call([&] { sub_zygotes_[request] = &sub_zygote; });
  ByteWriter writer = wire::begin(wire::Kind::kSubZygote, request);
  writer.text(sub_zygote.line_->name());
  const std::array fds{control.fd(), sub_zygote.line_->cells().fd()};
  if (control_.send(writer.take(), fds, deadline) == os::SendOutcome::kTimedOut) {
    throw TimedOut("the zygote did not take the request for a sub-zygote in time (start_timeout)");
  }
  sub_zygote.line_->cells().close_fd();
}

void ZygoteLink::start_worker(const PendingWorker& worker, os::Deadline deadline) {
  const auto message = wire::encode(worker.start, worker.peer->request());
  if (control_.send(message, {}, deadline) == os::SendOutcome::kTimedOut) {
    throw TimedOut(fmt::format("the zygote did not take the request for {} in time (start_timeout)",
                               worker.start.name));
  }  // sent, or closed: then fail() tells the record
}

void ZygoteLink::watch() {
  supervisor_.loop().watch(control_.fd(), POLLIN, [this] { on_control(); });
}

void ZygoteLink::expect(const PendingWorker& worker) {
  const std::uint64_t request = worker.peer->request();
  multiplexer_.add(worker.peer);
  supervisor_.adopt(worker.record);
  requests_[request] = {worker.record, worker.peer};
  if (!usable()) abandon(requests_.find(request), std::make_exception_ptr(failure()));
}

void ZygoteLink::give_up(const PendingWorker& worker, const std::exception_ptr& error) {
  const auto found = requests_.find(worker.peer->request());
  if (found != requests_.end()) abandon(found, error);
}

void ZygoteLink::on_control() {
  try {
    os::Message message;
    while (control_) {
      const auto outcome = control_.recv(message, os::Clock::now());
      if (outcome == os::RecvOutcome::kTimedOut) break;
      if (outcome == os::RecvOutcome::kClosed) {
        supervisor_.loop().unwatch(control_.fd());  // the zygote's pidfd tells the rest
        return;
      }
      on_message(message);
    }
    send_signals();
  } catch (const std::exception& error) {
    // Its message made no sense, or could not be received: it is of no more use.
    fail(error.what());
    supervisor_.loop().unwatch(control_.fd());
    events_.broken();
  }
}

void ZygoteLink::on_message(const os::Message& message) {
  ByteReader reader(message.bytes);
  const wire::Header header = wire::read_header(reader);
  const auto found = requests_.find(header.request);
  switch (header.kind) {
    case wire::Kind::kReady: {
      if (std::exchange(is_open_, true)) throw Error("a zygote said twice that it is ready");
      line_->open(wire::decode_ready(reader).capacity);
      const std::lock_guard lock(mutex_);
      if (state_ == State::kStarting) state_ = State::kReady;
      changed_.notify_all();
      return;
    }
    case wire::Kind::kSetupFailed: {
      const auto report = ErrorReport::decode(reader.bytes());
      fail(report ? report->describe() : "it gave no reason");
      return;
    }
    case wire::Kind::kStartFailed:
      on_start_failed(header.request, reader);
      return;
    case wire::Kind::kStarted: {
      const int pid = reader.number<std::int32_t>();
      if (found == requests_.end()) return;
      found->second.record->set_running(pid, [this, request = header.request](int signal) {
        supervisor_.loop().post([this, request, signal] { queue_signal(request, signal); });
      });
      return;
    }
    case wire::Kind::kOutput: {
      const auto stream = reader.number<std::uint8_t>();
      const std::string text = reader.text();
      if (found != requests_.end()) supervisor_.take_output(*found->second.record, stream, text);
      return;
    }
    case wire::Kind::kExited: {
      const wire::Exited exited = wire::decode_exited(reader);
      if (header.request == 0) ended_sub_zygote_ = exited;
      if (found != requests_.end()) finish(found, {.code = exited.code, .signal = exited.signal});
      return;
    }
    default:
      throw Error("a zygote sent a message that only a launcher sends");
  }
}

void ZygoteLink::on_start_failed(std::uint64_t request, ByteReader& reader) {
  const int error_number = reader.number<std::int32_t>();
  const SystemError error(reader.text(), error_number);
  if (const auto sub_zygote = sub_zygotes_.find(request); sub_zygote != sub_zygotes_.end()) {
    sub_zygote->second->fail(error.what());
    sub_zygotes_.erase(sub_zygote);
  } else if (const auto found = requests_.find(request); found != requests_.end()) {
    abandon(found, std::make_exception_ptr(error));
  }
}

// The worker has ended: messages that it sent before are handed out first.
void ZygoteLink::finish(Requests::iterator found, ExitStatus status) {
  multiplexer_.drain();
  const Request ended = std::move(found->second);
  multiplexer_.remove(found->first);
  requests_.erase(found);
  ended.peer->end();
  supervisor_.finish(ended.record, status);
  events_.worker_gone();
}

// The worker never ran.
void ZygoteLink::abandon(Requests::iterator found, const std::exception_ptr& error) {
  const Request failed = std::move(found->second);
  multiplexer_.remove(found->first);
  requests_.erase(found);
  failed.peer->end();
  failed.record->set_failed(error);
  supervisor_.abandon(failed.record);
  events_.worker_gone();
}

void ZygoteLink::queue_signal(std::uint64_t request, int signal) {
  if (!requests_.contains(request)) return;  // it has ended
  signals_.emplace_back(request, signal);
  send_signals();
}

// Never waits: the zygote may itself wait until this loop has read its messages.
void ZygoteLink::send_signals() {
  const bool waited = !signals_.empty();
  while (!signals_.empty()) {
    const auto [request, signal] = signals_.front();
    ByteWriter writer = wire::begin(wire::Kind::kKill, request);
    writer.number(static_cast<std::int32_t>(signal));
    if (control_.send(writer.take(), {}, os::Clock::now()) == os::SendOutcome::kTimedOut) {
      supervisor_.loop().watch(control_.fd(), POLLIN | POLLOUT, [this] { on_control(); });
      return;
    }
    signals_.pop_front();
  }
  if (waited) watch();
}

void ZygoteLink::fail(const std::string& why, std::shared_ptr<const ZygoteEnd> end) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kFailed) why_ = why;
    if (end) end_ = std::move(end);
    state_ = State::kFailed;
    changed_.notify_all();
  }
  const auto error = std::make_exception_ptr(failure());
  for (auto next = requests_.begin(); next != requests_.end();) {
    const auto found = next++;
    if (found->second.record->pid() < 0) abandon(found, error);
  }
}

std::vector<pid_t> ZygoteLink::running() const {
  std::vector<pid_t> pids;
  for (const auto& [request, worker] : requests_) {
    if (const int pid = worker.record->pid(); pid > 0) pids.push_back(pid);
  }
  return pids;
}

void ZygoteLink::finish_all(const std::shared_ptr<const ZygoteEnd>& end) {
  const std::vector<pid_t> sessions = running();
  while (!requests_.empty()) finish(requests_.begin(), {.known = false, .zygote = end});
  end_sessions(sessions);  // the zygote can see to what they have started no more
}

void ZygoteLink::detach() { supervisor_.loop().unwatch(control_.fd()); }

}  // namespace shoal::process
