// Workers that lie to their parent: in the words and rows that they share, and in what they send. The parent
// may raise, or end the worker's episodes as faults; it neither crashes nor waits beyond its deadline.
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <functional>
#include <mutex>

#include "../input.h"
#include "shoal/os/log.h"
#include "shoal/vector/async/pool_vector_env.h"
#include "shoal/vector/sync/control_block.h"
#include "shoal/vector/sync/process_vector_env.h"
#include "shoal/vector/testing/thread_launcher.h"
#include "shoal/vector/worker_program/native_worker.h"
#include "shoal/vector/workers/pool_messages.h"

namespace shoal::fuzz {
namespace {

using namespace std::chrono_literals;

constexpr int kEnvs = 4;
constexpr auto kPatience = 20ms;  // with what a lie keeps from ending

/// The channel of worker 0, on which its parent hears what the input says.
struct Speaker {
  std::mutex mutex;
  process::Channel* channel = nullptr;  // guarded by mutex
};
Speaker& speaker() {
  static Speaker the;
  return the;
}

int entry(process::WorkerContext& context) {
  const bool speaks = context.index == 0;
  const auto set = [&](process::Channel* channel) {
    if (!speaks) return;
    const std::lock_guard lock(speaker().mutex);
    speaker().channel = channel;
  };
  struct Silence {
    const decltype(set)& set_;
    ~Silence() { set_(nullptr); }
  };
  set(&context.channel);
  const Silence silence{set};
  return vector::native_pool_entry(context);
}

std::shared_ptr<process::Launcher> launcher() {
  process::EntryTable entries;
  entries.add(std::string(vector::kNativePoolEntry), entry);
  return std::make_shared<vector::testing::ThreadLauncher>(std::move(entries));
}

vector::Options options() {
  vector::Options options;
  options.close_timeout = 1000ms;
  options.faults.on_fault = vector::OnFault::kRaise;
  options.faults.start_timeout = 1000ms;
  return options;
}

/// This process's segment of that name, which there is one of.
os::Mapping segment(const char* name) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone).string().find(name) == std::string::npos)
      continue;
    int fd = -1;
    const std::string number = entry.path().filename();
    std::from_chars(number.data(), number.data() + number.size(), fd);
    return os::Mapping::map(os::Memfd::open(os::Fd(::dup(fd))), name);
  }
  return {};
}

/// What the parent alone writes, and threads of this process obey, stays as it is.
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

void say(std::span<const std::byte> bytes) {
  const std::lock_guard lock(speaker().mutex);
  if (speaker().channel == nullptr) return;
  static_cast<void>(speaker().channel->send(bytes, {}, os::Clock::now()));
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
  const os::Mapping shared = segment("shoal vector env");
  const IsOrder is_order = orders_of_rounds();
  envs.reset_async({});
  use(envs.wait(kPatience * 50));
  for (int acts = 0; acts < 8 && !input.empty(); ++acts) {
    const auto action = input.take<std::uint8_t>();
    envs.step_async();
    if (action % 4 == 0) say(input.take_part());
    if (action % 2 == 0) lie(shared, input, is_order);
    use(envs.wait(kPatience));
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
  const auto pool = std::make_shared<vector::WorkerPool>(launcher(), vector::native_pool_specs(2),
                                                         vector::PoolOptions{});
  const auto payload = vector::native_pool_payload("shoal/CartPole-v1", "{}");
  vector::Options chosen = options();
  chosen.batch_size = 2;
  vector::PoolVectorEnv envs(pool, {{2, payload}, {2, payload}}, chosen, true);
  const os::Mapping shared = segment("shoal async envs");
  const IsOrder is_order = orders_of_async(shared);
  envs.send_reset({});
  use(envs.recv(kPatience * 50).batch);
  for (int acts = 0; acts < 8 && !input.empty(); ++acts) {
    const auto action = input.take<std::uint8_t>();
    if (action % 4 == 0) say(input.take_part());
    lie(shared, input, is_order);
    const vector::Arrivals arrivals = envs.recv(kPatience);
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

}  // namespace

std::vector<Bytes> seeds() {
  os::set_log_level(os::LogLevel::kOff);
  using vector::WorkerCell;
  const auto cell = [](std::size_t member) { return static_cast<std::uint32_t>(128 * 3 + member); };
  const auto lie = [](std::uint8_t kind, std::uint32_t at, std::uint32_t value) {
    return Output()
        .put(kind)
        .put(std::uint8_t{1})
        .put(at)
        .put(std::uint8_t{4})
        .put(value)
        .put(std::uint8_t{2})
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
  return {lie(rounds, cell(offsetof(WorkerCell, info_bytes)), 100'000),
          lie(rounds, cell(offsetof(WorkerCell, env_now)), 99),
          lie(rounds, 32, 0x7fffffff),
          lie(rounds, 256, 0),
          lie(async, 0, 5),
          lie(async, 4096, 1000),
          Output()
              .put(rounds)
              .put(speaks)
              .put_part(faults)
              .put(cell(offsetof(WorkerCell, failed)))
              .put(std::uint8_t{4})
              .put(std::uint32_t{2})
              .take()};
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
