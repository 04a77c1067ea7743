#include "shoal/vector/workers/worker_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "shoal/process/worker_died.h"
#include "shoal/vector/workers/worker_set.h"

namespace shoal::vector {

std::uint64_t WorkerRequests::ask(int worker, std::span<const std::byte> message,
                                  os::Deadline deadline) {
  WorkerSlot& slot = set_.slot_at(worker);
  const std::uint64_t sequence = set_.next_sequence();
  const PoolMessage request{.kind = PoolKind::kRequest,
                            .session = set_.session(),
                            .sequence = sequence,
                            .bytes = {message.begin(), message.end()}};
  slot.asked = sequence;
  while (!set_.send(worker, request, std::min(deadline, os::deadline_after(Patience::kSlice)))) {
    set_.check_interrupt();
    if (os::Clock::now() < deadline) continue;
    throw TimedOut(fmt::format("{} takes no requests: it is still busy with earlier ones",
                               slot.scene.describe()));
  }
  return sequence;
}

// Until the worker has its environments (again), and they are not on their way to another.
void WorkerRequests::await_up(int worker, os::Deadline deadline) {
  const WorkerSlot& slot = set_.slot(worker);
  while (!slot.answers()) {
    if (slot.state == WorkerSlot::State::kGone) {
      throw InvalidState(
          fmt::format("{} has been dropped: there is nobody to ask", slot.scene.describe()));
    }
    if (os::Clock::now() >= deadline) {
      throw TimedOut(fmt::format("{} has not come back in time", slot.scene.describe()));
    }
    std::this_thread::sleep_for(Patience::kShortSlice);
    set_.check_interrupt();
    static_cast<void>(set_.poll());
  }
}

PoolMessage WorkerRequests::await_answer(int worker, std::uint64_t sequence,
                                         os::Deadline deadline) {
  try {
    PoolMessage answer =
        set_.await_message(worker, deadline, "answer", [sequence](const PoolMessage& message) {
          return (message.kind == PoolKind::kReply || message.kind == PoolKind::kRefusal) &&
                 message.sequence == sequence;
        });
    set_.slot_at(worker).answered = sequence;
    return answer;
  } catch (const process::WorkerDied&) {
    static_cast<void>(set_.look_for_deaths());  // so that the policy begins at once
    throw;
  }
}

std::vector<std::byte> WorkerRequests::take_answer(int worker, PoolMessage answer) {
  if (answer.kind == PoolKind::kReply) return std::move(answer.bytes);
  throw process::RemoteError(set_.slot(worker).scene.name, report_in(answer.bytes));
}

std::vector<std::byte> WorkerRequests::request(int worker, std::span<const std::byte> message,
                                               std::optional<std::chrono::nanoseconds> timeout) {
  set_.state().require_idle("request");
  set_.hello(worker);  // refuses a worker that there is not
  static_cast<void>(set_.poll());
  const os::Deadline deadline = Patience::deadline_of(timeout);
  await_up(worker, deadline);
  const std::uint64_t sequence = ask(worker, message, deadline);
  return take_answer(worker, await_answer(worker, sequence, deadline));
}

void WorkerRequests::request_async(std::span<const std::vector<std::byte>> messages) {
  set_.state().require_idle("request");
  if (messages.size() != static_cast<std::size_t>(set_.size())) {
    throw InvalidArgument(
        fmt::format("request_async: {} messages for {} workers", messages.size(), set_.size()));
  }
  static_cast<void>(set_.poll());
  const auto nobody = [&](int w) {  // who has been dropped answers nothing
    return messages[static_cast<std::size_t>(w)].empty() ||
           set_.slot(w).state == WorkerSlot::State::kGone;
  };
  const os::Deadline deadline = os::deadline_after(set_.options().faults.start_timeout);
  for (int w = 0; w < set_.size();) {
    if (nobody(w) || set_.slot(w).answers()) {
      ++w;
      continue;
    }
    await_up(w, deadline);
    w = 0;  // meanwhile another may have gone
  }
  // What is thrown in between leaves nothing under way: the answers that come are passed over.
  std::vector<Asked> asked;
  for (int w = 0; w < set_.size(); ++w) {
    if (nobody(w)) continue;
    asked.push_back({w, ask(w, messages[static_cast<std::size_t>(w)], deadline), {}});
  }
  set_.state().begin_request();
  asked_ = std::move(asked);
}

std::vector<std::vector<std::byte>> WorkerRequests::request_wait(
    std::optional<std::chrono::nanoseconds> timeout) {
  set_.state().require_pending_request();
  const os::Deadline deadline = Patience::deadline_of(timeout);
  std::exception_ptr death;
  for (Asked& asked : asked_) {  // what TimedOut leaves unanswered is waited for the next time
    if (asked.answer) continue;
    try {
      asked.answer = await_answer(asked.worker, asked.sequence, deadline);
    } catch (const process::WorkerDied&) {
      if (!death) death = std::current_exception();
      asked.answer = PoolMessage{};
    }
  }
  set_.state().finish();
  std::vector<Asked> all = std::exchange(asked_, {});
  if (death) std::rethrow_exception(death);
  std::vector<std::vector<std::byte>> answers(static_cast<std::size_t>(set_.size()));
  for (Asked& asked : all) {
    answers[static_cast<std::size_t>(asked.worker)] =
        take_answer(asked.worker, *std::move(asked.answer));
  }
  return answers;
}

}  // namespace shoal::vector
