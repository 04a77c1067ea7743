// A collector whose learner is elsewhere: it steps environments of its own with the weights that the
// learner gives it, and sends it the rollouts. Its owner makes what assignment() says, and hands it
// to collect().
//
// Threads: one at a time, beside one of its own.
// Processes: one; the learner has a RemoteCollectors.
// Death: of the learner: group::ConnectionLost, within seconds. Of this process: the learner sees it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "shoal/learn/config/learner_config.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

class RemoteCollector {
 public:
  struct Options {
    std::string host;
    int port = 0;
    std::string secret;
    std::string run = {};  // that it belongs to; empty: whichever it finds
    std::chrono::nanoseconds timeout = std::chrono::seconds(10);  // to reach the learner
    std::function<void()> look = {};  // called twice a second at least; what it throws ends waits
  };

  /// Comes to the learner. Throws InvalidArgument without a secret beyond the loopback, TimedOut
  /// where nobody answers, Error where it is refused, with the reason.
  explicit RemoteCollector(Options options);
  ~RemoteCollector();
  RemoteCollector(const RemoteCollector&) = delete;
  RemoteCollector& operator=(const RemoteCollector&) = delete;

  /// What the learner says that is to be stepped.
  const std::string& assignment() const noexcept;
  /// The name of the run, the session of it, and which of its collectors this is.
  const std::string& run() const noexcept;
  std::uint64_t attempt() const noexcept;
  int number() const noexcept;

  /// How it ended.
  struct Departure {
    std::string why;
    bool over = false;  // the run is; otherwise it may go on in another session
  };
  /// Collects until the learner takes leave. Throws group::ConnectionLost, and what the environments
  /// or `look` throw.
  Departure collect(vector::VectorEnv& envs, const LearnerConfig& config);
  /// What was sent to the learner, however collect() ended: rollouts, and steps of environments in
  /// them. Where the learner was lost, the last may not have arrived.
  std::int64_t rollouts() const noexcept;
  std::int64_t steps() const noexcept;
  /// Takes leave, since something has gone wrong: what. Idempotent.
  void fail(const std::string& why) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::learn
