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
#include "shoal/learn/learner/agent.h"
#include "shoal/learn/learner/rollout_source.h"
#include "shoal/learn/learner/state_arrays.h"

namespace shoal::learn {
namespace {

constexpr const char* kActing = "acting";  // the actor's moments of observations
using Version = std::int64_t;

}  // namespace

struct CollectingThread::Loaded {
  RolloutSource::Standing standing;
  collect::RunningMoments moments;
  std::deque<CollectedRollout> waiting;
};

struct CollectingThread::Impl {
  Impl(const env::Space& observation, const env::Space& action, int num_envs,
       const LearnerConfig& config, std::uint64_t seed)
      : config(config),
        num_envs(num_envs),
        agent(observation, action, config, seed),
        source(observation, action, num_envs, config, agent),
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
    return agent.policy().parameters().flat().size_bytes() + sizeof(Version);
  }

  /// Room for one rollout, and moments of the shape of the agent's.
  CollectedRollout make_room() const {
    return {.rollout = {config.num_steps, num_envs, agent.encoder().specs(),
                        agent.policy().action_spec()},
            .obs_moments = agent.encoder().moments()};
  }

  void start();
  void act() noexcept;
  void collect_into(CollectedRollout& collected, std::int64_t index);
  Version load_newest();

  // The actor's, while it is not at rest.
  const LearnerConfig config;
  const int num_envs;
  Agent agent;
  RolloutSource source;
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
      if (!collected) collected = make_room();
      collect_into(*collected, index);
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

void CollectingThread::Impl::collect_into(CollectedRollout& collected, std::int64_t index) {
  collected.version = load_newest();
  auto& collector = source.collector();
  collector.collect(static_cast<std::uint64_t>(index) *
                    static_cast<std::uint64_t>(config.num_steps));
  collector.exchange(collected.rollout);
  collected.obs_moments = agent.encoder().moments();
  auto& episodes = source.episodes();
  collected.finished = episodes.take_finished();
  collected.episodes = episodes.count();
  collected.episode_return_mean = episodes.mean_return();
  collected.episode_length_mean = episodes.mean_length();
}

Version CollectingThread::Impl::load_newest() {
  weights.read(read_weights);
  auto parameters = agent.policy().parameters().flat();
  std::memcpy(parameters.data(), read_weights.data(), parameters.size_bytes());
  Version version = 0;
  std::memcpy(&version, read_weights.data() + parameters.size_bytes(), sizeof version);
  agent.policy().model().parameters_changed();
  return version;
}

// The learner

void CollectingThread::begin(vector::VectorEnv& envs) {
  rest();
  impl_->start();
  impl_->source.begin(envs, impl_->begun);
}

void CollectingThread::resume(vector::VectorEnv& envs, const vector::Batch& current) {
  rest();
  impl_->start();
  impl_->source.resume(envs, current);
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
  impl_->source.collector();  // throws where there are no environments
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->allowed = std::max(impl_->allowed, rollouts);
  }
  impl_->changed.notify_all();
}

CollectedRollout CollectingThread::take() {
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
  impl_->source.save(state);
  const auto& moments = impl_->agent.encoder().moments();
  if (moments.size() > 0) save_moments(kActing, moments, state.normalizer);
  state.counters["waiting_rollouts"] = nlohmann::json::array();
  for (std::size_t k = 0; k < impl_->waiting.size(); ++k) impl_->waiting[k].save(k, state);
}

std::shared_ptr<CollectingThread::Loaded> CollectingThread::read(const LearnerState& state) const {
  const std::size_t count = CollectedRollout::count_in(state);
  auto loaded = std::make_shared<Loaded>(
      Loaded{impl_->source.read(state), impl_->agent.encoder().moments(), {}});
  if (loaded->moments.size() > 0) load_moments(kActing, state.normalizer, loaded->moments);
  for (std::size_t k = 0; k < count; ++k)
    loaded->waiting.emplace_back(impl_->make_room()).load(k, state);
  return loaded;
}

void CollectingThread::put_back(Loaded& loaded, std::int64_t learned, std::uint64_t seed) {
  rest();
  impl_->source.put_back(std::move(loaded.standing));
  impl_->agent.encoder().moments() = std::move(loaded.moments);
  impl_->agent.reseed(seed);
  impl_->waiting = std::move(loaded.waiting);
  impl_->begun = impl_->allowed = learned + static_cast<std::int64_t>(impl_->waiting.size());
}

}  // namespace shoal::learn
