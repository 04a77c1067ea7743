// ProcessEngine: what workers are asked beyond reset and step, one of them or all at once.
#include <fmt/format.h>

#include <utility>

#include "shoal/vector/messages.h"
#include "shoal/vector/process_engine.h"

namespace shoal::vector {

std::vector<std::byte> ProcessEngine::request(int worker, std::span<const std::byte> message,
                                              std::optional<std::chrono::nanoseconds> timeout) {
  state_.require_idle("request");
  seat(worker);
  look_for_deaths();
  WorkerSeat& at = seats_[static_cast<std::size_t>(worker)];
  const Patience patience = patience_for(timeout);
  await_worker(at, patience);
  ++sequence_;
  at.send(encode_bytes(MessageKind::kRequest, sequence_, message), patience);
  give(at, Command::kRequest);
  control_.doorbell().ring();
  try {
    return answer(at, sequence_, patience);
  } catch (const process::WorkerDied& death) {
    handle_death(at, death.certificate());
    throw;
  }
}

// What the worker answers to the request of `sequence`. Throws process::RemoteError for a refusal.
std::vector<std::byte> ProcessEngine::answer(WorkerSeat& seat, std::uint64_t sequence,
                                             const Patience& patience) {
  for (;;) {
    BytesMessage reply = decode_bytes(seat.next_message(patience, "answer"));
    if (reply.sequence != sequence) continue;  // to a request that was given up
    if (reply.kind == MessageKind::kReply) return std::move(reply.bytes);
    throw process::RemoteError(seat.spec().name, process::ErrorReport::decode(reply.bytes).value());
  }
}

void ProcessEngine::request_async(std::span<const std::vector<std::byte>> messages) {
  state_.require_idle("request");
  if (messages.size() != seats_.size()) {
    throw InvalidArgument(
        fmt::format("request_async: {} messages for {} workers", messages.size(), seats_.size()));
  }
  look_for_deaths();
  const Patience patience = patience_for_start();
  for (WorkerSeat& seat : seats_) {
    const bool asked = !messages[static_cast<std::size_t>(seat.index())].empty();
    if (asked && !gone_for_good(seat)) await_worker(seat, patience);
  }
  ++sequence_;
  // All messages before the first command: what is thrown in between leaves nobody at work, and a
  // worker passes over messages of older sequences.
  for (WorkerSeat& seat : seats_) {
    const auto& message = messages[static_cast<std::size_t>(seat.index())];
    if (message.empty() || !seat.attached()) continue;
    seat.send(encode_bytes(MessageKind::kRequest, sequence_, message), patience);
  }
  state_.begin_request();
  for (WorkerSeat& seat : seats_) {
    seat.answer.clear();
    // Who has been dropped answers nothing.
    seat.owes_answer = !messages[static_cast<std::size_t>(seat.index())].empty() && seat.attached();
    if (seat.owes_answer) give(seat, Command::kRequest);
  }
  control_.doorbell().ring();
}

std::vector<std::vector<std::byte>> ProcessEngine::request_wait(
    std::optional<std::chrono::nanoseconds> timeout) {
  state_.require_pending_request();
  const Patience patience = patience_for(timeout);
  for (WorkerSeat& seat : seats_) take_answer(seat, patience);
  state_.finish();
  std::vector<std::vector<std::byte>> answers;
  std::exception_ptr failure;
  for (WorkerSeat& seat : seats_) {
    answers.push_back(std::move(seat.answer));
    if (seat.refusal && !failure) failure = seat.refusal;
  }
  for (WorkerSeat& seat : seats_) settle_refusal(seat);
  if (failure) std::rethrow_exception(failure);
  return answers;
}

// What a worker's death in a request leads to beyond the exception.
void ProcessEngine::settle_refusal(WorkerSeat& seat) {
  const std::exception_ptr refusal = std::exchange(seat.refusal, nullptr);
  if (!refusal) return;
  try {
    std::rethrow_exception(refusal);
  } catch (const process::RemoteError&) {
  } catch (const process::WorkerDied& death) {
    handle_death(seat, death.certificate());
  }
}

// A refusal or a death is kept in the seat: the others' answers come first.
void ProcessEngine::take_answer(WorkerSeat& seat, const Patience& patience) {
  if (!seat.owes_answer) return;
  try {
    seat.answer = answer(seat, seat.posted, patience);
  } catch (const process::RemoteError&) {
    seat.refusal = std::current_exception();
  } catch (const process::WorkerDied&) {
    seat.refusal = std::current_exception();
  }
  seat.owes_answer = false;
}

}  // namespace shoal::vector
