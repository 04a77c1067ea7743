// Workers that lie to their parent: in the words and rows that they share, and in what they send. The parent
// may raise, or end the worker's episodes as faults; it neither crashes nor waits beyond its deadline.
#include <unistd.h>

#include <functional>

#include "../fiber_launcher.h"
#include "../input.h"
#include "shoal/os/log.h"
#include "shoal/vector/async/pool_vector_env.h"
#include "shoal/vector/sync/control_block.h"
#include "shoal/vector/sync/process_vector_env.h"
#include "shoal/vector/worker_program/native_worker.h"
#include "shoal/vector/workers/pool_messages.h"

namespace shoal::fuzz {
namespace {

using namespace std::chrono_literals;

constexpr int kEnvs = 4;

/// Its fibers outlive the inputs.
std::shared_ptr<FiberLauncher> launcher() {
  static const auto the = std::make_shared<FiberLauncher>();
  return the;
}

/// Of the workers of all inputs, whose environments have nothing to do with it.
std::shared_ptr<process::SharedState> shared_state() {
  static const auto the = process::SharedState::create(256);
  return the;
}

vector::Options options() {
  vector::Options options;
  options.shared_state = shared_state();
  // Whatever can come is there when it is looked for (FiberLauncher).
  options.close_timeout = 0ms;
  options.faults.on_fault = vector::OnFault::kRaise;
  options.faults.start_timeout = 0ms;
  return options;
}

/// In an action: the input lies before the workers do what they were told, not only before the parent looks.
constexpr std::uint8_t kLiesFirst = 8;
/// The workers sleep until their parent has looked in vain.
constexpr std::uint8_t kSleep = 16;

/// Lets the input lie, and the workers do what they were told: before, after, or too late for the first `look`.
template <class Lies, class Look>
auto act(std::uint8_t action, Lies&& lies, Look&& look) {
  const bool sleep = (action & kSleep) != 0;
  if (!sleep && (action & kLiesFirst) == 0) launcher()->run_workers();
  lies();
  if (!sleep) launcher()->run_workers();
  try {
    return look();
  } catch (const TimedOut&) {
    launcher()->run_workers();
    return look();
  }
}

/// What the parent alone writes, and workers that are of this process obey, stays as it is.
using IsOrder = std::function<bool(std::size_t offset)>;

IsOrder orders_of_rounds() {
  return [](std::size_t at) {
    constexpr std::size_t kCells = 128 * 3;
    if (at >= 128 && at < 256) return true;  // the doorbell
    if (at < kCells || at >= kCells + 2 * sizeof(vector::WorkerCell)) return false;
    return (at - kCells) % sizeof(vector::WorkerCell) < 128;
  };
}

IsOrder orders_of_async(const os::Mapping& mapping) {
  vector::AsyncHeader header;
  std::memcpy(&header, mapping.data() + shm::kArenaHeaderBytes, sizeof header);
  const std::size_t inboxes =
      vector::AsyncSegment::cells_at(header) + 2 * sizeof(vector::AsyncCell);
  return [inboxes](std::size_t at) { return at >= inboxes && at < (inboxes + 4096) / 4096 * 4096; };
}

void lie(const os::Mapping& mapping, Input& input, const IsOrder& is_order) {
  std::size_t at = input.take<std::uint32_t>();
  for (const std::byte byte : input.take_bytes(input.take<std::uint8_t>() % 17)) {
    if (at < mapping.size() - shm::kArenaHeaderBytes && !is_order(at))
      mapping.data()[shm::kArenaHeaderBytes + at] = byte;
    ++at;
  }
}

/// Looks at everything that the parent was given.
void use(const vector::Batch& batch) {
  double sum = 0;
  for (const double reward : batch.reward) sum += reward;
  for (const shm::TensorView& leaf : batch.obs) {
    for (std::size_t i = 0; i < leaf.bytes(); ++i) sum += std::to_integer<int>(leaf.data[i]);
  }
  static_cast<void>(*const_cast<volatile double*>(&sum));
}

void play_rounds(Input& input) {
  vector::ProcessVectorEnv envs(
      launcher(), vector::native_worker_specs("shoal/CartPole-v1", kEnvs, 2, "{}"), options());
  const os::Mapping shared = launcher()->shared_with(0);
  const IsOrder is_order = orders_of_rounds();
  envs.reset_async({});
  launcher()->run_workers();
  use(envs.wait(0ms));
  for (int acts = 0; acts < 8 && !input.empty(); ++acts) {
    const auto action = input.take<std::uint8_t>();
    envs.step_async();
    const auto lies = [&] {
      if (action % 4 == 0) launcher()->say(0, input.take_part());
      if (action % 2 == 0) lie(shared, input, is_order);
    };
    use(act(action, lies, [&] { return envs.wait(0ms); }));
    if (action % 2 == 1) lie(shared, input, is_order);
    for (int worker = 0; worker < 2; ++worker) {
      std::uint8_t sum = 0;
      for (const std::byte byte : envs.info(worker)) sum ^= std::to_integer<std::uint8_t>(byte);
      static_cast<void>(*const_cast<volatile std::uint8_t*>(&sum));
    }
    static_cast<void>(envs.stats());
    static_cast<void>(envs.health());
  }
}

void play_async(Input& input) {
  const auto pool =
      std::make_shared<vector::WorkerPool>(launcher(), vector::native_pool_specs(2),
                                           vector::PoolOptions{.shared_state = shared_state()});
  const auto payload = vector::native_pool_payload("shoal/CartPole-v1", "{}");
  vector::Options chosen = options();
  chosen.batch_size = 2;
  vector::PoolVectorEnv envs(pool, {{2, payload}, {2, payload}}, chosen, true);
  const os::Mapping shared = launcher()->shared_with(0);
  const IsOrder is_order = orders_of_async(shared);
  envs.send_reset({});
  launcher()->run_workers();
  use(envs.recv(0ms).batch);
  for (int acts = 0; acts < 8 && !input.empty(); ++acts) {
    const auto action = input.take<std::uint8_t>();
    const auto lies = [&] {
      if (action % 4 == 0) launcher()->say(0, input.take_part());
      lie(shared, input, is_order);
    };
    const vector::Arrivals arrivals = act(action, lies, [&] { return envs.recv(0ms); });
    use(arrivals.batch);
    for (const auto& info : arrivals.infos) {
      std::uint8_t sum = 0;
      for (const std::byte byte : info.bytes) sum ^= std::to_integer<std::uint8_t>(byte);
      static_cast<void>(*const_cast<volatile std::uint8_t*>(&sum));
    }
    const std::vector<std::int64_t> ids(arrivals.env_ids.begin(), arrivals.env_ids.end());
    envs.send(ids);
  }
}

/// Where the blocks of asynchronous CartPoles say that a row failed, and that its info is elsewhere.
std::vector<std::uint32_t> words_of_blocks() {
  const vector::Hello spaces{env::float_box({-1, -1, -1, -1}, {1, 1, 1, 1}), env::Discrete{2}, {}};
  const auto segment =
      vector::AsyncSegment::create(spaces, {.num_workers = 2,
                                            .num_envs = kEnvs,
                                            .most_envs = 2,
                                            .batch_size = 2,
                                            .num_blocks = 7,
                                            .mode = vector::AutoresetMode::kNextStep});
  const auto shared =
      os::Mapping::map(os::Memfd::open(os::Fd(::dup(segment.fd()))), "asynchronous environments");
  vector::AsyncHeader header;
  std::memcpy(&header, shared.data() + shm::kArenaHeaderBytes, sizeof header);
  const std::byte* const begin =
      reinterpret_cast<const std::byte*>(&segment.cell(0)) - vector::AsyncSegment::cells_at(header);
  std::vector<std::uint32_t> all;
  for (int b = 0; b < 3; ++b) {
    const vector::AsyncBlock& block = segment.block(b);
    for (const auto word : {std::as_bytes(block.rows.fault), std::as_bytes(block.info_sizes)}) {
      all.push_back(static_cast<std::uint32_t>(word.data() - begin));
    }
  }
  return all;
}

}  // namespace

std::vector<Bytes> seeds() {
  os::set_log_level(os::LogLevel::kOff);
  using vector::WorkerCell;
  const auto cell = [](std::size_t member) { return static_cast<std::uint32_t>(128 * 3 + member); };
  const auto lie_in = [](std::uint8_t kind, std::uint8_t order, std::uint32_t at,
                         std::uint32_t value) {
    return Output()
        .put(kind)
        .put(static_cast<std::uint8_t>(order | 1))
        .put(at)
        .put(std::uint8_t{4})
        .put(value)
        .put(static_cast<std::uint8_t>(order | 2))
        .put(at)
        .put(std::uint8_t{4})
        .put(value)
        .take();
  };
  process::ErrorReport report;
  report.type = "ValueError";
  report.env_index = 1'000'000;
  const process::ErrorReport reports[] = {report};
  const Bytes faults = vector::PoolMessage{.kind = vector::PoolKind::kFaults,
                                           .session = 1,
                                           .sequence = 2,
                                           .bytes = vector::encode_reports(reports)}
                           .encode();
  const std::uint8_t rounds = 0, async = 1, speaks = 4;
  std::vector<Bytes> all{Output()
                             .put(rounds)
                             .put(speaks)
                             .put_part(faults)
                             .put(cell(offsetof(WorkerCell, failed)))
                             .put(std::uint8_t{4})
                             .put(std::uint32_t{2})
                             .take()};
  for (const std::uint8_t order : {std::uint8_t{0}, kLiesFirst, kSleep}) {
    const auto lie = [&](std::uint8_t kind, std::uint32_t at, std::uint32_t value) {
      all.push_back(lie_in(kind, order, at, value));
    };
    lie(rounds, cell(offsetof(WorkerCell, info_bytes)), 100'000);
    lie(rounds, cell(offsetof(WorkerCell, env_now)), 99);
    lie(rounds, 32, 0x7fffffff);
    lie(rounds, 256, 0);
    for (const std::uint32_t at : words_of_blocks()) lie(async, at, 0xffff'ffff);
    for (const std::uint32_t at : {0U, 128U, 256U, 384U, 512U, 1024U, 4096U, 8192U}) {
      lie(async, at, 1000);
    }
  }
  return all;
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  shoal::fuzz::Input input(data, size);
  return shoal::fuzz::refused_at_most([&] {
    if (input.take<std::uint8_t>() % 2 == 0) {
      shoal::fuzz::play_rounds(input);
    } else {
      shoal::fuzz::play_async(input);
    }
  });
}
