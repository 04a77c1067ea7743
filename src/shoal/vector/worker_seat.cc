#include "shoal/vector/worker_seat.h"

#include <fmt/format.h>

#include <utility>

#include "shoal/vector/messages.h"

namespace shoal::vector {

void WorkerSeat::occupy(std::unique_ptr<process::WorkerProcess> process) {
  process_ = std::move(process);
  attached_ = false;
}

void WorkerSeat::occupy_again(std::unique_ptr<process::WorkerProcess> process) {
  occupy(std::move(process));
  ++restarts_;
}

FaultScene WorkerSeat::scene() const {
  return {.worker = index(),
          .name = spec_.name,
          .first_env = first_env(),
          .num_envs = num_envs(),
          .pid = occupied() ? process_->pid() : -1};
}

void WorkerSeat::send(std::span<const std::byte> message, const Patience& patience) {
  while (process_->channel().send(message, {}, patience.slice_end()) ==
         os::SendOutcome::kTimedOut) {
    if (dead()) return;
    if (patience.check) patience.check();
    if (os::Clock::now() >= patience.deadline) {
      throw TimedOut(
          fmt::format("{} takes no requests: it is still busy with earlier ones", describe()));
    }
  }
}

std::vector<std::byte> WorkerSeat::next_message(const Patience& patience, const char* waiting_for) {
  os::Message message;
  for (;;) {
    const bool ended = dead();  // looked at first: what it sent before its end is still taken
    const os::Deadline until = ended ? os::Clock::now() : patience.slice_end();
    switch (process_->channel().recv(message, until)) {
      case os::RecvOutcome::kMessage:
        return std::move(message.bytes);
      case os::RecvOutcome::kClosed:
        throw process::WorkerDied(process::DeathCertificate::of(*process_));
      case os::RecvOutcome::kTimedOut:
        break;
    }
    if (ended) throw process::WorkerDied(process::DeathCertificate::of(*process_));
    if (patience.check) patience.check();
    if (os::Clock::now() >= patience.deadline) {
      throw TimedOut(fmt::format("{} did not send its {} in time", describe(), waiting_for));
    }
  }
}

process::ErrorReport WorkerSeat::next_report(const Patience& patience) {
  for (;;) {  // replies to requests that were given up may be in front of it
    const std::vector<std::byte> message = next_message(patience, "error report");
    if (auto report = process::ErrorReport::decode(message)) return *std::move(report);
  }
}

void WorkerSeat::receive_hello(const Patience& patience) {
  std::vector<std::byte> message;
  try {
    message = next_message(patience, "hello");
  } catch (const process::WorkerDied& death) {
    throw_death(death.certificate());
  }
  accept_hello(message);
}

bool WorkerSeat::take_hello(os::Deadline until) {
  const bool ended = dead();  // looked at first: what it said before its end is still taken
  os::Message message;
  switch (process_->channel().recv(message, ended ? os::Clock::now() : until)) {
    case os::RecvOutcome::kMessage:
      accept_hello(message.bytes);
      return true;
    case os::RecvOutcome::kTimedOut:
      if (!ended) return false;
      break;
    case os::RecvOutcome::kClosed:
      break;
  }
  throw_death(process::DeathCertificate::of(*process_));
}

void WorkerSeat::accept_hello(std::span<const std::byte> message) {
  if (auto report = process::ErrorReport::decode(message)) {
    throw process::RemoteError(spec_.name, *std::move(report));
  }
  HelloMessage hello = decode_hello(message);
  if (hello.num_envs != num_envs()) {
    throw Error(fmt::format("{} made {} environments; it was asked for {}", spec_.name,
                            hello.num_envs, num_envs()));
  }
  hello_ = std::move(hello.hello);
}

void WorkerSeat::attach(const ControlBlock& control, std::uint64_t sequence,
                        std::span<const std::byte> handed) {
  WorkerCell& words = control.cell(cell);
  words.env_now.store(EnvMarker::kNone,
                      std::memory_order_relaxed);  // relaxed: nobody sits here yet
  words.env_since.store(os::coarse_now_ns(), std::memory_order_relaxed);
  words.has_orders.store(0, std::memory_order_relaxed);
  words.hold_resets.store(0, std::memory_order_relaxed);
  words.memory_bytes.store(0, std::memory_order_relaxed);
  words.failed.store(0, std::memory_order_relaxed);
  words.info_bytes.store(0, std::memory_order_relaxed);
  words.command.store(WorkerCell::pack(sequence, Command::kNone), std::memory_order_release);
  words.done.store(sequence, std::memory_order_relaxed);
  posted = sequence;
  const int fd = control.fd();
  static_cast<void>(
      process_->channel().send(encode_attach({.cell = cell,
                                              .first_env = first_env(),
                                              .sequence = sequence,
                                              .handed = {handed.begin(), handed.end()}}),
                               std::span(&fd, 1)));
  attached_ = true;
}

void throw_death(const process::DeathCertificate& certificate) {
  if (certificate.report) throw process::RemoteError(certificate.worker, *certificate.report);
  throw process::WorkerDied(certificate);
}

}  // namespace shoal::vector
