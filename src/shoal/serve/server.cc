// The executor's side: which batch leaves when, and what becomes of its rows. Clients come and go
// in server_clients.cc.
#include "shoal/serve/server.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "shoal/os/fault_point.h"
#include "shoal/os/limits/affinity.h"
#include "shoal/serve/address.h"
#include "shoal/serve/errors.h"
#include "shoal/serve/server_state.h"
#include "shoal/trace/recorder.h"

namespace shoal::serve {
namespace {

constexpr std::chrono::milliseconds kSlice{50};
/// How long a full batch may be without a ready row while its claimers seem to write.
constexpr std::uint64_t kStandsStill = 1'000'000'000;  // ns

std::vector<std::string> names(const std::vector<ModelOptions>& models) {
  std::vector<std::string> all;
  for (const ModelOptions& model : models) all.push_back(model.name);
  return all;
}

sync::SpinPolicy spin_policy(std::uint32_t group, int cpus) {
  return sync::SpinPolicy({.group_size = static_cast<int>(group)}, sync::CpuLoad(), cpus);
}

os::Deadline at_ns(std::uint64_t ns) {
  return os::Deadline(std::chrono::nanoseconds(static_cast<std::int64_t>(ns)));
}

}  // namespace

Server::Server(ServerOptions options)
    : options_(std::move(options)),
      segment_(ServerSegment::create(names(options_.models))),
      hello_(Hello{names(options_.models)}.encode()),
      own_pid_(os::PidFd::open(::getpid())),
      spin_(spin_policy(1, os::allowed_cpus())),
      cpus_(os::allowed_cpus()),
      loop_(std::make_unique<process::EventLoop>()) {
  link_ = connect_to(options_.address + ".link");
  const int segment = segment_.fd();
  const auto outcome = link_.send(Ready{options_.instance}.encode(), {&segment, 1});
  if (outcome != os::SendOutcome::kSent) {
    throw ServiceDied("the process that started this server of models has ended");
  }
  loop_->call([this] { watch_link(); });
  trace::open("model service");
}

Server::~Server() {
  if (!maker_.is_this()) {
    os::abandon(std::move(peers_));
    os::abandon(std::move(loop_));  // whose thread is not here
    return;
  }
  loop_->call([this] {
    if (link_) loop_->unwatch(link_.fd());
    for (const auto& [id, peer] : peers_) {
      loop_->unwatch(peer->socket.fd());
      loop_->unwatch(peer->process.fd());
      peer->socket.shutdown();
    }
    peers_.clear();
  });
}

Work Server::next(os::Deadline deadline) {
  for (;;) {
    const std::uint32_t seen = segment_.work().generation();
    if (auto work = next_event()) return std::move(*work);
    look_at_quarantine();
    const std::uint64_t now = os::now_ns();
    std::uint64_t look_again = UINT64_MAX;
    if (QueueState* queue = due_queue(now, look_again)) {
      Batch batch = take(*queue);
      if (!batch.rows.empty()) return batch;
      give_back(batch);
      continue;
    }
    if (os::Clock::now() >= deadline) return NoWork{};
    os::Deadline until = std::min(deadline, os::deadline_after(kSlice));
    if (look_again != UINT64_MAX) until = std::min(until, at_ns(look_again));
    wait_for_work(seen, until);
  }
}

void Server::wait_for_work(std::uint32_t seen, os::Deadline until) {
  const std::uint32_t group = segment_.clients() + 1;
  if (group != spin_group_) {
    spin_group_ = group;
    spin_ = spin_policy(group, cpus_);
  }
  static_cast<void>(segment_.work().wait(seen, spin_, until));  // whatever it was: look around
}

QueueState* Server::due_queue(std::uint64_t now, std::uint64_t& look_again) {
  QueueState* chosen = nullptr;
  std::uint64_t oldest_of_all = UINT64_MAX;
  for (const auto& state : queues_) {
    RequestQueue& queue = *state->queue;
    if (state->open == 0) continue;
    if (options_.most_aside != 0 && state->aside >= options_.most_aside) continue;
    const std::uint32_t buffer = state->open - 1;
    const std::uint32_t claimed = std::min(queue.claims(buffer).claimed(), queue.max_rows());
    std::uint64_t oldest = UINT64_MAX;
    for (std::uint32_t row = 0; row < claimed; ++row) {
      const RowCell& cell = queue.cell(buffer, row);
      if (cell.word.state() == sync::RowState::kReady) {
        oldest = std::min(oldest, cell.submitted_ns);
        if (state->max_delay_ns == 0) break;  // rows are claimed nearly in the order of their age
      }
    }
    if (oldest == UINT64_MAX) {
      if (claimed < queue.max_rows() || !stands_still(*state, buffer, now)) continue;
      oldest = now;
    }
    const bool due = state->max_delay_ns == 0 || claimed >= queue.max_rows() ||
                     now - std::min(now, oldest) >= state->max_delay_ns || quorum(*state);
    if (!due) {
      look_again = std::min(look_again, oldest + state->max_delay_ns);
    } else if (oldest < oldest_of_all) {
      oldest_of_all = oldest;
      chosen = state.get();
    }
  }
  return chosen;
}

/// Whether a full buffer without a ready row is to leave: its claimers have died, or are stopped.
bool Server::stands_still(QueueState& state, std::uint32_t buffer, std::uint64_t now) noexcept {
  if (!is_claimed(state, buffer)) return true;
  if (state.stands_still_ns == 0) state.stands_still_ns = now;
  return now - std::min(now, state.stands_still_ns) >= kStandsStill;
}

bool Server::is_claimed(const QueueState& state, std::uint32_t buffer) noexcept {
  return std::ranges::any_of(
      state.slots, [&](const SlotsOfClient& one) { return one.slots->is_claiming(buffer); });
}

/// Whether no client of this queue can add a row: each waits, here or at another queue.
bool Server::quorum(const QueueState& state) noexcept {
  return std::ranges::all_of(state.slots, [](const SlotsOfClient& one) {
    return std::ranges::any_of(*one.of_client, &ClientSlots::waiting);
  });
}

Batch Server::take(QueueState& state) {
  RequestQueue& queue = *state.queue;
  Batch batch;
  batch.queue = &state;
  batch.model = queue.kind().model;
  batch.pinned = queue.kind().pinned;
  batch.buffer = state.open - 1;
  const std::uint32_t claimed = std::min(queue.claims(batch.buffer).close(), queue.max_rows());
  SHOAL_FAULT_POINT("serve.take.closed");
  state.open = 0;
  queue.set_open(0);
  open_buffer(state);
  wait_for_stragglers(state, batch.buffer, claimed);
  batch.left_ns = os::now_ns();
  collect(state, batch.buffer, claimed, batch);
  if (!batch.rows.empty()) {
    add(statistics(batch.model).batches);
    statistics(batch.model).batch_rows.record(batch.rows.size());
  }
  return batch;
}

void Server::wait_for_stragglers(QueueState& state, std::uint32_t buffer, std::uint32_t claimed) {
  RequestQueue& queue = *state.queue;
  // A nanosecond a byte; otherwise large rows could be missed again and again.
  const std::chrono::nanoseconds writing(static_cast<std::int64_t>(row_bytes(queue.kind().inputs)));
  const os::Deadline end = os::deadline_after(kStragglerWait + writing);
  for (std::uint32_t row = 0; row < claimed; ++row) {
    const sync::RowWord& word = queue.cell(buffer, row).word;
    while (word.state() == sync::RowState::kEmpty) {
      const std::uint32_t seen = segment_.work().generation();
      const bool comes = is_claimed(state, buffer);
      if (word.state() != sync::RowState::kEmpty) break;
      if (!comes || os::Clock::now() >= end) break;
      static_cast<void>(segment_.work().wait(seen, spin_, end));
    }
  }
}

void Server::collect(QueueState& state, std::uint32_t buffer, std::uint32_t claimed, Batch& batch) {
  RequestQueue& queue = *state.queue;
  bool missed = false;
  std::vector<std::uint32_t> from;
  for (std::uint32_t row = 0; row < claimed; ++row) {
    RowCell& cell = queue.cell(buffer, row);
    if (cell.word.state() == sync::RowState::kEmpty && cell.word.miss()) {
      missed = true;
    } else if (begin_row(state, cell, batch)) {
      from.push_back(row);
    }
  }
  if (missed) state.quarantine.push_back({buffer, claimed});
  batch.quarantined = missed;
  // The model must see no gaps. A claimer that was missed may still write into its row; then the
  // other rows are copied to memory of this process.
  for (std::size_t leaf = 0; leaf < queue.leaves(); ++leaf) {
    const std::size_t bytes = queue.leaf_bytes(leaf);
    std::byte* to = queue.input(buffer, leaf, 0);
    if (missed) {
      state.scratch.resize(queue.leaves());
      state.scratch[leaf].resize(bytes * queue.max_rows());
      to = state.scratch[leaf].data();
    }
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::byte* row = queue.input(buffer, leaf, from[i]);
      if (to + i * bytes != row) std::memcpy(to + i * bytes, row, bytes);
    }
  }
}

bool Server::begin_row(QueueState& state, const RowCell& cell, Batch& batch) {
  const auto found = slots_.find(cell.client_slots);
  ModelStatistics& counts = statistics(batch.model);
  const std::uint32_t slot = cell.slot;  // read once: what is checked is what is used
  if (found == slots_.end() || found->second.queue != &state ||
      slot >= found->second.slots->slots()) {
    add(counts.dropped_rows);
    return false;
  }
  ClientSlots& slots = *found->second.slots;
  BatchRow row{.slots = &slots,
               .slot = slot,
               .generation = cell.generation,
               .submitted_ns = cell.submitted_ns,
               .deadline_ns = cell.deadline_ns,
               .client = found->second.client,
               .env = cell.env,
               .reset = (cell.flags & RowCell::kReset) != 0};
  if (!slots.cell(row.slot).word.begin(row.generation)) {
    add(counts.dropped_rows);
    owe_reset(row, batch.model);
    return false;
  }
  if (cell.deadline_ns != 0 && cell.deadline_ns <= batch.left_ns) {
    add(counts.expired_rows);
    owe_reset(row, batch.model);
    slots.cell(row.slot).status = ReplyStatus::kDeadlineExceeded;
    static_cast<void>(slots.cell(row.slot).word.finish(row.generation));
    slots.set_waiting(false);
    slots.done().ring();
    return false;
  }
  counts.queue_wait_ns.record(batch.left_ns - std::min(batch.left_ns, row.submitted_ns));
  row.reset = takes_reset(row, batch.model);
  batch.rows.push_back(row);
  return true;
}

void Server::owe_reset(const BatchRow& row, std::uint32_t model) {
  if (row.reset) owed_resets_.insert({row.client, model, row.env});
}

bool Server::takes_reset(const BatchRow& row, std::uint32_t model) {
  if (owed_resets_.empty()) return row.reset;
  return owed_resets_.erase({row.client, model, row.env}) > 0 || row.reset;
}

const RequestKind& Server::kind(const Batch& batch) const noexcept {
  return batch.queue->queue->kind();
}

const RowSpec& Server::outputs(const Batch& batch) const noexcept { return batch.queue->outputs; }

const std::vector<std::byte>& Server::answer_structure(const Batch& batch) const noexcept {
  return batch.queue->structure;
}

std::uint32_t Server::max_rows(const Batch& batch) const noexcept {
  return batch.queue->queue->max_rows();
}

std::byte* Server::input(const Batch& batch, std::size_t leaf, std::uint32_t row) const noexcept {
  const RequestQueue& queue = *batch.queue->queue;
  if (!batch.quarantined) return queue.input(batch.buffer, leaf, row);
  return batch.queue->scratch[leaf].data() + row * queue.leaf_bytes(leaf);
}

std::byte* Server::output(const Batch& batch, std::uint32_t row, std::size_t leaf) const noexcept {
  return batch.rows[row].slots->output(batch.rows[row].slot, leaf);
}

void Server::reply(Batch& batch, std::uint32_t row, std::uint64_t version) noexcept {
  answered(batch, row, ReplyStatus::kOk, version);
}

void Server::fail(Batch& batch, std::uint32_t row, std::string_view text,
                  std::uint64_t version) noexcept {
  batch.rows[row].slots->set_text(batch.rows[row].slot, text);
  add(statistics(batch.model).failed_rows);
  answered(batch, row, ReplyStatus::kModelError, version);
}

void Server::expire(Batch& batch, std::uint32_t row) noexcept {
  add(statistics(batch.model).expired_rows);
  answered(batch, row, ReplyStatus::kDeadlineExceeded, 0);
}

void Server::answered(Batch& batch, std::uint32_t i, ReplyStatus status,
                      std::uint64_t version) noexcept {
  BatchRow& row = batch.rows[i];
  SHOAL_CHECK(!row.answered, "a row got two replies");
  row.answered = true;
  SlotCell& cell = row.slots->cell(row.slot);
  cell.status = status;
  cell.version = version;
  cell.batch_rows = static_cast<std::uint32_t>(batch.rows.size());
  SHOAL_FAULT_POINT("serve.reply.written");
  ModelStatistics& counts = statistics(batch.model);
  add(counts.rows);
  const std::uint64_t now = os::now_ns();
  counts.latency_ns.record(now - std::min(now, row.submitted_ns));
  row.slots->set_waiting(false);
  static_cast<void>(row.slots->cell(row.slot).word.finish(row.generation));
  SHOAL_FAULT_POINT("serve.reply.finished");
  // One ring for neighbours of one client.
  const bool more = i + 1 < batch.rows.size() && batch.rows[i + 1].slots == row.slots &&
                    !batch.rows[i + 1].answered;
  if (!more) row.slots->done().ring();
}

void Server::finish(Batch& batch, std::uint32_t padded_rows) {
  for (std::uint32_t row = 0; row < batch.rows.size(); ++row) {
    if (!batch.rows[row].answered) fail(batch, row, "the model gave no reply for this row", 0);
  }
  ModelStatistics& counts = statistics(batch.model);
  add(counts.padded_rows, padded_rows);
  const std::uint64_t now_ns = os::now_ns();
  counts.run_ns.record(now_ns - batch.left_ns);
  trace::note(trace::Span::kBatch, batch.left_ns, now_ns, batch.rows.size());
  give_back(batch);
}

AsideBatch Server::set_aside(Batch batch) {
  give_back(batch);
  AsideBatch aside{.batch = std::move(batch), .slots = {}};
  aside.batch.aside = true;
  ++aside.batch.queue->aside;
  for (const BatchRow& row : aside.batch.rows) aside.slots.push_back(row.slots->id());
  return aside;
}

Batch Server::take_back(AsideBatch aside) {
  Batch batch = std::move(aside.batch);
  for (std::size_t row = 0; row < batch.rows.size(); ++row) {
    if (slots_.contains(aside.slots[row])) continue;
    batch.rows[row].slots = nullptr;
    batch.rows[row].answered = true;
  }
  return batch;
}

/// A buffer in quarantine is given back by look_at_quarantine().
void Server::give_back(const Batch& batch) {
  if (batch.aside) {
    --batch.queue->aside;
  } else if (!batch.quarantined) {
    free_buffer(*batch.queue, batch.buffer);
  }
}

void Server::free_buffer(QueueState& state, std::uint32_t buffer) {
  for (std::uint32_t row = 0; row < state.queue->max_rows(); ++row) {
    state.queue->cell(buffer, row).word.clear();
  }
  state.free.push_back(buffer);
  if (state.open == 0) open_buffer(state);
}

void Server::open_buffer(QueueState& state) {
  if (state.free.empty()) return;
  const std::uint32_t buffer = state.free.back();
  state.free.pop_back();
  state.stands_still_ns = 0;
  state.queue->claims(buffer).open();
  state.open = buffer + 1;
  state.queue->set_open(buffer + 1);
  SHOAL_FAULT_POINT("serve.open.stored");
  state.queue->opened().ring();
}

void Server::look_at_quarantine() {
  for (const auto& state : queues_) {
    std::erase_if(state->quarantine, [&](const Quarantined& held) {
      const RequestQueue& queue = *state->queue;
      const bool claimed = is_claimed(*state, held.buffer);
      for (std::uint32_t row = 0; claimed && row < held.claimed; ++row) {
        const sync::RowState word = queue.cell(held.buffer, row).word.state();
        if (word == sync::RowState::kMissed) return false;
      }
      free_buffer(*state, held.buffer);
      return true;
    });
  }
}

}  // namespace shoal::serve
