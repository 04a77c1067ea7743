#include "shoal/serve/frontend.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "shoal/os/log.h"
#include "shoal/serve/address.h"
#include "shoal/serve/errors.h"
#include "shoal/serve/messages.h"

namespace shoal::serve {
namespace {

constexpr std::chrono::seconds kReadsAtOnce{5};
constexpr std::chrono::milliseconds kLook{50};
constexpr std::chrono::seconds kTaking{5};  // until a server that is alive has taken a command

bool has_hung_up(int socket) {
  pollfd entry{socket, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

Frontend::Frontend()
    : address_(fresh_address()),
      clients_(listen_at(address_)),
      servers_(listen_at(address_ + ".link")),
      loop_(new process::EventLoop) {
  loop_->call([this] {
    loop_->watch(clients_.get(), POLLIN, [this] { accept_clients(); });
    loop_->watch(servers_.get(), POLLIN, [this] { accept_servers(); });
  });
}

Frontend::~Frontend() {
  if (!maker_.is_this()) return;  // the thread is not here
  close("the model service is closed");
  delete loop_;
}

void Frontend::accept_clients() {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(waiting_, [](const os::Fd& client) { return has_hung_up(client.get()); });
    while (os::Fd client = accept_from(clients_)) waiting_.push_back(std::move(client));
  }
  hand_out();
}

/// Hands each client to the instance that was given the fewest.
/// What a new server begins with, lest it gets every client until it has as many as the others.
std::uint64_t Frontend::least_admitted_beside(std::uint32_t number) const {
  std::optional<std::uint64_t> least;
  for (const auto& [other, instance] : instances_) {
    if (other != number && instance.link)
      least = std::min(least.value_or(instance.admitted), instance.admitted);
  }
  return least.value_or(0);
}

void Frontend::hand_out() {
  const std::lock_guard alone(handing_out_);
  std::unique_lock lock(mutex_);
  while (!waiting_.empty()) {
    if (closed_) return send_end_notices();
    Instance* best = nullptr;
    for (auto& [number, instance] : instances_) {
      if (instance.link && !instance.held &&
          (best == nullptr || instance.admitted < best->admitted)) {
        best = &instance;
      }
    }
    if (best == nullptr) return;
    const std::shared_ptr<Link> link = best->link;
    os::Fd client = std::move(waiting_.front());
    waiting_.pop_front();
    ++best->admitted;
    lock.unlock();
    const bool taken = admit(*link, client);
    lock.lock();
    if (taken) continue;
    if (best->link == link) best->link.reset();  // its end is about to be heard
    waiting_.push_front(std::move(client));
  }
}

/// False where the server takes no clients any more.
bool Frontend::admit(Link& link, const os::Fd& client) {
  const int fd = client.get();
  try {
    return link.send(encode_admit(), {&fd, 1}, os::deadline_after(kReadsAtOnce)) ==
           os::SendOutcome::kSent;
  } catch (const Error& error) {
    os::log(os::LogLevel::kWarning, "serve", "model service: {}", error.what());
    return true;
  }
}

void Frontend::send_end_notices() {
  const std::vector<std::byte> text = EndNotice{end_notice_}.encode();
  for (os::Fd& client : waiting_) {
    try {
      static_cast<void>(os::SeqPacket(std::move(client)).send(text, {}, os::Clock::now()));
    } catch (const Error&) {  // it has gone itself
    }
  }
  waiting_.clear();
}

void Frontend::accept_servers() {
  while (os::Fd socket = accept_from(servers_)) {
    try {
      auto link = std::make_shared<Link>(std::move(socket));
      loop_->watch(link->socket.fd(), POLLIN, [this, link] { greet_server(link); });
    } catch (const Error& error) {
      os::log(os::LogLevel::kWarning, "serve", "model service: {}", error.what());
    }
  }
}

void Frontend::greet_server(const std::shared_ptr<Link>& link) {
  os::Message message;
  std::uint32_t number = 0;
  try {
    const os::RecvOutcome outcome = link->socket.recv(message, os::Clock::now());
    if (outcome == os::RecvOutcome::kTimedOut) return;
    const bool observes =
        outcome == os::RecvOutcome::kMessage && kind_of(message.bytes) == MessageKind::kObserve;
    if (observes) show_segments(*link);
    if (outcome != os::RecvOutcome::kMessage || message.fds.empty()) {
      loop_->unwatch(link->socket.fd());
      return;
    }
    number = Ready::decode(message.bytes).instance;
    auto segment =
        std::make_shared<ServerSegment>(ServerSegment::attach(std::move(message.fds[0])));
    const std::lock_guard lock(mutex_);
    Instance& instance = instances_[number];
    instance.current = instance.link = link;
    instance.segment = std::move(segment);
    instance.admitted = least_admitted_beside(number);
    ++instance.generation;
    if (closed_) link->socket.shutdown();
  } catch (const Error& error) {
    os::log(os::LogLevel::kWarning, "serve", "model service: {}", error.what());
    loop_->unwatch(link->socket.fd());
    return;
  }
  loop_->watch(link->socket.fd(), POLLIN, [this, number, link] { hear(number, link); });
  changed_.notify_all();
  hand_out();
}

void Frontend::hear(std::uint32_t number, const std::shared_ptr<Link>& link) {
  os::Message message;
  try {
    const os::RecvOutcome outcome = link->socket.recv(message, os::Clock::now());
    if (outcome == os::RecvOutcome::kTimedOut) return;
    if (outcome == os::RecvOutcome::kClosed) {
      lose(number, link);
      return;
    }
    Command answer = Command::decode(message.bytes);
    const std::lock_guard lock(mutex_);
    const auto waited = instances_[number].answers.find(answer.id);
    if (waited != instances_[number].answers.end()) waited->second = std::move(answer.bytes);
  } catch (const Error& error) {
    os::log(os::LogLevel::kWarning, "serve", "model service: {}", error.what());
  }
  changed_.notify_all();
}

void Frontend::lose(std::uint32_t number, const std::shared_ptr<Link>& link) {
  loop_->unwatch(link->socket.fd());
  {
    const std::lock_guard lock(mutex_);
    Instance& instance = instances_[number];
    if (instance.current == link) {
      instance.segment->set_clients(0);  // nobody counts them any more
      instance.link.reset();
      instance.current.reset();
    }
  }
  changed_.notify_all();
}

bool Frontend::wait_ready(std::uint32_t number, std::uint64_t generation, os::Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline,
                             [&] { return instances_[number].generation >= generation; });
}

bool Frontend::wait_gone(std::uint32_t number, os::Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return !instances_[number].current; });
}

std::uint64_t Frontend::generation(std::uint32_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = instances_.find(number);
  return found == instances_.end() ? 0 : found->second.generation;
}

void Frontend::hold_clients(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  instances_[number].held = true;
}

void Frontend::let_clients_in(std::uint32_t number) {
  {
    const std::lock_guard lock(mutex_);
    instances_[number].held = false;
  }
  hand_out();
}

std::optional<std::vector<std::byte>> Frontend::command(std::uint32_t number,
                                                        std::span<const std::byte> bytes,
                                                        os::Deadline deadline,
                                                        const std::function<void()>& look,
                                                        std::uint32_t topic) {
  std::unique_lock lock(mutex_);
  Instance& instance = instances_[number];  // stays where it is
  const std::shared_ptr<Link> link = instance.link;
  const std::uint64_t id = next_command_++;
  if (!link) throw ServiceDied("the model service has no server now");
  auto& answer = instance.answers[id];
  const auto over = [&] { return answer || instance.current != link; };
  const Command said{id, {bytes.begin(), bytes.end()}, topic};
  os::SendOutcome outcome = os::SendOutcome::kSent;
  lock.unlock();
  try {
    outcome = link->send(said.encode(MessageKind::kCommand), {}, os::deadline_after(kTaking));
    lock.lock();
    while (outcome == os::SendOutcome::kSent) {
      const os::Deadline turn = look ? std::min(deadline, os::deadline_after(kLook)) : deadline;
      if (changed_.wait_until(lock, turn, over) || os::Clock::now() >= deadline) break;
      lock.unlock();
      look();
      lock.lock();
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    instance.answers.erase(id);
    throw;
  }
  std::optional<std::vector<std::byte>> result = std::move(answer);
  instance.answers.erase(id);
  if (outcome == os::SendOutcome::kTimedOut) {
    throw DeadlineExceeded(
        fmt::format("a server of the model service has taken no command for {} s: is it stopped?",
                    kTaking.count()));
  }
  if (!result && (outcome == os::SendOutcome::kClosed || instance.current != link)) {
    throw ServiceDied("the server of the model service ended before it answered");
  }
  return result;
}

std::shared_ptr<const ServerSegment> Frontend::segment(std::uint32_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = instances_.find(number);
  return found == instances_.end() ? nullptr : found->second.segment;
}

void Frontend::show_segments(Link& observer) {
  std::vector<int> fds;
  Segments segments;
  const std::lock_guard lock(mutex_);
  for (const auto& [number, instance] : instances_) {
    if (instance.current) ++segments.running;
    segments.restarts += std::max<std::uint64_t>(instance.generation, 1) - 1;
    if (instance.segment && fds.size() < os::SeqPacket::kMaxFds)
      fds.push_back(instance.segment->fd());
  }
  static_cast<void>(observer.send(segments.encode(), fds, os::Clock::now()));
}

Frontend::Observed Frontend::observe(const std::string& address, os::Deadline deadline) {
  os::SeqPacket frontend = connect_to(address + ".link");
  os::Message message;
  if (frontend.send(encode_observe(), {}, deadline) != os::SendOutcome::kSent) {
    throw ServiceDied("the model service at " + address + " has just ended");
  }
  switch (frontend.recv(message, deadline)) {
    case os::RecvOutcome::kMessage:
      break;
    case os::RecvOutcome::kTimedOut:
      throw DeadlineExceeded("the model service at " + address + " does not answer");
    case os::RecvOutcome::kClosed:
      throw ServiceDied("the model service at " + address + " has just ended");
  }
  const Segments told = Segments::decode(message.bytes);
  Observed observed{.segments = {}, .running = told.running, .restarts = told.restarts};
  for (os::Fd& fd : message.fds) {
    observed.segments.push_back(
        std::make_shared<ServerSegment>(ServerSegment::attach(std::move(fd))));
  }
  return observed;
}

void Frontend::close(const std::string& notice) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    end_notice_ = notice;
    for (auto& [number, instance] : instances_) {
      if (instance.link) instance.link->socket.shutdown();
    }
  }
  hand_out();
}

bool Frontend::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace shoal::serve
