#include "shoal/learn/remote/remote_collectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "shoal/collect/episode_stats.h"
#include "shoal/group/connection/compression.h"
#include "shoal/group/connection/message_server.h"
#include "shoal/learn/asynchronous/rollout_actor.h"
#include "shoal/learn/learner/state_arrays.h"
#include "shoal/learn/remote/remote_messages.h"
#include "shoal/os/error.h"
#include "shoal/os/log.h"
#include "shoal/shm/board.h"
#include "shoal/version.h"

namespace shoal::learn {
namespace {

using group::MessageServer;
using Bytes = std::vector<std::byte>;

constexpr const char* kActing = "acting";  // the collectors' moments of observations
constexpr std::chrono::milliseconds kPatience{500};

/// What the board counts, in its order.
enum Count : std::uint8_t {
  kCollectors,
  kJoined,
  kLost,
  kRollouts,
  kSteps,
  kStaleSteps,
  kLostRollouts,
  kRefused,
  kWaiting,
  kVersion,
  kSentBytes,
  kReceivedBytes,
};
const std::array<std::string, 12> kCounts{
    "collectors",    "joined",  "lost",    "rollouts", "steps",      "stale_steps",
    "lost_rollouts", "refused", "waiting", "version",  "sent_bytes", "received_bytes"};

collect::RunningMoments moments_for_rewards(const LearnerConfig& config) {
  return collect::RunningMoments(config.normalize_reward ? 1 : 0);
}

}  // namespace

struct RemoteCollectors::ItsLoaded final : Loaded {
  ItsLoaded(Normalizers its_normalizers, collect::EpisodeStats its_episodes)
      : normalizers(std::move(its_normalizers)), episodes(std::move(its_episodes)) {}
  Normalizers normalizers;
  collect::EpisodeStats episodes;
  int joined = 0;
  std::int64_t stale_steps = 0;
  std::int64_t lost_rollouts = 0;
  std::deque<CollectedRollout> waiting;
};

struct RemoteCollectors::Impl final : MessageServer::Owner {
  struct Member {
    int number;
    std::string host;
    int pid;
    std::int64_t version = -1;  // of the weights that it has
    std::int64_t rollouts = 0;
    bool ready = false;
    bool collecting = false;
    std::string describe() const {
      return fmt::format("collector {} (process {} on {})", number, pid, host);
    }
  };

  explicit Impl(Setup its)
      : setup(std::move(its)),
        shape(setup.observation_space, setup.action_space, setup.num_envs, setup.config,
              setup.seed),
        normalizers{shape.agent().encoder().moments(), moments_for_rewards(setup.config)},
        episodes(0),
        steps_of_rollout(static_cast<std::int64_t>(setup.config.num_steps) * setup.num_envs),
        board("remote collectors", kCounts),
        server({.host = setup.host,
                .port = setup.port,
                .secret = setup.secret,
                .longest = longest()}) {
    board.set_title(fmt::format("{}:{}", setup.host, server.port()));
    server.start(*this);
  }

  std::size_t longest() const {
    CollectedRollout room = shape.make_room();
    return longest_rollout_message(room);
  }

  // The server's thread

  Bytes admit(MessageServer::Id id, const group::Hello& hello) override {
    if (hello.version != version())
      throw Error(
          fmt::format("the collector has Shoal {}, the learner {}: install the same on "
                      "both",
                      hello.version, version()));
    if (hello.purpose != "collect")
      throw Error(fmt::format(
          "it comes to {}; here is a learner for collectors, which `shoal collect` joins",
          hello.purpose));
    if (!hello.run.empty() && hello.run != setup.run)
      throw Error(fmt::format("it belongs to run {}, and here is run {}", hello.run, setup.run));
    const std::lock_guard lock(mutex);
    const int number = joined++;
    const Member& member = members.emplace(id, Member{number, hello.host, hello.pid}).first->second;
    os::log(os::LogLevel::kInfo, "learn", "{} has come", member.describe());
    const auto bits = shape.agent().policy().random()(Stream::kActor, setup.attempt,
                                                      static_cast<std::uint32_t>(number));
    const std::uint64_t seed = std::uint64_t{bits[0]} << 31 ^ bits[1];
    const std::string told = nlohmann::json{
        {"run", setup.run},
        {"attempt", setup.attempt},
        {"number", number},
        {"seed", seed},
        {"compression", group::can_compress()},
        {"assignment",
         setup.assignment}}.dump();
    count();
    const auto bytes = std::as_bytes(std::span(told));
    return {bytes.begin(), bytes.end()};
  }

  void receive(MessageServer::Id id, Bytes& message) override {
    try {
      take_in(id, message);
    } catch (...) {
      const std::lock_guard lock(mutex);
      ++refused;
      throw;
    }
  }

  void take_in(MessageServer::Id id, const Bytes& message) {
    const RemoteOpened opened = open_remote(message);
    if (opened.head.run != setup.run || opened.head.attempt != setup.attempt)
      throw Error(fmt::format("a message for run {}, attempt {}; this is run {}, attempt {}",
                              opened.head.run, opened.head.attempt, setup.run, setup.attempt));
    if (opened.kind == RemoteKind::kReady) {
      const std::lock_guard lock(mutex);
      Member& member = members.at(id);
      if (member.collecting || member.ready) throw Error("it is ready twice");
      member.version = opened.head.version;
      member.ready = true;
      ready.push_back(id);
      return;
    }
    if (opened.kind != RemoteKind::kRollout) throw Error("a message that only a learner sends");
    std::optional<CollectedRollout> room;
    {
      const std::lock_guard lock(mutex);
      const Member& member = members.at(id);
      if (!member.collecting || opened.head.version != member.version)
        throw Error("a rollout that was not asked for");
      if (!spare.empty()) {
        room = std::move(spare.back());
        spare.pop_back();
      }
    }
    if (!room) room = shape.make_room();
    NormalizerNews news;
    unpack_rollout(opened.rest, shape.agent().decoder().categories(), *room, news);
    const std::lock_guard lock(mutex);
    Member& member = members.at(id);
    Normalizers merged = normalizers;
    merge(news.obs, merged.obs);
    merge(news.rewards, merged.rewards);
    normalizers = std::move(merged);
    member.collecting = false;
    ++member.rollouts;
    ++rollouts;
    add(*room, member.number);
    room->version = opened.head.version;
    waiting.push_back(std::move(*room));
    changed.notify_all();
  }

  /// What the run knows when this rollout has come.
  void add(CollectedRollout& collected, int number) {
    std::vector<collect::Episode> window(episodes.window().begin(), episodes.window().end());
    for (collect::Episode& episode : collected.finished) {
      episode.env += number * setup.num_envs;
      window.push_back(episode);
    }
    episodes.restore(std::move(window),
                     episodes.count() + static_cast<std::int64_t>(collected.finished.size()), {},
                     {});
    collected.obs_moments = normalizers.obs;
    collected.episodes = episodes.count();
    collected.episode_return_mean = episodes.mean_return();
    collected.episode_length_mean = episodes.mean_length();
  }

  void lose(MessageServer::Id id, const std::string& cause, bool left) override {
    const std::lock_guard lock(mutex);
    const auto found = members.find(id);
    if (found == members.end()) return;
    const Member member = std::move(found->second);
    members.erase(found);
    std::erase(ready, id);
    if (member.collecting) {
      --begun;
      ++lost_rollouts;
    }
    if (!left) ++lost;
    os::log(left ? os::LogLevel::kInfo : os::LogLevel::kWarning, "learn", "{} {}: {}{}; {} {} left",
            member.describe(), left ? "has left" : "is lost", cause,
            member.collecting ? ", and with it the rollout that it was at" : "", members.size(),
            members.size() == 1 ? "is" : "are");
    count();
  }

  void look() override {
    const std::lock_guard lock(mutex);
    while (!ready.empty() && begun < allowed && published >= 0 && waiting.size() < members.size()) {
      const auto id = ready.front();
      ready.pop_front();
      Member& member = members.at(id);
      server.send(id, member.version == published ? work_without_weights : work);
      member.version = published;
      member.ready = false;
      member.collecting = true;
      ++begun;
    }
    count();
  }

  /// Under the mutex.
  void count() noexcept {
    const auto set = [&](Count which, std::int64_t value) { board[which].set(value); };
    set(kCollectors, static_cast<std::int64_t>(members.size()));
    set(kJoined, joined);
    set(kLost, lost);
    set(kRollouts, rollouts);
    set(kSteps, rollouts * steps_of_rollout);
    set(kStaleSteps, stale_steps);
    set(kLostRollouts, lost_rollouts);
    set(kRefused, refused);
    set(kWaiting, static_cast<std::int64_t>(waiting.size()));
    set(kVersion, published);
    set(kSentBytes, static_cast<std::int64_t>(server.sent_bytes()));
    set(kReceivedBytes, static_cast<std::int64_t>(server.received_bytes()));
  }

  /// Drops the rollouts in front that have become too old, under the mutex.
  void drop_stale() {
    while (!waiting.empty() && published - waiting.front().version > setup.max_lag) {
      stale_steps += steps_of_rollout;
      --begun;
      auto& ended = waiting.front().finished;
      std::move(ended.begin(), ended.end(), std::back_inserter(ended_in_stale));
      spare.push_back(std::move(waiting.front()));
      waiting.pop_front();
    }
  }

  const Setup setup;
  const RolloutActor shape;  // acts never; knows what rollouts look like

  mutable std::mutex mutex;  // of what follows
  std::condition_variable changed;
  Normalizers normalizers;
  collect::EpisodeStats episodes;
  std::map<MessageServer::Id, Member> members;
  std::deque<MessageServer::Id> ready;  // in the order in which they became it
  std::deque<CollectedRollout> waiting;
  std::vector<CollectedRollout> spare;
  std::vector<collect::Episode> ended_in_stale;
  group::SharedBytes work, work_without_weights;
  std::int64_t published = -1;
  std::int64_t begun = 0;  // and not lost or dropped
  std::int64_t allowed = 0;
  int joined = 0;
  std::int64_t lost = 0, rollouts = 0, stale_steps = 0, lost_rollouts = 0, refused = 0;
  const std::int64_t steps_of_rollout;
  shm::Board board;

  MessageServer server;  // last: its thread uses all of the above
};

RemoteCollectors::RemoteCollectors(Setup setup) : impl_(std::make_unique<Impl>(std::move(setup))) {}
RemoteCollectors::~RemoteCollectors() { end(false); }

int RemoteCollectors::port() const { return impl_->server.port(); }
int RemoteCollectors::num_envs() const { return impl_->setup.num_envs; }
const env::Space& RemoteCollectors::observation_space() const {
  return impl_->setup.observation_space;
}
const env::Space& RemoteCollectors::action_space() const { return impl_->setup.action_space; }

std::vector<RemoteCollectors::Collector> RemoteCollectors::collectors() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<Collector> there;
  for (const auto& [id, member] : impl_->members)
    there.push_back({member.number, member.host, member.pid, member.rollouts, member.collecting});
  return there;
}

void RemoteCollectors::end(bool over) noexcept {
  impl_->server.close({over ? "the run is over" : "the learner has stopped", over});
}

void RemoteCollectors::begin(vector::VectorEnv&) {
  throw InvalidState("a learner whose collectors are elsewhere has no environments to begin with");
}
void RemoteCollectors::resume(vector::VectorEnv& envs, const vector::Batch&) { begin(envs); }

void RemoteCollectors::publish(std::span<const float> parameters, std::int64_t version) {
  Impl& me = *impl_;
  {
    const std::lock_guard lock(me.mutex);
    const RemoteHead head{me.setup.run, me.setup.attempt, version};
    me.work = std::make_shared<const Bytes>(pack_work(head, parameters, me.normalizers));
    me.work_without_weights = std::make_shared<const Bytes>(pack_work(head, {}, me.normalizers));
    me.published = version;
  }
  me.server.wake();
}

void RemoteCollectors::allow(std::int64_t rollouts) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (rollouts <= impl_->allowed) return;
    impl_->allowed = rollouts;
  }
  impl_->server.wake();
}

std::optional<CollectedRollout> RemoteCollectors::take() {
  Impl& me = *impl_;
  std::unique_lock lock(me.mutex);
  const auto there = [&] {
    const auto before = me.waiting.size();
    me.drop_stale();
    if (me.waiting.size() != before) me.server.wake();
    return !me.waiting.empty();
  };
  if (!me.changed.wait_for(lock, kPatience, there)) return {};
  CollectedRollout oldest = std::move(me.waiting.front());
  me.waiting.pop_front();
  me.server.wake();
  oldest.finished.insert(oldest.finished.begin(), me.ended_in_stale.begin(),
                         me.ended_in_stale.end());
  me.ended_in_stale.clear();
  return oldest;
}

void RemoteCollectors::give_back(CollectedRollout rollout) {
  const std::lock_guard lock(impl_->mutex);
  impl_->spare.push_back(std::move(rollout));
}

void RemoteCollectors::finish() {
  throw InvalidState("collectors elsewhere keep to no order: leave out deterministic=True");
}

void RemoteCollectors::rest() noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->allowed = impl_->begun;
}

void RemoteCollectors::report(IterationStats& stats) const {
  const std::lock_guard lock(impl_->mutex);
  stats.collectors = static_cast<std::int64_t>(impl_->members.size());
  stats.stale_steps = impl_->stale_steps;
  stats.lost_rollouts = impl_->lost_rollouts;
  if (!stats.learned) stats.take_means(impl_->episodes);
}

void RemoteCollectors::save(LearnerState& state) const {
  Impl& me = *impl_;
  const std::lock_guard lock(me.mutex);
  if (me.normalizers.obs.size() > 0) save_moments(kActing, me.normalizers.obs, state.normalizer);
  if (me.normalizers.rewards.size() > 0)
    save_moments("return", me.normalizers.rewards, state.normalizer);
  state.counters["episodes"] = me.episodes.count();
  state.counters["last_episodes"] = episodes_to_json(me.episodes.window());
  state.counters["collectors_joined"] = me.joined;
  state.counters["stale_steps"] = me.stale_steps;
  state.counters["lost_rollouts"] = me.lost_rollouts;
  state.counters["waiting_rollouts"] = nlohmann::json::array();
  for (std::size_t k = 0; k < me.waiting.size(); ++k) me.waiting[k].save(k, state);
}

std::shared_ptr<RolloutSupply::Loaded> RemoteCollectors::read(const LearnerState& state) const {
  const Impl& me = *impl_;
  if (!state.counters.contains("collectors_joined"))
    throw InvalidArgument(
        "load a learner's state: its run collected in its own process; go on without listen");
  auto loaded = std::make_shared<ItsLoaded>(
      Normalizers{me.shape.agent().encoder().moments(), moments_for_rewards(me.setup.config)},
      collect::EpisodeStats(0));
  auto& [obs, rewards] = loaded->normalizers;
  if (obs.size() > 0) load_moments(kActing, state.normalizer, obs);
  if (rewards.size() > 0) load_moments("return", state.normalizer, rewards);
  loaded->episodes.restore(episodes_from_json(counter(state, "last_episodes")),
                           counter(state, "episodes").get<std::int64_t>(), {}, {});
  loaded->joined = counter(state, "collectors_joined").get<int>();
  loaded->stale_steps = state.counters.value("stale_steps", std::int64_t{0});  // of older ones none
  loaded->lost_rollouts = state.counters.value("lost_rollouts", std::int64_t{0});
  const std::size_t count = CollectedRollout::count_in(state);
  for (std::size_t k = 0; k < count; ++k)
    loaded->waiting.emplace_back(me.shape.make_room()).load(k, state);
  return loaded;
}

void RemoteCollectors::put_back(Loaded& its, std::int64_t learned, std::uint64_t) {
  auto& loaded = static_cast<ItsLoaded&>(its);
  Impl& me = *impl_;
  const std::lock_guard lock(me.mutex);
  me.normalizers = std::move(loaded.normalizers);
  me.episodes = std::move(loaded.episodes);
  me.joined = std::max(me.joined, loaded.joined);
  me.stale_steps += loaded.stale_steps;
  me.lost_rollouts += loaded.lost_rollouts;
  me.waiting = std::move(loaded.waiting);
  me.begun = me.allowed = learned + static_cast<std::int64_t>(me.waiting.size());
}

}  // namespace shoal::learn
