#include "shoal/vector/async/async_worker.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/trace/recorder.h"

namespace shoal::vector {
namespace {

// Orders that can be obeyed together are, as long as that takes no longer: the first of them waits
// for the last.
constexpr double kTurnNs = 20'000;
constexpr int kMaxTurn = 1024;
static_assert(kMaxTurn <= static_cast<int>(sync::ArrivalSlots::kMaxRun));

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
    take_turn(most - served);
    if (turn_.empty()) break;
    served += static_cast<int>(turn_.size());
    for (Run rest = turn_; !rest.empty();) {
      std::size_t n = 1;  // neighbours with the same order
      while (n < rest.size() && rest[n].order == rest[0].order && rest[n].row == rest[0].row + n)
        ++n;
      obey(rest.first(n));
      rest = rest.subspan(n);
    }
  }
  return served;
}

// Takes the next orders, as many as are to be obeyed together.
void AsyncWorker::take_turn(int most) {
  turn_.clear();
  sync::SpscIndices& inbox = segment_.inbox(worker_);
  const std::uint32_t readable = inbox.readable();
  if (readable == 0) return;
  int limit = 1;
  if (stepper_->divisible() && !guard_.one_by_one()) {
    limit = std::min({most, static_cast<int>(readable), kMaxTurn});
    if (step_ns_ > 0) limit = std::min(limit, std::max(1, static_cast<int>(kTurnNs / step_ns_)));
  }
  const std::uint32_t begin = inbox.read_index();
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(limit); ++i) {
    turn_.push_back(segment_.entry(worker_, begin + i));
  }
  inbox.consume(static_cast<std::uint32_t>(limit));
  const auto by_row = [](const InboxEntry& a, const InboxEntry& b) { return a.row < b.row; };
  if (!std::is_sorted(turn_.begin(), turn_.end(), by_row))
    std::sort(turn_.begin(), turn_.end(), by_row);
  pass("taken");
}

// Steps or resets neighbours. Who throws is delivered as failed; those behind it go on.
void AsyncWorker::obey(Run run) {
  const std::uint64_t start_ns = os::now_ns();
  const int begin = static_cast<int>(run[0].row) - first_env_;
  const int end = begin + static_cast<int>(run.size());
  const auto part = [&](int lo, int hi) {
    return run.subspan(static_cast<std::size_t>(lo - begin), static_cast<std::size_t>(hi - lo));
  };
  for (int lo = begin; lo < end;) {
    try {
      work(run[0].order, lo, end);
      deliver(part(lo, end), 0, stepper_->info());
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
      deliver(part(lo, failed_lo), 0, {});
      deliver(part(failed_lo, failed_hi), AsyncBlock::kFailed, bytes);
      lo = failed_hi;
    }
  }
  marker_.none();
  const std::uint64_t end_ns = os::now_ns();
  const std::uint64_t elapsed_ns = end_ns - start_ns;
  trace::note(run[0].order == Order::kStep ? trace::Span::kWorkerStep : trace::Span::kWorkerReset,
              start_ns, end_ns, run.size());
  add_alone(cell().busy_ns, elapsed_ns);
  add_alone(run[0].order == Order::kStep ? cell().steps : cell().resets, run.size());
  if (run[0].order == Order::kStep) learn_cost(elapsed_ns, static_cast<int>(run.size()));
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

// Brings the results of neighbours to their places, as many at once as lie side by side there.
void AsyncWorker::deliver(Run run, std::uint8_t fault, std::span<const std::byte> info) {
  const bool fits = info.size() <= AsyncBlock::kInfoBytes;
  const bool elsewhere = !fits && hooks_.bring_info;
  const auto bring = [&](const SlotPlace& place, std::uint32_t row) {
    for (std::uint32_t i = 0; i < place.count; ++i) {
      hooks_.bring_info(static_cast<int>(row + i), place.sequence, info);
    }
  };
  while (!run.empty()) {
    const InboxEntry& first = run[0];
    const bool to_home = first.block == segment_.home_block();
    sync::ArrivalSlots& slots = to_home ? segment_.home_slots() : segment_.slots();
    pass("stepped");
    const SlotPlace place = place_of(run);
    if (place.count == 0) throw Error("the places of the next batch have been overwritten");
    pass("claimed");
    run = run.subspan(place.count);
    const AsyncBlock& block = segment_.block(static_cast<int>(place.block));
    if (!to_home) copy_rows(segment_.home(), first.row, block.rows, place.slot, place.count);
    std::memset(&block.rows.fault[place.slot], fault, place.count);
    std::iota(&block.env_ids[place.slot], &block.env_ids[place.slot] + place.count,
              std::int64_t{first.row});
    std::fill_n(&block.info_sizes[place.slot], place.count,
                fits ? static_cast<std::uint32_t>(info.size()) : AsyncBlock::kInfoElsewhere);
    if (fits && !info.empty()) {
      for (std::uint32_t i = 0; i < place.count; ++i)
        std::memcpy(block.info(place.slot + i).data(), info.data(), info.size());
    }
    if (elsewhere && !hooks_.bring_waits) bring(place, first.row);
    SlotPlace word = place;
    if (to_home) word.block = 0;
    pass("written");
    slots.ready(word, first.row);
    pass("ready");
    block.gather->arrive(place.sequence, place.count);
    pass("arrived");
    if (elsewhere && hooks_.bring_waits) bring(place, first.row);
  }
}

// Where the first results of the run go, those that lie side by side there.
SlotPlace AsyncWorker::place_of(Run run) {
  const InboxEntry& first = run[0];
  if (first.block == InboxEntry::kArrival) {
    std::uint32_t n = 1;
    while (n < run.size() && run[n].block == InboxEntry::kArrival) ++n;
    return segment_.slots().claim_run(first.row, n);
  }
  std::uint32_t n = 1;
  while (n < run.size() && run[n].block == first.block && run[n].sequence == first.sequence &&
         run[n].slot == first.slot + n)
    ++n;
  return {first.sequence, first.block, first.slot, n};
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
