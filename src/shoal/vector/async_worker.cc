#include "shoal/vector/async_worker.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/vector/control_block.h"

namespace shoal::vector {
namespace {

// Neighbours that can be stepped by one call are, as long as that takes no longer: the first of
// them waits for the last.
constexpr double kRunNs = 20'000;
constexpr int kMaxRun = 256;

using sync::SlotPlace;

}  // namespace

AsyncWorker::AsyncWorker(AsyncSegment segment, int worker, int first_env,
                         std::unique_ptr<Stepper> stepper, AsyncWorkerHooks hooks)
    : segment_(std::move(segment)),
      worker_(worker),
      first_env_(first_env),
      stepper_(std::move(stepper)),
      hooks_(std::move(hooks)),
      marker_(&segment_.cell(worker).env_now, &segment_.cell(worker).env_since) {
  stepper_->attach(segment_.home(), first_env_, marker_);
  guard_ = FaultGuard(*stepper_, segment_.home(), first_env_, marker_, hooks_.tolerant,
                      [this] { return describe_failure(); });
}

int AsyncWorker::serve(int most) {
  int served = 0;
  while (served < most) {
    take_run(most - served);
    if (run_.empty()) break;
    served += static_cast<int>(run_.size());
    obey_run();
  }
  return served;
}

// Takes the next orders that are one call of the stepper's.
void AsyncWorker::take_run(int most) {
  run_.clear();
  sync::SpscIndices& inbox = segment_.inbox(worker_);
  const std::uint32_t readable = inbox.readable();
  if (readable == 0) return;
  int limit = 1;
  if (stepper_->divisible()) {
    limit = std::min({most, static_cast<int>(readable), kMaxRun});
    if (step_ns_ > 0) limit = std::min(limit, std::max(1, static_cast<int>(kRunNs / step_ns_)));
  }
  const std::uint32_t begin = inbox.read_index();
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(limit); ++i) {
    const InboxEntry& next = segment_.entry(worker_, begin + i);
    if (i > 0 && (next.order != run_[0].order || next.row != run_[0].row + i)) break;
    run_.push_back(next);
  }
  inbox.consume(static_cast<std::uint32_t>(run_.size()));
  pass("taken");
}

// Steps or resets the run. Who throws is delivered as failed; those behind it go on.
void AsyncWorker::obey_run() {
  const std::uint64_t start_ns = os::now_ns();
  const int begin = static_cast<int>(run_[0].row) - first_env_;
  const int end = begin + static_cast<int>(run_.size());
  const auto deliver_range = [&](int lo, int hi, std::span<const std::byte> info) {
    for (int i = lo; i < hi; ++i) deliver(run_[static_cast<std::size_t>(i - begin)], 0, info);
  };
  for (int lo = begin; lo < end;) {
    try {
      work(run_[0].order, lo, end);
      deliver_range(lo, end, stepper_->info());
      break;
    } catch (...) {
      const int blamed = EnvMarker::blamed(marker_.word()) - first_env_;
      const bool known = lo <= blamed && blamed < end;
      process::ErrorReport report;
      if (guard_.contain(lo, end) >= 0) {
        report = guard_.take_report();
      } else {
        report = describe_failure();
        if (report.env_index < 0 && (known || end - lo == 1)) {
          report.env_index = first_env_ + (known ? blamed : lo);
        }
      }
      const std::vector<std::byte> bytes = report.encode();
      // Where nobody can be blamed, all that were stepped at once have failed.
      const int failed_lo = known ? blamed : lo;
      const int failed_hi = known ? blamed + 1 : end;
      deliver_range(lo, failed_lo, {});
      for (int i = failed_lo; i < failed_hi; ++i) {
        deliver(run_[static_cast<std::size_t>(i - begin)], AsyncBlock::kFailed, bytes);
      }
      lo = failed_hi;
    }
  }
  marker_.none();
  const std::uint64_t elapsed_ns = os::now_ns() - start_ns;
  add_alone(cell().busy_ns, elapsed_ns);
  add_alone(run_[0].order == Order::kStep ? cell().steps : cell().resets, run_.size());
  if (run_[0].order == Order::kStep) learn_cost(elapsed_ns, static_cast<int>(run_.size()));
}

void AsyncWorker::work(Order order, int lo, int hi) {
  if (order == Order::kStep) {
    // relaxed: one that comes late is told by the row
    stepper_->hold_resets(cell().hold_resets.load(std::memory_order_relaxed) != 0);
    stepper_->begin_step();
    stepper_->step_range(lo, hi);
    return;
  }
  const Rows& home = segment_.home();
  const auto first = static_cast<std::size_t>(first_env_ + lo);
  const auto count = static_cast<std::size_t>(hi - lo);
  std::fill_n(home.reset_mask.begin() + static_cast<std::ptrdiff_t>(first), count, std::uint8_t{1});
  stepper_->begin_reset();
  for (int i = lo; i < hi; ++i) {
    if (!stepper_->is_gone(i)) continue;
    marker_.resetting(first_env_ + i);
    stepper_->rebuild(i);
  }
  stepper_->reset_range(lo, hi);
  if (order == Order::kRenew) {
    std::fill_n(home.reset.begin() + static_cast<std::ptrdiff_t>(first), count, std::uint8_t{1});
  }
}

void AsyncWorker::deliver(const InboxEntry& entry, std::uint8_t fault,
                          std::span<const std::byte> info) {
  SlotPlace place{entry.sequence, entry.block, entry.slot};
  const bool to_home = entry.block == segment_.home_block();
  sync::ArrivalSlots& slots = to_home ? segment_.home_slots() : segment_.slots();
  pass("stepped");
  if (entry.block == InboxEntry::kArrival) place = slots.claim(entry.row);
  pass("claimed");
  const AsyncBlock& block = segment_.block(static_cast<int>(place.block));
  if (!to_home) copy_row(segment_.home(), entry.row, block.rows, place.slot);
  block.rows.fault[place.slot] = fault;
  block.env_ids[place.slot] = entry.row;
  const bool fits = info.size() <= AsyncBlock::kInfoBytes;
  block.info_sizes[place.slot] =
      fits ? static_cast<std::uint32_t>(info.size()) : AsyncBlock::kInfoElsewhere;
  if (fits && !info.empty()) {
    std::memcpy(block.info(place.slot).data(), info.data(), info.size());
  }
  const bool elsewhere = !fits && hooks_.bring_info;
  if (elsewhere && !hooks_.bring_waits) {
    hooks_.bring_info(static_cast<int>(entry.row), place.sequence, info);
  }
  const SlotPlace word{place.sequence, to_home ? 0 : place.block, place.slot};
  pass("written");
  slots.ready(word, entry.row);
  pass("ready");
  block.gather->arrive(place.sequence);
  pass("arrived");
  if (elsewhere && hooks_.bring_waits) {
    hooks_.bring_info(static_cast<int>(entry.row), place.sequence, info);
  }
}

process::ErrorReport AsyncWorker::describe_failure() {
  return hooks_.describe_exception ? hooks_.describe_exception()
                                   : process::ErrorReport::from_current_exception();
}

void AsyncWorker::learn_cost(std::uint64_t elapsed_ns, int count) noexcept {
  const double cost_ns = static_cast<double>(elapsed_ns) / count;
  step_ns_ = step_ns_ == 0 ? cost_ns : step_ns_ + (cost_ns - step_ns_) / 8;
}

}  // namespace shoal::vector
