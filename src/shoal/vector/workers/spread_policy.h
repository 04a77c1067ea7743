// Over how many CPUs the workers of one vector environment are spread.
#pragma once

#include <cstdint>
#include <string>

namespace shoal::vector {

/// What the caller has learned of its rounds: whether a CPU for each worker makes them shorter than
/// fewer CPUs for all of them, or than the caller's own.
///
/// A CPU for each is right where steps take long. Where they take microseconds, what counts is the
/// hand-over. Beside workers that share a CPU the caller spins, and goes on at once instead of
/// being woken; where two CPUs are halves of one core, a second worker adds little. Where other
/// programs want the CPUs, whoever is woken on another one waits for its turn there, for
/// milliseconds: then all of them are best on the caller's. None of this can be seen in advance. So
/// the policy measures: now and then some rounds with another number of CPUs, in turns with rounds
/// as they are. It moves to what is clearly shorter in the mean, asks less and less often while the
/// answer is the same, and again soon when the rounds take another time than they did.
///
/// What disturbs the machine for some tenths of a second must not decide: another time counts when
/// it has lasted, of the legs of either kind the shorter one counts, and a CPU for each is left only
/// when fewer were shorter twice, in comparisons that lie apart.
///
/// Threads: the caller's only.
/// Processes, death: the caller's own, and ends with it.
class SpreadPolicy {
 public:
  static constexpr int kCallers = 0;  // all workers on the CPU that the caller runs on

  /// `cpus`: one for each worker; with less than two there is nothing to choose.
  explicit SpreadPolicy(int cpus = 0);

  /// Over how many the workers are to be spread now, or kCallers.
  int cpus() const noexcept { return now_; }
  /// Whether there is nothing to choose.
  bool idle() const noexcept { return most_ < 2; }

  /// A round is over, at `now_ns`, after `round_ns`. Returns whether cpus() has changed.
  bool record(std::uint64_t now_ns, std::uint64_t round_ns) noexcept;

  /// One sentence for people: what was chosen, and what was measured.
  std::string account() const;

 private:
  // Of the rounds of one kind.
  struct Mean {
    double ns = 0;
    int rounds = 0;
    void add(double round_ns) noexcept {
      ns += round_ns;
      ++rounds;
    }
    double mean() const noexcept { return rounds == 0 ? 0 : ns / rounds; }
  };

  bool wants_comparison(std::uint64_t now_ns) noexcept;
  bool leg_is_over(std::uint64_t now_ns) const noexcept;
  bool hopeless() const noexcept;
  int next_candidate() noexcept;
  void begin_leg(std::uint64_t now_ns, int cpus) noexcept;
  void decide(std::uint64_t now_ns) noexcept;

  static constexpr int kNobody = -1;

  int most_;
  int home_;       // what was chosen
  int candidate_;  // what it is compared with while legs are left, and was last
  int now_;
  int seconded_ = kNobody;  // fewer CPUs that were shorter once
  unsigned asked_ = 0;      // comparisons so far
  int legs_ = 0;            // of the comparison under way that are left
  int settling_ = 0;        // rounds after a move that do not count yet
  std::uint64_t leg_begin_ns_ = 0;
  std::uint64_t decided_ns_ = 0;  // when the last comparison ended
  // Since when rounds take another time than it said; 0: they do not.
  std::uint64_t changed_ns_ = 0;
  std::uint64_t period_ns_;  // until the next one
  Mean leg_;
  double at_home_ns_ = 0;  // the mean of the shorter leg; 0: there was none
  double away_ns_ = 0;
  Mean usual_;  // a block of rounds between comparisons
  double told_home_ns_ = 0;
  double told_away_ns_ = 0;
};

}  // namespace shoal::vector
