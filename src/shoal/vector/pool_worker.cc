#include "shoal/vector/pool_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/process/codec.h"
#include "shoal/process/stack_dump.h"
#include "shoal/process/welcome.h"
#include "shoal/sync/spin_policy.h"
#include "shoal/sync/spin_wait.h"
#include "shoal/vector/async_worker.h"
#include "shoal/vector/control_block.h"
#include "shoal/vector/messages.h"
#include "shoal/vector/native_stepper.h"
#include "shoal/vector/pool_door.h"
#include "shoal/vector/pool_messages.h"

namespace shoal::vector {
namespace {

// Longest sleep without a look at whether the parent is still there. It normally needs none: the
// worker is killed then.
constexpr std::chrono::seconds kParkSlice{1};
// Orders of one session before the next one's turn.
constexpr int kTurn = 16;

class PoolWorker {
 public:
  PoolWorker(process::Channel& channel, const process::Identity& identity,
             const PoolWorkerHooks& hooks)
      : channel_(channel), identity_(identity), hooks_(hooks) {}

  void run() {
    if (!join()) return;
    for (;;) {
      // The generation first: what is sent after this look comes with a ring that ends the wait.
      const std::uint32_t seen = door_->bell.generation();
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
    bool tolerant = false;
    int first_env = 0;
    Hello hello;
    std::unique_ptr<AsyncWorker> worker;
  };

  bool join();
  bool take_mail();
  bool obey(PoolMessage message, std::vector<os::Fd> fds);
  void open(const PoolMessage& message);
  void attach(const PoolMessage& message, os::Fd segment);
  void answer(const PoolMessage& request);
  void be_told(const PoolMessage& message);
  void close(const PoolMessage& message);
  bool serve_all();
  sync::WaitOutcome wait(std::uint32_t seen);
  /// `session`'s code runs from now on; 0: nobody's.
  void serving(std::uint32_t session) {
    door_->serving.store(session, std::memory_order_relaxed);  // relaxed: a hint
  }
  bool send(const PoolMessage& message) {
    return channel_.send(message.encode()) == os::SendOutcome::kSent;
  }
  void report(std::uint32_t session, const std::function<process::ErrorReport()>& describe,
              PoolKind kind, std::uint64_t sequence = 0);

  process::Channel& channel_;
  const process::Identity& identity_;
  const PoolWorkerHooks& hooks_;
  PoolDoor own_door_;
  DoorWords* door_ = nullptr;
  std::uint64_t read_ = 0;  // messages
  std::map<std::uint32_t, Session> sessions_;
  sync::SpinPolicy spin_policy_;
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
  const DoorHeader& header = own_door_.header();
  spin_policy_ =
      sync::SpinPolicy(sync::SpinOptions{.group_size = static_cast<int>(header.num_workers)},
                       sync::CpuLoad(), static_cast<int>(header.cpus));
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
  Session session{.identity = process::Identity(place, identity_.board()),
                  .opened = {},
                  .tolerant = message.flag,
                  .first_env = message.first,
                  .hello = {},
                  .worker = {}};
  try {
    const process::IdentityScope scope(session.identity, process::IdentityScope::Work::kBuild);
    session.opened = hooks_.open(message.bytes, message.first, message.count);
  } catch (...) {
    report(message.session, hooks_.describe_opening, PoolKind::kFailed);
    return;
  }
  const Stepper& stepper = *session.opened.stepper;
  session.hello = stepper.hello();
  static_cast<void>(send({.kind = PoolKind::kHello,
                          .session = message.session,
                          .flag = stepper.can_rebuild(),
                          .bytes = encode_hello(stepper.hello(), stepper.count())}));
  sessions_.insert_or_assign(message.session, std::move(session));
}

// What fails here ends the worker, which says why: its session is open and waits for nothing more.
void PoolWorker::attach(const PoolMessage& message, os::Fd fd) {
  const std::uint32_t id = message.session;
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;  // it failed to open, and said so
  Session& session = found->second;
  AsyncSegment segment = AsyncSegment::attach(shm::Arena::attach(std::move(fd)), session.hello);
  segment.close_fd();
  AsyncWorkerHooks hooks{
      .tolerant = session.tolerant,
      .describe_exception = session.opened.describe_exception,
      .pass = session.opened.pass,
      .bring_info =
          [this, id](int row, std::uint32_t sequence, std::span<const std::byte> info) {
            static_cast<void>(send({.kind = PoolKind::kInfo,
                                    .session = id,
                                    .sequence = static_cast<std::uint64_t>(row) << 32 | sequence,
                                    .bytes = {info.begin(), info.end()}}));
          },
      .bring_waits = true};
  session.worker =
      std::make_unique<AsyncWorker>(std::move(segment), message.first, session.first_env,
                                    std::move(session.opened.stepper), std::move(hooks));
  if (message.bytes.empty()) return;
  session.worker->pass("attached");
  const process::IdentityScope scope(session.identity);
  session.worker->stepper().take_over(message.bytes);
  session.worker->pass("taken over");
}

void PoolWorker::close(const PoolMessage& message) {
  std::vector<process::ErrorReport> reports;
  const auto found = sessions_.find(message.session);
  if (found != sessions_.end() && message.flag) {
    Session& session = found->second;
    const process::IdentityScope scope(session.identity);
    try {
      reports = (session.worker ? session.worker->stepper() : *session.opened.stepper).close();
    } catch (...) {
      reports.push_back(session.opened.describe_exception
                            ? session.opened.describe_exception()
                            : process::ErrorReport::from_current_exception());
    }
  }
  sessions_.erase(message.session);
  static_cast<void>(send(
      {.kind = PoolKind::kClosed, .session = message.session, .bytes = encode_reports(reports)}));
}

void PoolWorker::answer(const PoolMessage& request) {
  const auto found = sessions_.find(request.session);
  if (found == sessions_.end() || !found->second.worker) return;
  Session& session = found->second;
  try {
    const process::IdentityScope scope(session.identity);
    Stepper& stepper = session.worker->stepper();
    const bool hand_over = request.kind == PoolKind::kHandOver;
    if (hand_over) session.worker->pass("asked to hand over");
    static_cast<void>(
        send({.kind = PoolKind::kReply,
              .session = request.session,
              .sequence = request.sequence,
              .bytes = hand_over ? stepper.hand_over() : stepper.request(request.bytes)}));
    if (hand_over) session.worker->pass("handed over");
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
    const process::IdentityScope scope(session.identity);
    static_cast<void>(session.worker->stepper().request(message.bytes));
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
    const process::IdentityScope scope(session.identity);
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
      if (session.worker) add_alone(session.worker->cell().parks, 1);
    }
    if (hooks_.before_park) hooks_.before_park();
    const sync::WaitOutcome outcome = door_->bell.park(seen, deadline);
    if (hooks_.after_park) hooks_.after_park();
    return outcome;
  };
  return sync::spin_then_park(
      spin_policy_, deadline, [&] { return door_->bell.generation() != seen; }, park);
}

}  // namespace

void run_pool_worker(process::Channel& channel, const process::Identity& identity,
                     const PoolWorkerHooks& hooks) {
  PoolWorker(channel, identity, hooks).run();
}

int native_pool_entry(process::WorkerContext& context) {
  process::install_stack_dump(true);
  const auto identity = process::receive_welcome(context);
  if (!identity) return 0;
  process::become(identity);
  process::ByteReader payload(context.payload);
  const auto gpu = process::WorkerSetup::read(payload).carry_out();
  run_pool_worker(
      context.channel, *identity,
      {.open =
           [&](std::span<const std::byte> bytes, int, int count) {
             return PoolWorkerHooks::Opened{
                 std::make_unique<NativeStepper>(native_pool_batch(bytes, count)), {}, {}};
           },
       .describe_opening = {},
       .before_park = {},
       .after_park = {}});
  return 0;
}

std::vector<std::byte> native_pool_payload(std::string_view id, std::string_view env_args) {
  process::ByteWriter payload;
  payload.text(id);
  payload.text(env_args);
  return payload.take();
}

std::unique_ptr<env::BatchEnv> native_pool_batch(std::span<const std::byte> payload, int count) {
  process::ByteReader reader(payload);
  const std::string id = reader.text();
  const std::string env_args = reader.text();
  return make_native_batch(process::this_worker(), id, count, env_args);
}

std::vector<process::WorkerSpec> native_pool_specs(int num_workers,
                                                   const process::WorkerSetup& setup) {
  std::vector<process::WorkerSpec> specs;
  for (int w = 0; w < num_workers; ++w) {
    process::WorkerSpec spec;
    spec.name = fmt::format("worker {}", w);
    spec.entry = kNativePoolEntry;
    process::ByteWriter payload;
    setup.write(payload);
    spec.payload = payload.take();
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace shoal::vector
