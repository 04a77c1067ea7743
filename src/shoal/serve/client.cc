// Requests and replies; how a client gets to its queues is in client_queues.cc.
#include "shoal/serve/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "shoal/os/fault_point.h"
#include "shoal/serve/errors.h"
#include "shoal/serve/failure_text.h"
#include "shoal/trace/recorder.h"

namespace shoal::serve {

sync::SpinPolicy& Client::spin() {
  const std::uint32_t group = segment_.clients() + 1;
  if (group != spin_group_) {
    spin_group_ = group;
    spin_ = sync::SpinPolicy({.group_size = static_cast<int>(group)}, sync::CpuLoad(), cpus_);
  }
  return spin_;
}

Request Client::submit(ClientQueue& at, const Rows& rows) {
  reclaim(at);
  if (rows.count == 0 || at.free.size() < rows.count) throw_too_many(rows.count, at.free.size());
  Request request{.at = &at, .rows = {}, .deadline = rows.deadline};
  for (std::uint32_t row = 0; row < rows.count; ++row) {
    const std::uint32_t slot = at.free.back();
    at.free.pop_back();
    request.rows.push_back({slot, at.slots->cell(slot).word.queue()});
  }
  SHOAL_FAULT_POINT("serve.submit.queued");
  try {
    std::uint32_t written = 0;
    while (written < rows.count) {
      const std::uint32_t seen = at.queue->opened().generation();
      const std::uint32_t more = write_rows(at, rows, request, written);
      if (more == 0) wait_for_buffer(at, rows, seen);
      written += more;
    }
  } catch (...) {
    cancel(request);
    throw;
  }
  return request;
}

void Client::throw_too_many(std::size_t rows, std::size_t may_be) {
  throw OverCapacity(fmt::format(
      "{} rows were to be in flight at once, {} may be: make several calls of fewer rows "
      "each, and read their replies in between",
      rows, may_be));
}

/// Writes rows, from `first` on, into the open batch; returns how many found room there.
std::uint32_t Client::write_rows(ClientQueue& at, const Rows& rows, Request& request,
                                 std::uint32_t first) {
  RequestQueue& queue = *at.queue;
  const std::uint32_t open = queue.open();
  if (open == 0 || open > queue.buffers()) return 0;
  const std::uint32_t buffer = open - 1;
  at.slots->announce_claim(buffer);
  SHOAL_FAULT_POINT("serve.submit.announced");
  const sync::RowRange range = queue.claims(buffer).claim(rows.count - first, queue.max_rows());
  SHOAL_FAULT_POINT("serve.submit.claimed");
  std::uint32_t written = 0;
  bool in_order = true;  // rows that the batch left without are the last of those written
  for (std::uint32_t i = 0; i < range.count; ++i) {
    // After a missed row the later ones must not overtake it: their claimed rows stay empty.
    const std::uint32_t index = first + written;
    if (in_order && write_row(at, buffer, range.first + i, rows, index, request.rows[index])) {
      ++written;
    } else {
      in_order = false;
    }
  }
  at.slots->end_claim();
  SHOAL_FAULT_POINT("serve.submit.ready");
  // Also without a row: a buffer may come back that was announced for nothing.
  segment_.work().ring();
  return written;
}

bool Client::write_row(ClientQueue& at, std::uint32_t buffer, std::uint32_t row, const Rows& rows,
                       std::uint32_t index, Request::Row reply_to) {
  RequestQueue& queue = *at.queue;
  RowCell& cell = queue.cell(buffer, row);
  const RowOrigin origin =
      rows.origins.empty()
          ? RowOrigin{.env = rows.env, .reset = rows.reset, .deadline = rows.deadline}
          : rows.origins[index];
  cell.client_slots = at.slots->id();
  cell.slot = reply_to.slot;
  cell.generation = reply_to.generation;
  cell.submitted_ns = origin.submitted_ns != 0 ? origin.submitted_ns : os::now_ns();
  cell.deadline_ns = origin.deadline == os::kNoDeadline
                         ? 0
                         : static_cast<std::uint64_t>(origin.deadline.time_since_epoch().count());
  cell.env = origin.env;
  cell.flags = origin.reset ? RowCell::kReset : 0;
  for (std::size_t leaf = 0; leaf < queue.leaves(); ++leaf) {
    const std::size_t bytes = queue.leaf_bytes(leaf);
    std::memcpy(queue.input(buffer, leaf, row), rows.leaves[leaf] + index * bytes, bytes);
  }
  SHOAL_FAULT_POINT("serve.submit.written");
  return cell.word.ready();
}

void Client::wait_for_buffer(ClientQueue& at, const Rows& rows, std::uint32_t seen) {
  if (!rows.wait_for_room) {
    throw OverCapacity(fmt::format(
        "the open batch of {} rows is full and the model is busy: ask again later, wait for room, "
        "or make the service's max_batch larger",
        at.queue->max_rows()));
  }
  const os::Deadline slice = std::min(rows.deadline, os::deadline_after(kSlice));
  if (at.queue->opened().wait(seen, spin(), slice) == sync::WaitOutcome::kReady) return;
  need_alive();
  if (os::Clock::now() >= rows.deadline) {
    throw DeadlineExceeded("the deadline passed before there was room in a batch");
  }
  if (idle_) idle_();
}

bool Client::done(const Request& request) const noexcept {
  return std::ranges::all_of(request.rows, [&](const Request::Row& row) {
    return request.at->slots->cell(row.slot).word.state() == sync::ReplyState::kDone;
  });
}

bool Client::wait(Request& request, os::Deadline until) {
  const trace::Scope scope(trace::Span::kServiceWait, request.rows.size());
  ClientSlots& slots = *request.at->slots;
  bool told = false;
  for (;;) {
    const std::uint32_t seen = slots.done().generation();
    if (done(request)) break;
    if (request.at->queue->tells_when_waiting() && !slots.waiting()) {
      announce_wait(*request.at);
      told = true;
    }
    const os::Deadline slice = std::min({until, request.deadline, os::deadline_after(kSlice)});
    if (slots.done().wait(seen, spin(), slice) == sync::WaitOutcome::kReady) continue;
    if (done(request)) break;
    need_alive();
    const os::Deadline now = os::Clock::now();
    if (now >= request.deadline) {
      cancel(request);
      throw DeadlineExceeded("the deadline passed before there was a reply");
    }
    if (now >= until) {
      if (told) slots.set_waiting(false);
      return false;
    }
  }
  return true;
}

void Client::announce_wait(ClientQueue& at) noexcept {
  if (!at.queue->tells_when_waiting() || at.slots->waiting()) return;
  at.slots->set_waiting(true);
  segment_.work().ring();
}

void Client::check(const Request& request) const {
  for (std::uint32_t row = 0; row < request.rows.size(); ++row) {
    switch (status(request, row)) {
      case ReplyStatus::kOk:
        continue;
      case ReplyStatus::kDeadlineExceeded:
        throw DeadlineExceeded("the deadline passed while the row waited for the model");
      default: {
        const FailureText failure = FailureText::decode(error(request, row));
        throw ModelError(failure.message, failure.traceback);
      }
    }
  }
}

ReplyStatus Client::status(const Request& request, std::uint32_t row) const noexcept {
  return request.at->slots->cell(request.rows[row].slot).status;
}

std::string_view Client::error(const Request& request, std::uint32_t row) const noexcept {
  return request.at->slots->text(request.rows[row].slot);
}

std::uint64_t Client::version(const Request& request, std::uint32_t row) const noexcept {
  return request.at->slots->cell(request.rows[row].slot).version;
}

const std::byte* Client::output(const Request& request, std::uint32_t row,
                                std::size_t leaf) const noexcept {
  return request.at->slots->output(request.rows[row].slot, leaf);
}

void Client::release(Request& request) noexcept {
  for (const Request::Row& row : request.rows) {
    request.at->slots->cell(row.slot).word.release(row.generation);
    request.at->free.push_back(row.slot);
  }
  request.rows.clear();
}

void Client::cancel(Request& request) noexcept {
  for (const Request::Row& row : request.rows) {
    if (request.at->slots->cell(row.slot).word.abandon(row.generation)) {
      request.at->free.push_back(row.slot);
    } else {
      request.at->leaving.push_back(row.slot);
    }
  }
  request.rows.clear();
}

/// Slots of cancelled rows whose batch is finished by now.
void Client::reclaim(ClientQueue& at) noexcept {
  std::erase_if(at.leaving, [&](std::uint32_t slot) {
    if (at.slots->cell(slot).word.state() != sync::ReplyState::kFree) return false;
    at.free.push_back(slot);
    return true;
  });
}

}  // namespace shoal::serve
