#include "shoal/process/zygote/zygote.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/limits/limits.h"
#include "shoal/process/boot/become_worker.h"
#include "shoal/process/supervise/orphans.h"
#include "shoal/process/supervise/output_relay.h"
#include "shoal/process/supervise/parent_watch.h"
#include "shoal/process/zygote/channel_multiplexer.h"
#include "shoal/process/zygote/worker_carrier.h"

namespace shoal::process {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;

// What epoll reports for a descriptor: the request whose output it is, or one of these. Requests
// count from 1.
constexpr std::uint64_t kControlKey = 0;
constexpr std::uint64_t kChildEndedKey = 1;
std::uint64_t output_key(std::uint64_t request, int stream) {
  return request << 1 | static_cast<std::uint64_t>(stream - STDOUT_FILENO);
}

constexpr std::size_t kDescriptorsPerWorker = 2;
constexpr std::size_t kSpareDescriptors = 12;  // for the start of one worker, and messages

int capacity() {
  const std::size_t left = os::open_files_left();
  const std::size_t workers =
      left > kSpareDescriptors ? (left - kSpareDescriptors) / kDescriptorsPerWorker : 0;
  if (workers == 0) {
    throw Error(fmt::format(
        "a zygote needs {} descriptors for its first worker, and ulimit -n leaves {}: raise it",
        kSpareDescriptors + kDescriptorsPerWorker, left));
  }
  return static_cast<int>(std::min<std::size_t>(workers, CreditCells::kCount));
}

void call(const std::function<void()>& hook) {
  if (hook) hook();
}

}  // namespace

Zygote::Zygote(os::SeqPacket control, os::SeqPacket up, CreditCells cells, std::string line,
               Kind kind)
    : control_(std::move(control)),
      up_(std::move(up)),
      cells_(std::move(cells)),
      line_(std::move(line)),
      kind_(kind),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw SystemError("make a zygote's epoll instance");
}

Zygote::~Zygote() = default;

int Zygote::serve(const ForkHooks& hooks) {
  // Of its own: the kernel sends it at the end of each of the parent's threads that it made this
  // process's parent, and SIGTERM is for who wants its end, and that of the workers.
  const int parent_ended = SIGRTMAX;
  const os::BlockSignals blocked{SIGCHLD, SIGTERM, parent_ended};
  child_ended_ = std::make_unique<os::SignalFd>(os::SignalFd{SIGCHLD, SIGTERM, parent_ended});
  if (!kind_.plain) {
    adopt_orphans();
    // A signal to the program's group is the program's affair: it may still want its workers.
    if (!is_sub_zygote_) ::setpgid(0, 0);
  }
  if (!is_sub_zygote_) ::prctl(PR_GET_NAME, name_of_program_.data());
  // For ps, and the doctor; at most 15 characters.
  ::prctl(PR_SET_NAME, is_sub_zygote_ ? "shoal-subzygote" : "shoal-zygote");
  if (!is_sub_zygote_) {
    // Not SIGKILL from here on: what the workers have started is to end with this process. Where
    // the parent is gone already, the control socket shows it.
    ::prctl(PR_SET_PDEATHSIG, parent_ended);
    if (::getppid() != launcher_) return kExitDone;
  }
  watch(control_.fd(), kControlKey);
  watch(child_ended_->fd(), kChildEndedKey);
  send(wire::encode(wire::Ready{.pid = ::getpid(), .capacity = capacity()}));
  for (;;) {
    std::array<epoll_event, 64> events{};
    const int ready =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_limit());
    if (ready < 0 && errno != EINTR) throw SystemError("wait for requests in the zygote");
    if (os::Clock::now() >= orphans_due_) end_orphans();
    for (int i = 0; i < ready; ++i) {
      const std::uint64_t key = events[static_cast<std::size_t>(i)].data.u64;
      if (key == kControlKey) {
        if (on_control(hooks)) continue;
        if (!kind_.plain) end_everybody();
        return kExitDone;
      } else if (key == kChildEndedKey) {
        while (const auto signal = child_ended_->read()) {
          if (*signal == SIGCHLD || (*signal == parent_ended && ::getppid() == launcher_)) continue;
          if (!kind_.plain || *signal == SIGTERM) end_everybody();
          return kExitDone;
        }
        report_ended_children();
      } else {
        relay(key >> 1, static_cast<int>(key & 1) + STDOUT_FILENO);
      }
    }
  }
}

void Zygote::watch(int fd, std::uint64_t key) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = key;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw SystemError("watch a descriptor in the zygote");
  }
}

// Closing is not enough: a child that was just forked may still hold a copy.
void Zygote::unwatch(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

bool Zygote::on_control(const ForkHooks& hooks) {
  os::Message message;
  const auto outcome = control_.recv(message, os::Clock::now());
  if (outcome != os::RecvOutcome::kMessage) return outcome == os::RecvOutcome::kTimedOut;
  ByteReader reader(message.bytes);
  const wire::Header header = wire::read_header(reader);
  switch (header.kind) {
    case wire::Kind::kStart:
      start_worker(hooks, header.request, wire::decode_start(reader));
      return true;
    case wire::Kind::kKill:
      kill_worker(header.request, reader.number<std::int32_t>());
      return true;
    case wire::Kind::kSubZygote:
      start_sub_zygote(hooks, header.request, reader, std::move(message));
      return true;
    default:
      throw Error("a zygote was sent a message that only a zygote sends");
  }
}

// Returns 0 in the child, with this process's objects as they were; -1 when it failed, and the
// launcher has been told.
pid_t Zygote::fork(const ForkHooks& hooks, std::uint64_t request, const std::string& what) {
  call(hooks.before_fork);
  const pid_t pid = ::fork();
  const int error = errno;
  if (pid == 0) return 0;
  call(hooks.after_fork_parent);
  if (pid < 0) {
    ByteWriter writer = wire::begin(wire::Kind::kStartFailed, request);
    writer.number(static_cast<std::int32_t>(error));
    writer.text(fmt::format("fork {} from the zygote{}", what,
                            error == EAGAIN ? " (the limit is ulimit -u, or pids.max of the "
                                              "control group)"
                                            : ""));
    send(writer.take());
  }
  return pid;
}

void Zygote::start_worker(const ForkHooks& hooks, std::uint64_t request, const wire::Start& start) {
  OutputPipe output;
  OutputPipe errors;
  os::Mailbox mailbox;
  try {
    if (!kind_.plain) {
      output = OutputPipe::create();
      errors = OutputPipe::create();
    }
    // Before the fork: when the launcher hears of the worker, it can send to it.
    mailbox = os::Mailbox::open(ChannelLine::mailbox_name(line_, request),
                                ChannelLine::sender_name(line_, start.slot));
  } catch (const SystemError& error) {
    ByteWriter writer = wire::begin(wire::Kind::kStartFailed, request);
    writer.number(static_cast<std::int32_t>(error.error_number()));
    writer.text(fmt::format("prepare the start of {}: {}", start.name, error.what()));
    send(writer.take());
    return;
  }
  const pid_t zygote = ::getpid();
  const pid_t pid = fork(hooks, request, start.name);
  if (pid == 0) {
    run_worker(hooks, request, start, std::move(output), std::move(errors), std::move(mailbox),
               zygote);
  }
  if (pid < 0) return;
  children_[pid] = request;
  if (output.read_end) watch(output.read_end.get(), output_key(request, STDOUT_FILENO));
  if (errors.read_end) watch(errors.read_end.get(), output_key(request, STDERR_FILENO));
  workers_[request] = {pid, {std::move(output.read_end), std::move(errors.read_end)}};
  ByteWriter writer = wire::begin(wire::Kind::kStarted, request);
  writer.number(static_cast<std::int32_t>(pid));
  send(writer.take());
}

void Zygote::run_worker(const ForkHooks& hooks, std::uint64_t request, const wire::Start& start,
                        OutputPipe output, OutputPipe errors, os::Mailbox mailbox,
                        pid_t zygote) noexcept {
  try {
    let_go_of_parents(zygote);
    if (kind_.plain) {
      ::prctl(PR_SET_NAME, name_of_program_.data());
      end_after_parent(zygote, kParentGrace);
    } else {
      output.read_end.reset();
      errors.read_end.reset();
      redirect_output(std::move(output.write_end), std::move(errors.write_end));
    }
    WorkerContext context = worker_context(start, kind_.hide_gpu);
    context.channel = Channel(std::make_unique<WorkerCarrier>(std::move(mailbox), std::move(up_),
                                                              cells_.at(start.slot), request));
    call(hooks.after_fork_child);
    become_worker(hooks.entries, start.entry, std::move(context), kind_.plain);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s could not start: %s\n", start.name.c_str(), error.what());
    ::_exit(kExitFailed);
  }
}

void Zygote::start_sub_zygote(const ForkHooks& hooks, std::uint64_t request, ByteReader& reader,
                              os::Message message) {
  if (message.fds.size() != 2)
    throw Error("a zygote was asked for a sub-zygote without descriptors");
  os::SeqPacket control(std::move(message.fds[0]));
  CreditCells cells = CreditCells::attach(std::move(message.fds[1]));
  std::string line = reader.text();
  const pid_t zygote = ::getpid();
  const pid_t pid = fork(hooks, request, "a sub-zygote");
  if (pid == 0)
    run_sub_zygote(hooks, std::move(control), std::move(cells), std::move(line), zygote);
  if (pid > 0) sub_zygotes_.insert(pid);
}

void Zygote::run_sub_zygote(const ForkHooks& hooks, os::SeqPacket control, CreditCells cells,
                            std::string line, pid_t zygote) noexcept {
  int code = kExitFailed;
  try {
    let_go_of_parents(zygote);
    call(hooks.after_fork_child);
    Zygote sub_zygote(std::move(control), std::move(up_), std::move(cells), std::move(line), kind_);
    sub_zygote.is_sub_zygote_ = true;
    sub_zygote.name_of_program_ = name_of_program_;
    code = sub_zygote.serve(hooks);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "a sub-zygote failed: %s\n", error.what());
  }
  ::_exit(code);
}

// In a child: lets go of what belongs to the zygote alone.
void Zygote::let_go_of_parents(pid_t zygote) {
  die_with_parent(zygote);
  control_.close();
  child_ended_.reset();
  epoll_.reset();
  workers_.clear();
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

void Zygote::kill_worker(std::uint64_t request, int signal) {
  const auto found = workers_.find(request);
  if (found != workers_.end())
    ::kill(found->second.pid, signal);  // not collected: still its number
}

bool Zygote::relay(std::uint64_t request, int stream) {
  const auto found = workers_.find(request);
  if (found == workers_.end()) return false;
  os::Fd& pipe = found->second.output[static_cast<std::size_t>(stream - STDOUT_FILENO)];
  if (!pipe) return false;
  std::array<char, 32 * 1024> buffer;
  const ssize_t count = ::read(pipe.get(), buffer.data(), buffer.size());
  if (count > 0) {
    send(wire::encode(
        wire::Output{stream, std::string_view(buffer.data(), static_cast<std::size_t>(count))},
        request));
    return true;
  }
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
  unwatch(pipe.get());  // nobody is left who could write
  pipe.reset();
  return false;
}

void Zygote::report_ended_children() {
  bool worker_ended = false;
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid <= 0) break;
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (sub_zygotes_.contains(pid)) {
      send(wire::encode(wire::Exited{.pid = pid, .code = code, .signal = signal}, 0));
      ::_exit(kExitFailed);
    }
    const auto found = children_.find(pid);
    if (found == children_.end()) {  // an orphan: what it left behind has had its time
      look_for_orphans(std::chrono::milliseconds{0});
      continue;
    }
    const std::uint64_t request = found->second;
    children_.erase(found);
    drop_worker(request);
    send(wire::encode(wire::Exited{.pid = pid, .code = code, .signal = signal}, request));
    worker_ended = true;
  }
  if (worker_ended && !kind_.plain) look_for_orphans(kOrphanGrace);
}

// The processes that ended workers have left behind. (A process that a preload has started and that
// is still there is taken for one when the first worker ends.)
std::vector<pid_t> Zygote::orphans() const {
  std::vector<pid_t> pids;
  for (const pid_t pid : children_of_this_process()) {
    if (!children_.contains(pid) && !sub_zygotes_.contains(pid)) pids.push_back(pid);
  }
  return pids;
}

void Zygote::look_for_orphans(std::chrono::milliseconds grace) {
  if (!orphans().empty()) orphans_due_ = std::min(orphans_due_, os::deadline_after(grace));
}

void Zygote::end_orphans() {
  orphans_due_ = os::kNoDeadline;
  for (const pid_t pid : orphans()) ::kill(pid, SIGKILL);  // not collected: still its number
}

int Zygote::wait_limit() const {
  if (orphans_due_ == os::kNoDeadline) return -1;
  return static_cast<int>(
      std::chrono::ceil<std::chrono::milliseconds>(os::time_left(orphans_due_)).count());
}

// Ends the workers, and all that they have started. Bounded: a process that the kernel cannot end
// is left to it.
void Zygote::end_everybody() noexcept {
  constexpr std::chrono::milliseconds kPatience{700};  // the launcher waits for it
  constexpr std::chrono::milliseconds kAlone{5'000};   // nobody does
  constexpr useconds_t kTurn = 1000;                   // microseconds
  for (const auto& [pid, request] : children_) ::kill(pid, SIGKILL);
  for (const pid_t pid : sub_zygotes_) ::kill(pid, SIGKILL);
  const os::Deadline grace = os::deadline_after(kOrphanGrace);
  const os::Deadline end = os::deadline_after(kPatience);
  const os::Deadline end_alone = os::deadline_after(kAlone);
  const auto is_over = [&] {
    const os::Deadline now = os::Clock::now();
    return now >= end && (is_sub_zygote_ || ::getppid() == launcher_ || now >= end_alone);
  };
  try {
    while (!is_over()) {
      const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
      if (pid < 0) return;  // nobody is left
      children_.erase(pid);
      sub_zygotes_.erase(pid);
      if (pid > 0) continue;
      if (os::Clock::now() >= grace) end_orphans();
      ::usleep(kTurn);
    }
  } catch (const std::exception&) {
    // A lack of memory: the kernel kills the workers when this process ends.
  }
}

// Relays what an ended worker has written last.
void Zygote::drop_worker(std::uint64_t request) {
  // Bounded, since a process that it left behind may go on writing. A pipe holds no more than this.
  constexpr int kMaxReads = 32;
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    for (int reads = 0; reads < kMaxReads && relay(request, stream); ++reads) continue;
    const os::Fd& pipe = workers_[request].output[static_cast<std::size_t>(stream - STDOUT_FILENO)];
    if (pipe) unwatch(pipe.get());
  }
  workers_.erase(request);
}

void Zygote::send(std::span<const std::byte> bytes) {
  // kClosed: the launcher is gone. The kernel is about to end this process, or the next recv() ends
  // serve().
  static_cast<void>(control_.send(bytes));
}

}  // namespace shoal::process
