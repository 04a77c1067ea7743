// The environments of all clients of a relay under numbers of one client: the relay is one at the
// distant service, which keeps the states of recurrent models by them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

namespace shoal::serve {

/// A value.
///
/// Threads: one.
/// Processes: each has its own.
/// Death: nothing of it is shared.
/// Invariants: a number is used again only when no batch is under way that may have rows of its
/// former environment; whoever gets it begins anew.
class EnvNumbers {
 public:
  struct Number {
    std::int32_t env = 0;
    bool is_new = false;  // its state is that of nobody, or of an environment that is no more
  };
  /// Of environment `env` of `client`, for `model`.
  Number of(std::uint32_t model, std::uint32_t client, std::int32_t env);

  /// The client has gone; batches up to number `last` may have rows of it.
  void forget(std::uint32_t client, std::uint64_t last);
  /// All batches before number `first` have come back.
  void came_back(std::uint64_t first);

 private:
  struct Left {
    std::uint64_t last = 0;
    std::int32_t number = 0;
  };
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::int32_t>, std::int32_t>
      numbers_;                     // by client, model and environment
  std::deque<Left> left_;           // of clients that have gone, in their order
  std::vector<std::int32_t> free_;  // may be used again
  std::int32_t next_ = 0;
};

}  // namespace shoal::serve
