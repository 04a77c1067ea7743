#include "shoal/vector/workers/spread_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace shoal::vector {
namespace {

constexpr std::uint64_t kLegNs = 30'000'000;  // of each leg of a comparison, at least
constexpr int kLegRounds = 10;                // and so many rounds
constexpr int kSettling = 3;
constexpr int kLegs = 4;                     // away, home, away, home
constexpr int kBlock = 32;                   // rounds between two looks at what they take
constexpr double kLongRoundNs = 15'000'000;  // next to which a hand-over is nothing
constexpr double kClearlyLess = 0.93;        // fewer CPUs have to be worth it; more need not
constexpr double kHopeless = 1.6;            // that much slower, and a leg ends at once
constexpr double kChanged = 1.7;             // rounds that take so many times as long, or as short
constexpr std::uint64_t kFirstPeriodNs = 500'000'000;
constexpr std::uint64_t kLastPeriodNs = 16'000'000'000;
constexpr std::uint64_t kLastAwayNs = 2'000'000'000;  // while there are fewer CPUs than workers
constexpr std::uint64_t kLastingNs = 300'000'000;     // of another time than before
constexpr std::uint64_t kSecondLookNs = 100'000'000;  // after what fewer CPUs seem to have won

std::string named(int cpus) {
  if (cpus == SpreadPolicy::kCallers) return "the caller's CPU";
  return fmt::format("{} CPU{}", cpus, cpus == 1 ? "" : "s");
}

}  // namespace

SpreadPolicy::SpreadPolicy(int cpus)
    : most_(cpus), home_(cpus), candidate_(cpus), now_(cpus), period_ns_(0) {}

bool SpreadPolicy::record(std::uint64_t now_ns, std::uint64_t round_ns) noexcept {
  if (idle()) return false;
  const int before = now_;
  if (settling_ > 0) {
    if (--settling_ == 0) leg_begin_ns_ = now_ns;
    return false;
  }
  if (legs_ == 0) {
    usual_.add(static_cast<double>(round_ns));
    if (usual_.rounds < kBlock) return false;
    if (wants_comparison(now_ns)) {
      candidate_ = seconded_ != kNobody ? seconded_ : next_candidate();
      legs_ = kLegs;
      at_home_ns_ = away_ns_ = 0;
      begin_leg(now_ns, candidate_);
    } else {
      usual_ = {};
    }
    return now_ != before;
  }
  leg_.add(static_cast<double>(round_ns));
  if (!leg_is_over(now_ns)) return false;
  double& shorter = now_ == home_ ? at_home_ns_ : away_ns_;
  shorter = shorter == 0 ? leg_.mean() : std::min(shorter, leg_.mean());
  --legs_;
  if (legs_ > 0 && !hopeless()) {
    begin_leg(now_ns, now_ == home_ ? candidate_ : home_);
  } else {
    decide(now_ns);
  }
  return now_ != before;
}

// A block of rounds is over.
bool SpreadPolicy::wants_comparison(std::uint64_t now_ns) noexcept {
  const double mean = usual_.mean();
  if (home_ == most_ && mean > kLongRoundNs) return false;
  if (now_ns - decided_ns_ >= period_ns_) return true;
  const bool changed =
      told_home_ns_ > 0 && (mean > kChanged * told_home_ns_ || mean * kChanged < told_home_ns_);
  if (!changed) changed_ns_ = 0;
  if (changed && changed_ns_ == 0) changed_ns_ = now_ns;
  if (!changed || now_ns - changed_ns_ < kLastingNs) return false;
  period_ns_ = kFirstPeriodNs;
  return true;
}

bool SpreadPolicy::leg_is_over(std::uint64_t now_ns) const noexcept {
  if (leg_.rounds >= kLegRounds && now_ns - leg_begin_ns_ >= kLegNs) return true;
  return hopeless();
}

// Far slower than what was there before.
bool SpreadPolicy::hopeless() const noexcept {
  const double usual = at_home_ns_ > 0 ? at_home_ns_ : usual_.mean();
  return now_ != home_ && leg_.rounds >= kLegRounds && leg_.mean() > kHopeless * usual;
}

// The caller's CPU, half as many and twice as many, in turns; a CPU for each in every other one.
int SpreadPolicy::next_candidate() noexcept {
  const unsigned turn = asked_++;
  const int fewer = home_ / 2;  // of one: the caller's
  if (home_ == most_) return turn % 2 == 0 ? fewer : kCallers;
  if (turn % 2 == 0) return most_;
  if (home_ == kCallers) return 1;
  const int more = std::min(most_, 2 * home_);
  return turn % 3 == 0 ? fewer : turn % 3 == 1 ? more : kCallers;
}

void SpreadPolicy::begin_leg(std::uint64_t now_ns, int cpus) noexcept {
  now_ = cpus;
  leg_ = {};
  leg_begin_ns_ = now_ns;
  settling_ = kSettling;
}

void SpreadPolicy::decide(std::uint64_t now_ns) noexcept {
  told_home_ns_ = at_home_ns_ > 0 ? at_home_ns_ : usual_.mean();
  told_away_ns_ = away_ns_;
  const double bar = candidate_ < home_ ? kClearlyLess : 1 / kClearlyLess;
  const bool shorter = told_away_ns_ < bar * told_home_ns_;
  if (shorter && candidate_ < home_ && seconded_ != candidate_) {
    seconded_ = candidate_;
    period_ns_ = kSecondLookNs;
  } else if (shorter) {
    seconded_ = kNobody;
    std::swap(home_, candidate_);
    std::swap(told_home_ns_, told_away_ns_);
    period_ns_ = kFirstPeriodNs;
  } else {
    seconded_ = kNobody;
    period_ns_ =
        std::clamp(2 * period_ns_, kFirstPeriodNs, home_ == most_ ? kLastPeriodNs : kLastAwayNs);
  }
  if (now_ != home_) settling_ = kSettling;
  now_ = home_;
  legs_ = 0;
  usual_ = {};
  changed_ns_ = 0;
  decided_ns_ = now_ns;
}

std::string SpreadPolicy::account() const {
  if (idle()) return "where the kernel puts the workers";
  if (told_home_ns_ == 0) {
    return fmt::format("{}, one for each worker; nothing else was tried yet", named(home_));
  }
  return fmt::format("{}: a step took {:.0f} us there, and with {} {:.0f} us", named(home_),
                     told_home_ns_ / 1e3, named(candidate_), told_away_ns_ / 1e3);
}

}  // namespace shoal::vector
