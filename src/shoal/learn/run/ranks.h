// What the ranks of a training run tell each other beside what they learn: when to stop and to
// save, and their parts of a checkpoint, which looks as if one process had all environments.
//
// Threads: one at a time. All ranks call each function as often as the others.
#pragma once

#include <optional>
#include <vector>

#include "shoal/group/group.h"
#include "shoal/learn/algorithm/make_learner.h"
#include "shoal/learn/checkpoint/checkpoint.h"
#include "shoal/learn/checkpoint/learner_state.h"

namespace shoal::learn {

/// What is to be done before the next iteration.
struct Orders {
  bool stop = false;    // somebody was asked to
  bool over = false;    // rank 0: nothing is left to train
  bool target = false;  // rank 0: since the target was reached
  bool save = false;    // rank 0: it is time
};

/// What all do: rank 0's orders, and a stop that any rank was asked for.
Orders agree(group::Group& group, const Orders& mine);

/// Whether it holds on all ranks.
bool all_of(group::Group& group, bool mine);

/// Rank 0's checkpoint, on all ranks.
Checkpoint share(group::Group& group, std::optional<Checkpoint> of_first);

/// Of the state and the record of all environments those of `range`. Throws InvalidArgument or
/// CorruptFile when they have fewer.
void take_part(const EnvRange& range, LearnerState& state, SafeTensors& envs);

/// The inverse: brings what each rank has of its environments together at rank 0. False elsewhere.
[[nodiscard]] bool bring_together(group::Group& group, LearnerState& state,
                                  std::vector<NamedArray>& envs);

}  // namespace shoal::learn
