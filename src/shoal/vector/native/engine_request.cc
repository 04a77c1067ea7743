#include "shoal/vector/native/engine_request.h"

#include <fmt/format.h>

#include <string>

#include "shoal/process/codec.h"
#include "shoal/vector/async/async_vector_env.h"

namespace shoal::vector {
namespace {

// Faces' messages are pickles or texts, which never begin with a zero.
constexpr std::uint8_t kMark = 0;

enum class Kind : std::uint8_t {
  kResetOptions,
  kResetOptionsOfOne,
  kCheckResetOptions,
  kSave,
  kLoad
};

process::ByteWriter begin(Kind kind) {
  process::ByteWriter out;
  out.number(kMark);
  out.number(static_cast<std::uint8_t>(kind));
  return out;
}

/// Positions in `environments`, by the worker that holds them.
std::vector<std::vector<std::size_t>> by_worker(const VectorEnv& envs,
                                                std::span<const int> environments) {
  const Stats stats = envs.stats();
  std::vector<std::vector<std::size_t>> workers(stats.workers.size());
  for (std::size_t at = 0; at < environments.size(); ++at) {
    const int env = environments[at];
    if (env < 0 || env >= envs.num_envs()) {
      throw InvalidArgument(
          fmt::format("there is no environment {}; there are {}", env, envs.num_envs()));
    }
    for (std::size_t w = 0; w < workers.size(); ++w) {
      const int first = stats.workers[w].first_env;
      if (env >= first && env < first + stats.workers[w].num_envs) workers[w].push_back(at);
    }
  }
  return workers;
}

/// Throws where one of them has nothing to save, or nowhere to put what was saved.
void require_presence(const VectorEnv& envs, std::span<const int> environments, const char* call,
                      bool may_be_new) {
  std::vector<std::int64_t> fresh, dropped;
  for (const int env : environments) {
    const auto presence = envs.presence(env);
    if (presence == VectorEnv::Presence::kDropped) dropped.push_back(env);
    if (presence == VectorEnv::Presence::kNew && !may_be_new) fresh.push_back(env);
  }
  if (!dropped.empty()) {
    throw InvalidState(fmt::format("{}: {} {} been dropped", call, describe_envs(dropped),
                                   dropped.size() == 1 ? "has" : "have"));
  }
  if (fresh.empty()) return;
  throw InvalidState(fmt::format(
      "{}: {} {} lost to a fault and {} not begun an episode since: step() or reset() first, or "
      "name the others",
      call, describe_envs(fresh), fresh.size() == 1 ? "was" : "were",
      fresh.size() == 1 ? "has" : "have"));
}

}  // namespace

std::optional<std::vector<std::byte>> answer_engine_request(Stepper& stepper,
                                                            std::span<const std::byte> message) {
  if (message.size() < 2 || message[0] != std::byte{kMark}) return {};
  process::ByteReader in(message.subspan(2));
  process::ByteWriter out;
  switch (static_cast<Kind>(message[1])) {
    case Kind::kResetOptions:
      stepper.set_reset_options(in.text(), {});
      break;
    case Kind::kResetOptionsOfOne: {
      const auto row = in.number<std::int32_t>();
      stepper.set_reset_options(in.text(), row);
      break;
    }
    case Kind::kCheckResetOptions:
      stepper.check_reset_options(in.text());
      break;
    case Kind::kSave:
      while (in.left() > 0) out.bytes(stepper.save(in.number<std::int32_t>()));
      break;
    case Kind::kLoad:
      while (in.left() > 0) {
        const auto row = in.number<std::int32_t>();
        stepper.load(row, in.bytes());
      }
      break;
  }
  return out.take();
}

void set_reset_options(VectorEnv& envs, std::string_view options) {
  for (int worker = 0; worker < envs.num_workers(); ++worker) {
    process::ByteWriter message = begin(Kind::kResetOptions);
    message.text(options);
    envs.request(worker, message.take());
  }
}

void check_reset_options(AsyncVectorEnv& envs, std::string_view options) {
  process::ByteWriter message = begin(Kind::kCheckResetOptions);
  message.text(options);
  envs.request(envs.idle_worker(), message.take());
}

void tell_reset_options(AsyncVectorEnv& envs, std::span<const std::int64_t> rows,
                        std::string_view options) {
  std::vector<std::vector<std::byte>> messages;
  for (const std::int64_t row : rows) {
    if (options.empty()) break;
    process::ByteWriter message = begin(Kind::kResetOptionsOfOne);
    message.number(static_cast<std::int32_t>(row));
    message.text(options);
    messages.push_back(message.take());
  }
  envs.tell_with_reset(rows, std::move(messages));
}

std::vector<std::vector<std::byte>> snapshot(VectorEnv& envs, std::span<const int> environments) {
  std::vector<std::vector<std::byte>> states(environments.size());
  const auto workers = by_worker(envs, environments);
  require_presence(envs, environments, "snapshot", false);
  for (std::size_t w = 0; w < workers.size(); ++w) {
    if (workers[w].empty()) continue;
    process::ByteWriter message = begin(Kind::kSave);
    for (const std::size_t at : workers[w]) {
      message.number(static_cast<std::int32_t>(environments[at]));
    }
    const std::vector<std::byte> answer = envs.request(static_cast<int>(w), message.take());
    process::ByteReader in(answer);
    for (const std::size_t at : workers[w]) states[at] = in.bytes();
  }
  require_presence(envs, environments, "snapshot", false);  // a worker may have been replaced
  return states;
}

void restore(VectorEnv& envs, std::span<const int> environments,
             std::span<const std::vector<std::byte>> states) {
  if (environments.size() != states.size()) {
    throw InvalidArgument(
        fmt::format("restore: {} states for {} environments", states.size(), environments.size()));
  }
  const auto workers = by_worker(envs, environments);
  require_presence(envs, environments, "restore", true);
  for (std::size_t w = 0; w < workers.size(); ++w) {
    if (workers[w].empty()) continue;
    process::ByteWriter message = begin(Kind::kLoad);
    for (const std::size_t at : workers[w]) {
      message.number(static_cast<std::int32_t>(environments[at]));
      message.bytes(states[at]);
    }
    envs.request(static_cast<int>(w), message.take());
    for (const std::size_t at : workers[w]) envs.restored(environments[at]);
  }
}

}  // namespace shoal::vector
