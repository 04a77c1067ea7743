// How ranks that learn together share their work.
#pragma once

#include <cstdint>

namespace shoal::learn {

/// Whether they share out an update's gradients (src/shoal/learn/learner/update_sharing.h): where
/// that is faster, always, or never.
enum class SplitUpdate : std::uint8_t { kAuto, kAlways, kNever };

struct RankOptions {
  SplitUpdate split_update = SplitUpdate::kAuto;
  /// Once this share of the ranks has its rollouts, the others stop theirs, at a quarter at the
  /// earliest (DD-PPO; Wijmans et al., 2020, with 0.6). 1: all are waited for.
  double sync_fraction = 1;

  bool operator==(const RankOptions&) const = default;
};

/// Throws InvalidArgument naming what cannot be used, its value and its limits.
void validate(const RankOptions& options);

template <class Options, class Visit>
void for_each_rank_option(Options& options, Visit&& visit) {
  visit("split_update", options.split_update);
  visit("sync_fraction", options.sync_fraction);
}

}  // namespace shoal::learn
