#include "shoal/process/identity/identity.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace shoal::process {

struct Identity::State : std::enable_shared_from_this<State> {
  State(const Place& at, std::shared_ptr<SharedState> shared)
      : place(at),
        seeds(static_cast<std::size_t>(std::max(at.num_envs, 0))),
        shared_state(std::move(shared)) {}

  const Place place;
  const std::uint64_t key = next_key();
  std::atomic<int> env{kNoEnv};  // relaxed: it stands for itself
  std::vector<std::optional<std::uint64_t>> seeds;
  std::mutex mutex;  // guards shared_state
  std::shared_ptr<SharedState> shared_state;

  std::optional<std::uint64_t>* seed_of(int index) noexcept {
    const int at = index - place.first_env;
    if (index < 0 || at < 0 || static_cast<std::size_t>(at) >= seeds.size()) return nullptr;
    return &seeds[static_cast<std::size_t>(at)];
  }

  static std::uint64_t next_key() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;  // relaxed: only uniqueness counts
  }
};

namespace {

/// The identity of this process; there is one of it.
struct OfThisProcess {
  std::mutex mutex;  // guards became
  std::optional<Identity> became;
  const Identity plain;
};

OfThisProcess& of_this() {
  static OfThisProcess* const one = new OfThisProcess;  // threads may ask while the process ends
  return *one;
}

/// The worker and environment whose code this thread runs.
struct Running {
  void* state = nullptr;  // Identity::State
  int env = Identity::kNoEnv;
};
thread_local Running running;

}  // namespace

Identity::Identity(const Place& place, std::shared_ptr<SharedState> shared_state)
    : state_(std::make_shared<State>(place, std::move(shared_state))) {}

const Place& Identity::place() const noexcept { return state_->place; }
std::uint64_t Identity::key() const noexcept { return state_->key; }

int Identity::env_index() const noexcept {
  if (running.state == state_.get()) return running.env;
  return state_->env.load(std::memory_order_relaxed);
}

void Identity::enter(int env) const noexcept {
  if (running.state == state_.get()) {
    running.env = env;
  } else {
    state_->env.store(env, std::memory_order_relaxed);
  }
}

std::optional<std::uint64_t> Identity::seed(int env) const noexcept {
  const auto* const seed = state_->seed_of(env);
  return seed == nullptr ? std::nullopt : *seed;
}

void Identity::set_seed(int env, std::optional<std::uint64_t> seed) const noexcept {
  if (auto* const own = state_->seed_of(env)) *own = seed;
}

std::shared_ptr<SharedState> Identity::shared_state() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->shared_state) {
    state_->shared_state = SharedState::create();
    state_->shared_state->close_fd();  // it is sent to nobody
  }
  return state_->shared_state;
}

PortLease Identity::lease_port(PortRange range, PortKind kind) const {
  return PortLease::take(PortOrder::of_this_process(), range, kind);
}

std::optional<Identity> started_worker() {
  if (running.state != nullptr) {
    return Identity(static_cast<Identity::State*>(running.state)->shared_from_this());
  }
  OfThisProcess& own = of_this();
  const std::lock_guard lock(own.mutex);
  return own.became;
}

Identity this_worker() {
  if (auto started = started_worker()) return *std::move(started);
  return of_this().plain;
}

void become(std::optional<Identity> identity) {
  running = {};  // of a parent that forked inside a scope
  OfThisProcess& own = of_this();
  const std::lock_guard lock(own.mutex);
  own.became = std::move(identity);
}

IdentityScope::IdentityScope(const Identity& identity) noexcept
    : outer_(static_cast<Identity::State*>(running.state)), outer_env_(running.env) {
  running = {identity.state_.get(), Identity::kNoEnv};
}

IdentityScope::~IdentityScope() { running = {outer_, outer_env_}; }

}  // namespace shoal::process
