#include "shoal/learn/remote/remote_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "shoal/group/connection/compression.h"
#include "shoal/group/connection/message_client.h"
#include "shoal/learn/asynchronous/rollout_actor.h"
#include "shoal/learn/remote/remote_messages.h"
#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/version.h"

namespace shoal::learn {
namespace {

using group::MessageClient;

constexpr std::size_t kLongestAssignment = std::size_t{16} << 20;
constexpr std::chrono::milliseconds kLook{100};

/// Ends a rollout that the learner, which has gone, does not wait for any more.
struct NobodyWaits {};

MessageClient::Options connection(const RemoteCollector::Options& options) {
  MessageClient::Options its;
  its.host = options.host;
  its.port = options.port;
  its.secret = options.secret;
  its.who = "the learner";
  its.hello.version = version();
  its.hello.purpose = "collect";
  its.hello.run = options.run;
  its.timeout = options.timeout;
  its.longest = its.longest_welcome = kLongestAssignment;
  its.look = options.look;
  return its;
}

}  // namespace

struct RemoteCollector::Impl {
  explicit Impl(const Options& options)
      : look(options.look), client(std::make_unique<MessageClient>(connection(options))) {
    try {
      const auto& told = client->content();
      const auto json =
          nlohmann::json::parse(reinterpret_cast<const char*>(told.data()),
                                reinterpret_cast<const char*>(told.data()) + told.size());
      head.run = json.at("run").get<std::string>();
      head.attempt = json.at("attempt").get<std::uint64_t>();
      number = json.at("number").get<int>();
      seed = json.at("seed").get<std::uint64_t>();
      compression = json.at("compression").get<bool>() && group::can_compress();
      assignment = json.at("assignment").get<std::string>();
    } catch (const nlohmann::json::exception& error) {
      throw Error(fmt::format("the learner's welcome cannot be read: {}", error.what()));
    }
  }

  /// The learner's next word; false: it has taken leave.
  bool await(std::vector<std::byte>& message) {
    for (;;) {
      const auto got = client->recv(message, os::deadline_after(kLook));
      if (got != MessageClient::Got::kNothing) return got == MessageClient::Got::kMessage;
      if (look) look();
    }
  }

  Departure collect(vector::VectorEnv& envs, const LearnerConfig& config);
  void follow(const std::vector<std::byte>& message, RolloutActor& actor, Normalizers& normalizers);

  std::function<void()> look;
  std::unique_ptr<MessageClient> client;
  RemoteHead head;
  int number = 0;
  std::uint64_t seed = 0;
  bool compression = false;
  std::string assignment;
  std::int64_t rollouts = 0;
  std::int64_t steps = 0;
};

RemoteCollector::Departure RemoteCollector::Impl::collect(vector::VectorEnv& envs,
                                                          const LearnerConfig& config) {
  RolloutActor actor(envs.single_observation_space(), envs.single_action_space(), envs.num_envs(),
                     config, seed);
  auto& encoder = actor.agent().encoder();
  auto& rewards = actor.source().rewards();
  Normalizers normalizers{encoder.moments(),
                          collect::RunningMoments(config.normalize_reward ? 1 : 0)};
  client->set_longest(
      longest_work_message(actor.agent().policy().parameters().flat().size(), normalizers));
  actor.source().begin(envs, 0);
  os::Deadline look_at = os::deadline_after(kLook);
  actor.source().collector().after_each_step([&] {
    if (os::Clock::now() < look_at) return;
    look_at = os::deadline_after(kLook);
    if (look) look();
    if (client->has_ended()) throw NobodyWaits();
  });
  CollectedRollout room = actor.make_room();
  std::vector<std::byte> message;
  for (;;) {
    client->send(pack_ready(head));
    if (!await(message)) break;
    follow(message, actor, normalizers);
    try {
      actor.collect_into(room, rollouts);
    } catch (const NobodyWaits&) {
      while (await(message)) continue;  // how it ended
      break;
    }
    NormalizerNews news;
    const auto tell = [](const collect::ShardMoments& seen, std::vector<double>& out) {
      out.resize(seen.width());
      seen.tell(out);
    };
    if (normalizers.obs.size() > 0) tell(*encoder.shards(), news.obs);
    if (normalizers.rewards.size() > 0) tell(*rewards.shards(), news.rewards);
    client->send(pack_rollout(head, room, news, compression));
    ++rollouts;
    steps += static_cast<std::int64_t>(room.rollout.size());
  }
  const group::Farewell farewell = client->farewell();
  return {.why = farewell.why, .over = farewell.final};
}

void RemoteCollector::Impl::follow(const std::vector<std::byte>& message, RolloutActor& actor,
                                   Normalizers& normalizers) {
  const RemoteOpened opened = open_remote(message);
  if (opened.kind != RemoteKind::kWork) throw Error("a message that only a collector sends");
  if (opened.head.run != head.run || opened.head.attempt != head.attempt)
    throw Error(fmt::format("work of run {}, attempt {}; this collector is of run {}, attempt {}",
                            opened.head.run, opened.head.attempt, head.run, head.attempt));
  const auto parameters = unpack_work(opened.rest, normalizers);
  if (!parameters.empty()) {
    if (parameters.size() != actor.agent().policy().parameters().flat().size_bytes())
      throw Error("weights of another network than the one that was told");
    actor.load_weights(parameters);
  } else if (opened.head.version != head.version) {
    throw Error("weights that this collector does not have");
  }
  head.version = opened.head.version;
  if (normalizers.obs.size() > 0) {
    actor.agent().encoder().moments() = normalizers.obs;
    actor.agent().encoder().split(1);
    actor.source().collector().encode_again();
  }
  if (normalizers.rewards.size() > 0) {
    actor.source().rewards().moments() = normalizers.rewards;
    actor.source().rewards().split(1);
  }
}

RemoteCollector::RemoteCollector(Options options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
RemoteCollector::~RemoteCollector() = default;

const std::string& RemoteCollector::assignment() const noexcept { return impl_->assignment; }
const std::string& RemoteCollector::run() const noexcept { return impl_->head.run; }
std::uint64_t RemoteCollector::attempt() const noexcept { return impl_->head.attempt; }
int RemoteCollector::number() const noexcept { return impl_->number; }
std::int64_t RemoteCollector::rollouts() const noexcept { return impl_->rollouts; }
std::int64_t RemoteCollector::steps() const noexcept { return impl_->steps; }

RemoteCollector::Departure RemoteCollector::collect(vector::VectorEnv& envs,
                                                    const LearnerConfig& config) {
  return impl_->collect(envs, config);
}

void RemoteCollector::fail(const std::string& why) noexcept { impl_->client->leave({why, false}); }

}  // namespace shoal::learn
