#include "shoal/learn/asynchronous/collecting_thread.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "shoal/collect/weight_store.h"
#include "shoal/learn/asynchronous/rollout_actor.h"
#include "shoal/learn/learner/rollout_source.h"
#include "shoal/learn/learner/state_arrays.h"

namespace shoal::learn {
namespace {

constexpr const char* kActing = "acting";  // the actor's moments of observations
using Version = std::int64_t;

}  // namespace

struct CollectingThread::ItsLoaded final : Loaded {
  ItsLoaded(RolloutSource::Standing its_standing, collect::RunningMoments its_moments)
      : standing(std::move(its_standing)), moments(std::move(its_moments)) {}

  RolloutSource::Standing standing;
  collect::RunningMoments moments;
  std::deque<CollectedRollout> waiting;
};

struct CollectingThread::Impl {
  Impl(const env::Space& observation, const env::Space& action, int num_envs,
       const LearnerConfig& config, std::uint64_t seed)
      : actor(observation, action, num_envs, config, seed),
        weights(collect::WeightStore::create(weight_bytes())),
        read_weights(weight_bytes()),
        published_weights(weight_bytes()) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      closing = true;
    }
    changed.notify_all();
  }

  /// Parameters, then their version.
  std::size_t weight_bytes() const {
    return actor.agent().policy().parameters().flat().size_bytes() + sizeof(Version);
  }

  void start();
  void act() noexcept;
  Version load_newest();

  // The actor's, while it is not at rest.
  RolloutActor actor;
  collect::WeightStore weights;
  std::vector<std::byte> read_weights;

  // The learner's.
  std::vector<std::byte> published_weights;

  // Both's, under the mutex.
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<CollectedRollout> waiting;
  std::vector<CollectedRollout> spare;
  std::int64_t begun = 0;
  std::int64_t allowed = 0;
  bool busy = false;
  bool closing = false;
  std::exception_ptr failure;

  std::jthread thread;  // last: it uses all of the above, and its destructor joins
};

CollectingThread::CollectingThread(const env::Space& observation, const env::Space& action,
                                   int num_envs, const LearnerConfig& config, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(observation, action, num_envs, config, seed)) {}
CollectingThread::~CollectingThread() = default;

// The actor

void CollectingThread::Impl::act() noexcept {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return closing || (begun < allowed && failure == nullptr); });
    if (closing) return;
    const std::int64_t index = begun++;
    busy = true;
    std::optional<CollectedRollout> collected;
    if (!spare.empty()) {
      collected = std::move(spare.back());
      spare.pop_back();
    }
    lock.unlock();
    std::exception_ptr failed;
    try {
      if (!collected) collected = actor.make_room();
      collected->version = load_newest();
      actor.collect_into(*collected, index);
    } catch (...) {
      failed = std::current_exception();
    }
    lock.lock();
    busy = false;
    if (failed) {
      failure = failed;
      begun = index;
    } else {
      waiting.push_back(std::move(*collected));
    }
    changed.notify_all();
  }
}

Version CollectingThread::Impl::load_newest() {
  weights.read(read_weights);
  const auto parameters = std::span(read_weights).first(read_weights.size() - sizeof(Version));
  actor.load_weights(parameters);
  Version version = 0;
  std::memcpy(&version, read_weights.data() + parameters.size(), sizeof version);
  return version;
}

// The learner

void CollectingThread::begin(vector::VectorEnv& envs) {
  rest();
  impl_->start();
  impl_->actor.source().begin(envs, impl_->begun);
}

void CollectingThread::resume(vector::VectorEnv& envs, const vector::Batch& current) {
  rest();
  impl_->start();
  impl_->actor.source().resume(envs, current);
}

void CollectingThread::Impl::start() {
  {
    const std::lock_guard lock(mutex);
    failure = nullptr;
  }
  if (!thread.joinable()) thread = std::jthread([this] { act(); });
}

void CollectingThread::publish(std::span<const float> parameters, std::int64_t version) {
  auto& bytes = impl_->published_weights;
  std::memcpy(bytes.data(), parameters.data(), parameters.size_bytes());
  std::memcpy(bytes.data() + parameters.size_bytes(), &version, sizeof version);
  impl_->weights.publish(bytes);
}

void CollectingThread::allow(std::int64_t rollouts) {
  impl_->actor.source().collector();  // throws where there are no environments
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->allowed = std::max(impl_->allowed, rollouts);
  }
  impl_->changed.notify_all();
}

std::optional<CollectedRollout> CollectingThread::take() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this] { return impl_->failure || !impl_->waiting.empty(); });
  if (impl_->failure) std::rethrow_exception(impl_->failure);
  CollectedRollout oldest = std::move(impl_->waiting.front());
  impl_->waiting.pop_front();
  return oldest;
}

void CollectingThread::give_back(CollectedRollout rollout) {
  const std::lock_guard lock(impl_->mutex);
  impl_->spare.push_back(std::move(rollout));
}

void CollectingThread::finish() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(
      lock, [this] { return !impl_->busy && (impl_->failure || impl_->begun >= impl_->allowed); });
}

void CollectingThread::rest() noexcept {
  std::unique_lock lock(impl_->mutex);
  impl_->allowed = impl_->begun;
  impl_->changed.wait(lock, [this] { return !impl_->busy; });
  impl_->allowed = impl_->begun;  // fewer, where the one under way failed
}

void CollectingThread::save(LearnerState& state) const {
  impl_->actor.source().save(state);
  const auto& moments = impl_->actor.agent().encoder().moments();
  if (moments.size() > 0) save_moments(kActing, moments, state.normalizer);
  state.counters["waiting_rollouts"] = nlohmann::json::array();
  for (std::size_t k = 0; k < impl_->waiting.size(); ++k) impl_->waiting[k].save(k, state);
}

std::shared_ptr<RolloutSupply::Loaded> CollectingThread::read(const LearnerState& state) const {
  const std::size_t count = CollectedRollout::count_in(state);
  auto loaded = std::make_shared<ItsLoaded>(impl_->actor.source().read(state),
                                            impl_->actor.agent().encoder().moments());
  if (loaded->moments.size() > 0) load_moments(kActing, state.normalizer, loaded->moments);
  for (std::size_t k = 0; k < count; ++k)
    loaded->waiting.emplace_back(impl_->actor.make_room()).load(k, state);
  return loaded;
}

void CollectingThread::put_back(Loaded& its, std::int64_t learned, std::uint64_t seed) {
  auto& loaded = static_cast<ItsLoaded&>(its);
  rest();
  impl_->actor.source().put_back(std::move(loaded.standing));
  impl_->actor.agent().encoder().moments() = std::move(loaded.moments);
  impl_->actor.agent().reseed(seed);
  impl_->waiting = std::move(loaded.waiting);
  impl_->begun = impl_->allowed = learned + static_cast<std::int64_t>(impl_->waiting.size());
}

}  // namespace shoal::learn
