#include "shoal/process/zygote/zygote_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/process/boot/spawn_program.h"
#include "shoal/process/supervise/parent_watch.h"

namespace shoal::process {
namespace {

constexpr std::chrono::milliseconds kStopGrace{1'000};

// How long the workers of an ended zygote are waited for. The kernel kills them at once, or after
// kParentGrace where they are plain; only one that waits for a device takes longer.
constexpr std::chrono::milliseconds kLastGrace = kParentGrace + std::chrono::milliseconds{5'000};

// How often to look for a worker's end where no descriptor is free to watch it with.
constexpr std::chrono::milliseconds kLookAgain{10};

}  // namespace

void ZygoteGroup::launch(const LaunchOptions& options, const Environment& environment) {
  supervisor_->loop().call([&] { spawn(options, environment); });
}

void ZygoteGroup::spawn(const LaunchOptions& options, const Environment& environment) {
  ProgramOutput output = ProgramOutput::create(options.plain);
  auto [ours, theirs] = os::SeqPacket::pair();
  auto link =
      std::make_unique<ZygoteLink>(*supervisor_, multiplexer_, std::move(ours), link_events());
  SpawnedProgram program = spawn_program(options.interpreter, environment, theirs.fd(),
                                         output.fd(STDOUT_FILENO), output.fd(STDERR_FILENO));
  pidfd_ = std::move(program.pidfd);
  {
    const std::lock_guard lock(mutex_);
    pid_ = program.pid;
  }
  if (!options.plain) {
    readers_ = supervisor_->read_output("zygote", tail_, std::move(output.output.read_end),
                                        std::move(output.errors.read_end));
  }
  links_.push_back(std::move(link));
  links_.front()->watch();
  supervisor_->loop().watch(pidfd_.fd(), POLLIN, [this] { on_ended(); });
  up_ = multiplexer_.open();
  if (!zygotes_) return;
  unused_time_ = options.start_timeout;
  id_ = zygotes_->add({.pid = program.pid, .preload = options.preload, .started = os::Clock::now()},
                      [this](bool end) {
                        supervisor_->loop().post([this, end, alive = std::weak_ptr(alive_)] {
                          if (!alive.expired()) look_at_use(end);
                        });
                      });
  look_at_use(false);
}

ZygoteLink::Events ZygoteGroup::link_events() {
  return {.broken = [this] { static_cast<void>(pidfd_.send_signal(SIGKILL)); },
          .worker_gone = [this] { look_at_use(false); }};
}

void ZygoteGroup::begin(const LaunchOptions& options) {
  preload_ =
      options.preload.empty() ? "nothing" : fmt::format("{}", fmt::join(options.preload, ", "));
  if (zygotes_) zygotes_->set_preload(id_, options.preload);
  supervisor_->loop().call([&] {
    if (!up_) return;  // it has ended already
    links_.front()->send_setup({.zygote = true,
                                .hide_gpu = options.hide_gpu,
                                .plain = options.plain,
                                .threads = options.threads,
                                .parent_pid = ::getpid(),
                                .preload = options.preload,
                                .bootstrap = options.bootstrap,
                                .line = {}},
                               *up_);
    up_.reset();
  });
}

bool ZygoteGroup::hold() {
  const std::lock_guard lock(mutex_);
  if (ends_idle_) return false;
  ++holds_;
  return true;
}

void ZygoteGroup::release() noexcept {
  {
    const std::lock_guard lock(mutex_);
    --holds_;
    use_.has_had_workers = true;
  }
  if (!zygotes_) return;
  try {
    supervisor_->loop().post([this, alive = std::weak_ptr(alive_)] {
      if (!alive.expired()) look_at_use(false);
    });
  } catch (const std::exception&) {
    // A lack of memory: the next look is at the end of its next worker.
  }
}

void ZygoteGroup::touch() {
  if (!zygotes_) return;
  Zygotes::Use use;
  {
    const std::lock_guard lock(mutex_);
    if (!use_.idle_since) return;
    use_.idle_since = os::Clock::now();
    use = use_;
  }
  zygotes_->update(id_, use);
}

// In the loop. Notes whether it is idle, and ends it where it has been idle for long enough, or
// where `end` says so. hold() takes the same lock, so a zygote that is held does not end.
void ZygoteGroup::look_at_use(bool end) {
  if (!zygotes_ || pid() < 0) return;
  std::size_t workers = 0;
  for (const auto& link : links_) workers += link->num_workers();
  const std::chrono::milliseconds limit = zygotes_->limits().idle_time;
  const os::Deadline now = os::Clock::now();
  os::Deadline due = os::kNoDeadline;
  Zygotes::Use use;
  bool ends = false;
  {
    const std::lock_guard lock(mutex_);
    if (ends_idle_) return;
    use_.workers = workers;
    use_.has_had_workers = use_.has_had_workers || workers > 0;
    if (workers > 0 || holds_ > 0) {
      use_.idle_since.reset();
    } else {
      if (!use_.idle_since) use_.idle_since = now;
      const auto stays = use_.has_had_workers ? limit : std::max(limit, unused_time_);
      if (stays < os::kNoDeadline - *use_.idle_since) due = *use_.idle_since + stays;
      ends = end || now >= due;
    }
    ends_idle_ = ends;
    use = use_;
  }
  if (ends) {
    zygotes_->remove(id_);
    static_cast<void>(pidfd_.send_signal(SIGTERM));  // on_ended() sees to the rest
    return;
  }
  zygotes_->update(id_, use);
  if (due < timer_due_) wait_for_idle_time(due);
}

// There is one timer, however often it becomes idle.
void ZygoteGroup::wait_for_idle_time(os::Deadline due) {
  timer_due_ = due;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(os::time_left(due));
  supervisor_->loop().after(left, [this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    timer_due_ = os::kNoDeadline;
    look_at_use(false);
  });
}

bool ZygoteGroup::usable() const {
  {
    const std::lock_guard lock(mutex_);
    if (ends_idle_) return false;
  }
  for (const auto& link : links_) {
    if (!link->usable()) return false;
  }
  return !links_.empty();
}

int ZygoteGroup::pid() const {
  const std::lock_guard lock(mutex_);
  return pid_;
}

void ZygoteGroup::wait_ready(os::Deadline deadline) {
  if (links_.front()->wait_ready(deadline)) return;
  stop();
  throw TimedOut(
      fmt::format("the zygote was not ready in time (start_timeout): it was still starting up or "
                  "importing its preload ({})",
                  preload_));
}

std::size_t ZygoteGroup::free_slots() const {
  std::size_t slots = 0;
  for (const auto& link : links_) slots += link->line()->free_slots();
  return slots;
}

std::vector<ZygoteGroup::Reservation> ZygoteGroup::reserve(std::size_t count,
                                                           os::Deadline deadline) {
  const std::size_t before = links_.size();
  for (std::size_t free = free_slots(); free < count;) {
    add_sub_zygote(deadline);  // all of them fork side by side
    free += static_cast<std::size_t>(links_.front()->line()->capacity());
  }
  for (std::size_t i = before; i < links_.size(); ++i) await_sub_zygote(*links_[i], deadline);
  std::vector<Reservation> reserved;
  while (reserved.size() < count) {
    const std::size_t had = reserved.size();
    for (const auto& link : links_) {  // in turn, so that all fork at the same time
      if (reserved.size() == count) break;
      const int slot = link->line()->take_slot();
      if (slot < 0) continue;
      reserved.push_back(
          {link.get(), std::make_shared<ChannelPeer>(link->line(), slot, next_request_++)});
    }
    if (reserved.size() == had) {  // a sub-zygote had room for fewer than the first
      add_sub_zygote(deadline);
      await_sub_zygote(*links_.back(), deadline);
    }
  }
  return reserved;
}

void ZygoteGroup::add_sub_zygote(os::Deadline deadline) {
  auto [ours, theirs] = os::SeqPacket::pair();
  auto link =
      std::make_unique<ZygoteLink>(*supervisor_, multiplexer_, std::move(ours), link_events());
  ZygoteLink& sub_zygote = *link;
  supervisor_->loop().call([&] {
    sub_zygote.watch();
    links_.push_back(std::move(link));
  });
  links_.front()->send_sub_zygote(next_request_++, sub_zygote, theirs, deadline);
}

void ZygoteGroup::await_sub_zygote(ZygoteLink& sub_zygote, os::Deadline deadline) {
  if (sub_zygote.wait_ready(deadline)) return;
  throw TimedOut("a sub-zygote was not ready in time (start_timeout)");
}

void ZygoteGroup::stop() noexcept {
  if (std::exchange(stopped_, true) || !pidfd_) return;
  if (zygotes_) zygotes_->remove(id_);
  try {
    // It ends its workers, with all that they have started; in the middle of an import it just
    // ends.
    static_cast<void>(pidfd_.send_signal(SIGTERM));
    if (!pidfd_.wait(os::deadline_after(kStopGrace))) {
      static_cast<void>(pidfd_.send_signal(SIGKILL));
      static_cast<void>(pidfd_.wait(os::deadline_after(kStopGrace)));
    }
    // Nothing in the loop refers to this object from here on, whether or not the loop has seen the
    // zygote's end.
    supervisor_->loop().call([this] {
      on_ended();
      on_all_gone();
      alive_.reset();
      supervisor_->loop().unwatch(pidfd_.fd());
      readers_.finish();
      for (const auto& link : links_) link->detach();
      multiplexer_.close();
    });
  } catch (const std::exception&) {
    // Only a lack of memory or descriptors leads here; the zygote ends with this process then.
  }
}

void ZygoteGroup::on_ended() {
  const int zygote = pid();
  if (zygote < 0 || !pidfd_.ended()) return;
  up_.reset();
  for (const auto& link : links_) link->on_control();  // what they said last
  ExitStatus status{.known = false};
  try {
    if (const auto end = pidfd_.reap()) status = {.code = end->code, .signal = end->signal};
  } catch (const SystemError&) {
    // Another thread's wait for all children has collected it.
  }
  supervisor_->loop().unwatch(pidfd_.fd());
  readers_.finish();
  if (zygotes_) zygotes_->remove(id_);
  {
    const std::lock_guard lock(mutex_);
    pid_ = -1;
  }
  ZygoteEnd end{.pid = zygote, .sub_zygote = -1, .status = status};
  std::string why = fmt::format("it (pid {}) ended with {}", zygote, status.describe());
  if (const auto& sub_zygote = links_.front()->ended_sub_zygote()) {
    end.sub_zygote = sub_zygote->pid;
    end.status = {.code = sub_zygote->code, .signal = sub_zygote->signal};
    why =
        fmt::format("its sub-zygote (pid {}) ended with {}", end.sub_zygote, end.status.describe());
  }
  end_ = std::make_shared<const ZygoteEnd>(std::move(end));
  for (const std::string& line : tail_.lines()) why += "\n  | " + line;
  for (const auto& link : links_) {
    link->detach();
    link->fail(why, end_);
  }
  for (const auto& link : links_) {
    for (const pid_t pid : link->running()) dying_.push_back(pid);
  }
  supervisor_->loop().after(kLastGrace, [this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) on_all_gone();
  });
  await_workers();
}

// One after the other: some launchers have sub-zygotes because descriptors are short. Not by the
// multiplexer's socket: a worker closes its end before it has ended, and what it started may hold a
// copy.
void ZygoteGroup::await_workers() {
  const auto again = [this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) await_workers();
  };
  if (last_) supervisor_->loop().unwatch(last_.fd());
  last_ = {};
  for (; !dying_.empty(); dying_.pop_back()) {
    try {
      last_ = os::PidFd::open(dying_.back());
      if (last_.ended()) continue;
      supervisor_->loop().watch(last_.fd(), POLLIN, again);
      return;
    } catch (const SystemError& error) {
      if (error.error_number() == ESRCH) continue;
      supervisor_->loop().after(kLookAgain, again);
      return;
    }
  }
  on_all_gone();
}

void ZygoteGroup::on_all_gone() {
  if (last_) supervisor_->loop().unwatch(last_.fd());
  last_ = {};
  dying_.clear();
  for (const auto& link : links_) link->finish_all(end_);
}

}  // namespace shoal::process
