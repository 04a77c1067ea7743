// What learners whose actor runs ahead of them are told, beside what every learner is.
#pragma once

namespace shoal::learn {

struct AsynchronousOptions {
  double rho_bar = 1.0;  // V-trace (collect/vtrace.h): the largest importance weight of an error
  double c_bar = 1.0;    // and of a trace
  /// How many updates old the weights of a rollout may be when it is learned from. Then the actor
  /// waits.
  int max_lag = 1;
  /// Rollouts and weights change hands in a fixed order, at a lag of exactly max_lag (of fewer in
  /// the first max_lag rollouts): the same bits for any number of workers, and across a resume.
  bool deterministic = false;

  bool operator==(const AsynchronousOptions&) const = default;
};

/// Those of a learner that collects the next rollout beside its update, and no further ahead: a lag
/// of exactly one update, but for the first rollout.
inline constexpr AsynchronousOptions kOverlap{.max_lag = 1, .deterministic = true};

/// Throws InvalidArgument naming the first field whose value cannot be used, its value and its
/// limits.
void validate(const AsynchronousOptions& options);

/// Calls visit(name, field) for each field.
template <class Options, class Visit>
void for_each_asynchronous_option(Options& o, Visit&& visit) {
  visit("rho_bar", o.rho_bar);
  visit("c_bar", o.c_bar);
  visit("max_lag", o.max_lag);
  visit("deterministic", o.deterministic);
}

}  // namespace shoal::learn
