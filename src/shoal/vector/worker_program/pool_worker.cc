#include "shoal/vector/worker_program/pool_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/os/log.h"
#include "shoal/os/process/time_slice.h"
#include "shoal/process/identity/welcome.h"
#include "shoal/sync/spin_policy.h"
#include "shoal/sync/spin_wait.h"
#include "shoal/trace/recorder.h"
#include "shoal/vector/async/async_worker.h"
#include "shoal/vector/sync/round_worker.h"
#include "shoal/vector/workers/pool_door.h"
#include "shoal/vector/workers/pool_messages.h"
#include "shoal/vector/workers/worker_pool.h"

namespace shoal::vector {
namespace {

// Longest sleep without a look at whether the parent is still there. It normally needs none: the
// worker is killed then.
constexpr std::chrono::seconds kParkSlice{1};
// Orders of one session before the next one's turn.
constexpr int kTurn = 16;
// A thread that runs for longer beside a worker that spins computes, and keeps the CPU.
constexpr std::chrono::microseconds kPatience{30};
// For a parent that has not taken what was said before.
constexpr std::chrono::seconds kTellTimeout{1};

class PoolWorker {
 public:
  PoolWorker(process::Channel& channel, const process::Identity& identity,
             const PoolWorkerHooks& hooks)
      : channel_(channel), identity_(identity), hooks_(hooks) {}

  void run() {
    if (!join()) return;
    for (;;) {
      // The generation first: what is sent after this look comes with a ring that ends the wait.
      const std::uint32_t seen = bell_->generation();
      if (door_->mail.load(std::memory_order_acquire) != read_) {  // [mail]
        if (!take_mail()) return;
        continue;
      }
      if (serve_all()) continue;
      if (wait(seen) == sync::WaitOutcome::kTimedOut && channel_.hung_up()) return;
    }
  }

 private:
  struct Session {
    process::Identity identity;
    PoolWorkerHooks::Opened opened;  // the stepper until it is attached
    int first_env = 0;
    Hello hello;
    std::unique_ptr<SessionWorker> worker;

    Stepper& stepper() { return worker ? worker->stepper() : *opened.stepper; }
    void pass(const char* point) {
      if (opened.pass) opened.pass(point);
    }
  };

  bool join();
  bool take_mail();
  bool obey(PoolMessage message, std::vector<os::Fd> fds);
  void open(const PoolMessage& message);
  void attach(const PoolMessage& message, os::Fd segment);
  std::unique_ptr<SessionWorker> serve_rounds(const PoolMessage& message, os::Fd fd,
                                              Session& session);
  std::unique_ptr<SessionWorker> serve_orders(const PoolMessage& message, os::Fd fd,
                                              Session& session);
  void answer(const PoolMessage& request);
  void be_told(const PoolMessage& message);
  void close(const PoolMessage& message);
  bool serve_all();
  sync::WaitOutcome wait(std::uint32_t seen);
  /// `session`'s code runs from now on; 0: nobody's.
  void serving(std::uint32_t session) {
    door_->serving.store(session, std::memory_order_relaxed);  // relaxed: a hint
  }
  /// The code that runs is that of `session`. In a pool of rounds the whole process is its worker.
  void enter(const Session& session, std::optional<process::IdentityScope>& scope) const {
    if (!rounds_) scope.emplace(session.identity);
  }
  bool send(const PoolMessage& message) {
    return channel_.send(message.encode()) == os::SendOutcome::kSent;
  }
  void report(std::uint32_t session, const std::function<process::ErrorReport()>& describe,
              PoolKind kind, std::uint64_t sequence = 0);
  void tell_closed(std::uint32_t session, std::span<const process::ErrorReport> reports);

  process::Channel& channel_;
  const process::Identity& identity_;
  const PoolWorkerHooks& hooks_;
  PoolDoor own_door_;
  DoorWords* door_ = nullptr;
  sync::Doorbell* bell_ = nullptr;  // the door's, or the one session's of a pool of rounds
  bool rounds_ = false;
  std::uint64_t read_ = 0;  // messages
  std::map<std::uint32_t, Session> sessions_;
  std::optional<sync::SpinPolicy> spin_policy_;  // once it has joined
};

bool PoolWorker::join() {
  os::Message message;
  if (hooks_.before_park) hooks_.before_park();
  const os::RecvOutcome outcome = process::recv_past_welcome(channel_, message);
  if (hooks_.after_park) hooks_.after_park();
  if (outcome != os::RecvOutcome::kMessage) return false;
  const PoolMessage join = PoolMessage::decode(message.bytes);
  if (join.kind != PoolKind::kJoin || message.fds.size() != 1) {
    throw Error("a worker pool's first message is not the one to join it");
  }
  own_door_ = PoolDoor::attach(shm::Arena::attach(std::move(message.fds.front())));
  own_door_.close_fd();
  door_ = &own_door_.words();
  bell_ = &door_->bell;
  rounds_ = join.flag;
  const DoorHeader& header = own_door_.header();
  spin_policy_ = sync::SpinPolicy(
      sync::SpinOptions{.group_size = static_cast<int>(header.num_workers), .patience = kPatience},
      sync::CpuLoad(), static_cast<int>(header.cpus));
  if (!rounds_) return true;
  serving(kRoundSession);
  open({.kind = PoolKind::kOpen,
        .session = kRoundSession,
        .first = identity_.place().first_env,
        .count = identity_.place().num_envs,
        .bytes = {}});
  serving(0);
  return true;
}

// Returns false when the worker is to end.
bool PoolWorker::take_mail() {
  os::Message message;
  if (channel_.recv(message, os::deadline_after(kParkSlice)) != os::RecvOutcome::kMessage) {
    return !channel_.hung_up();
  }
  ++read_;
  return obey(PoolMessage::decode(message.bytes), std::move(message.fds));
}

bool PoolWorker::obey(PoolMessage message, std::vector<os::Fd> fds) {
  switch (message.kind) {
    case PoolKind::kOpen:
      serving(message.session);
      open(message);
      serving(0);
      return true;
    case PoolKind::kAttach:
      if (fds.size() == 1) attach(message, std::move(fds.front()));
      return true;
    case PoolKind::kRequest:
    case PoolKind::kHandOver:
      serving(message.session);
      answer(message);
      serving(0);
      return true;
    case PoolKind::kTell:
      be_told(message);
      return true;
    case PoolKind::kClose:
      close(message);
      return true;
    default:
      throw Error(fmt::format("a worker got a message of kind {} from its pool",
                              static_cast<std::uint32_t>(message.kind)));
  }
}

void PoolWorker::report(std::uint32_t session,
                        const std::function<process::ErrorReport()>& describe, PoolKind kind,
                        std::uint64_t sequence) {
  const process::ErrorReport report =
      describe ? describe() : process::ErrorReport::from_current_exception();
  static_cast<void>(
      send({.kind = kind, .session = session, .sequence = sequence, .bytes = report.encode()}));
}

void PoolWorker::open(const PoolMessage& message) {
  process::Place place = identity_.place();
  place.first_env = message.first;
  place.num_envs = message.count;
  Session session{
      .identity = rounds_ ? identity_ : process::Identity(place, identity_.shared_state()),
      .opened = {},
      .first_env = message.first,
      .hello = {},
      .worker = {}};
  if (rounds_) {
    session.opened = hooks_.open(message.bytes, message.first, message.count);
  } else {
    try {
      const process::IdentityScope scope(session.identity);
      session.opened = hooks_.open(message.bytes, message.first, message.count);
    } catch (...) {
      report(message.session, hooks_.describe_opening, PoolKind::kFailed);
      return;
    }
  }
  const Stepper& stepper = *session.opened.stepper;
  session.hello = stepper.hello();
  static_cast<void>(send({.kind = PoolKind::kHello,
                          .session = message.session,
                          .count = stepper.count(),
                          .flag = stepper.can_rebuild(),
                          .bytes = encode_hello(stepper.hello())}));
  sessions_.insert_or_assign(message.session, std::move(session));
}

// What fails here ends the worker, which says why: its session is open and waits for nothing more.
void PoolWorker::attach(const PoolMessage& message, os::Fd fd) {
  const auto found = sessions_.find(message.session);
  if (found == sessions_.end()) return;  // it failed to open, and said so
  Session& session = found->second;
  session.worker = rounds_ ? serve_rounds(message, std::move(fd), session)
                           : serve_orders(message, std::move(fd), session);
  if (auto* bell = session.worker->bell()) bell_ = bell;
  if (message.bytes.empty()) return;
  session.pass("attached");
  std::optional<process::IdentityScope> scope;
  enter(session, scope);
  session.stepper().take_over(message.bytes);
  session.pass("taken over");
}

std::unique_ptr<SessionWorker> PoolWorker::serve_rounds(const PoolMessage& message, os::Fd fd,
                                                        Session& session) {
  ControlBlock control = ControlBlock::attach(shm::Arena::attach(std::move(fd)));
  control.close_fd();
  const auto say = [this](PoolMessage said) {
    said.session = kRoundSession;
    return send(said);
  };
  return std::make_unique<RoundWorker>(
      std::move(control), message.first, session.first_env, message.sequence,
      std::move(session.opened.stepper),
      RoundWorkerHooks{.tolerant = message.flag,
                       .describe_exception = session.opened.describe_exception,
                       .send = say});
}

std::unique_ptr<SessionWorker> PoolWorker::serve_orders(const PoolMessage& message, os::Fd fd,
                                                        Session& session) {
  AsyncSegment segment = AsyncSegment::attach(shm::Arena::attach(std::move(fd)), session.hello);
  segment.close_fd();
  const auto bring = [this, id = message.session](int row, std::uint32_t sequence,
                                                  std::span<const std::byte> info) {
    static_cast<void>(send({.kind = PoolKind::kInfo,
                            .session = id,
                            .sequence = static_cast<std::uint64_t>(row) << 32 | sequence,
                            .bytes = {info.begin(), info.end()}}));
  };
  return std::make_unique<AsyncWorker>(
      std::move(segment), message.first, session.first_env, std::move(session.opened.stepper),
      AsyncWorkerHooks{.tolerant = message.flag,
                       .describe_exception = session.opened.describe_exception,
                       .pass = session.opened.pass,
                       .bring_info = bring,
                       .bring_waits = true});
}

void PoolWorker::close(const PoolMessage& message) {
  std::vector<process::ErrorReport> reports;
  const auto found = sessions_.find(message.session);
  if (found != sessions_.end() && message.flag) {
    Session& session = found->second;
    std::optional<process::IdentityScope> scope;
    enter(session, scope);
    try {
      reports = session.stepper().close();
    } catch (...) {
      reports.push_back(session.opened.describe_exception
                            ? session.opened.describe_exception()
                            : process::ErrorReport::from_current_exception());
    }
  }
  bell_ = &door_->bell;  // before the session's goes
  sessions_.erase(message.session);
  tell_closed(message.session, reports);
}

void PoolWorker::tell_closed(std::uint32_t session, std::span<const process::ErrorReport> reports) {
  try {
    const PoolMessage closed{
        .kind = PoolKind::kClosed, .session = session, .bytes = encode_reports(reports)};
    if (channel_.send(closed.encode(), {}, os::deadline_after(kTellTimeout)) ==
        os::SendOutcome::kSent) {
      return;
    }
  } catch (const std::exception&) {  // too much for one message
  }
  for (const process::ErrorReport& report : reports) {
    os::log(os::LogLevel::kError, "vector", "while it was closed: {}", report.describe());
  }
}

void PoolWorker::answer(const PoolMessage& request) {
  const auto found = sessions_.find(request.session);
  if (found == sessions_.end() || !found->second.worker) return;
  Session& session = found->second;
  const bool hand_over = request.kind == PoolKind::kHandOver;
  if (!hand_over) session.worker->begin_request();
  try {
    std::optional<process::IdentityScope> scope;
    enter(session, scope);
    if (hand_over) session.pass("asked to hand over");
    static_cast<void>(send({.kind = PoolKind::kReply,
                            .session = request.session,
                            .sequence = request.sequence,
                            .bytes = hand_over ? session.stepper().hand_over()
                                               : session.stepper().request(request.bytes)}));
    if (hand_over) session.pass("handed over");
  } catch (...) {
    report(request.session, session.opened.describe_exception, PoolKind::kRefusal,
           request.sequence);
  }
}

void PoolWorker::be_told(const PoolMessage& message) {
  const auto found = sessions_.find(message.session);
  if (found == sessions_.end() || !found->second.worker) return;
  Session& session = found->second;
  try {
    std::optional<process::IdentityScope> scope;
    enter(session, scope);
    static_cast<void>(session.stepper().request(message.bytes));
  } catch (...) {
    report(message.session, session.opened.describe_exception, PoolKind::kRefusal);
  }
}

// Some orders of every session; false when there were none.
bool PoolWorker::serve_all() {
  bool any = false;
  for (auto& [id, session] : sessions_) {
    const int orders = session.worker ? session.worker->pending_orders() : 0;
    if (orders == 0) continue;
    // What was sent before these orders is taken first.
    if (door_->mail.load(std::memory_order_acquire) != read_) return true;  // [mail]
    std::optional<process::IdentityScope> scope;
    enter(session, scope);
    serving(id);
    any = session.worker->serve(std::min(kTurn, orders)) > 0 || any;
  }
  if (any) serving(0);
  return any;
}

sync::WaitOutcome PoolWorker::wait(std::uint32_t seen) {
  const os::Deadline deadline = os::deadline_after(kParkSlice);
  const auto park = [&] {
    for (auto& [id, session] : sessions_) {
      if (session.worker) session.worker->count_park();
    }
    if (hooks_.before_park) hooks_.before_park();
    const sync::WaitOutcome outcome = bell_->park(seen, deadline);
    if (hooks_.after_park) hooks_.after_park();
    return outcome;
  };
  return sync::spin_then_park(
      *spin_policy_, deadline, [&] { return bell_->generation() != seen; }, park);
}

}  // namespace

void run_pool_worker(process::Channel& channel, const process::Identity& identity,
                     const PoolWorkerHooks& hooks) {
  static_cast<void>(os::shorten_time_slices());
  trace::open(fmt::format("worker {}", identity.place().index));
  PoolWorker(channel, identity, hooks).run();
}

}  // namespace shoal::vector
