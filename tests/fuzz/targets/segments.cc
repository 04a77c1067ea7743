// Shared memory that another process made: whatever lies in it, attaching to it succeeds or is refused.
#include <unistd.h>

#include <array>
#include <optional>

#include "../input.h"
#include "shoal/collect/replay/replay.h"
#include "shoal/collect/weight_store.h"
#include "shoal/ipc/pool/task_segment.h"
#include "shoal/os/memory/memfd.h"
#include "shoal/process/identity/port_order.h"
#include "shoal/process/identity/shared_state.h"
#include "shoal/process/zygote/credit_cells.h"
#include "shoal/serve/client_slots.h"
#include "shoal/serve/request_queue.h"
#include "shoal/serve/server_segment.h"
#include "shoal/shm/board.h"
#include "shoal/vector/async/async_segment.h"
#include "shoal/vector/env_board.h"
#include "shoal/vector/sync/control_block.h"
#include "shoal/vector/workers/pool_door.h"

namespace shoal::fuzz {
namespace {

enum class What : std::uint8_t {
  kBoard,
  kWorkers,
  kSharedState,
  kPorts,
  kRequestQueue,
  kClientSlots,
  kServer,
  kControlBlock,
  kAsync,
  kTasks,
  kWeights,
  kCredits,
  kDoor,
  kReplay,
};
constexpr std::uint8_t kKinds = 14;

const serve::RowSpec kRows{{shm::DType::kF32, {4}}};
const collect::ReplaySpec& replay_spec() {
  static const collect::ReplaySpec spec{.obs = {{shm::DType::kF32, {2}}},
                                        .action = {shm::DType::kF32, {1}}};
  return spec;
}

vector::Hello spaces() { return {env::float_box({-1}, {1}), env::Discrete{2}, {}}; }

/// A segment of the kind that ours make, as the process that made it left it.
os::Fd segment(What what) {
  const auto copy = [](int fd) { return os::Fd(::dup(fd)); };
  switch (what) {
    case What::kBoard: {
      const std::vector<std::string> names{"steps", "pid of worker 0"};
      return copy(shm::Board("vector environment", names).fd());
    }
    case What::kSharedState:
      return copy(process::SharedState::create(256)->fd());
    case What::kPorts:
      return copy(process::PortOrder::create()->fd());
    case What::kRequestQueue:
      return copy(serve::RequestQueue::create(1, {.inputs = kRows, .structure = {}},
                                              {.buffers = 2, .max_rows = 2}, false)
                      ->fd());
    case What::kClientSlots:
      return copy(serve::ClientSlots::create(1, kRows, 2)->fd());
    case What::kServer: {
      const std::vector<std::string> names{"policy"};
      return copy(serve::ServerSegment::create(names).fd());
    }
    case What::kWorkers:
    case What::kControlBlock:
      return copy(
          vector::ControlBlock::create(2, 4, vector::AutoresetMode::kNextStep, 1, 4096, 4096).fd());
    case What::kAsync:
      return copy(vector::AsyncSegment::create(spaces(), {.num_workers = 2,
                                                          .num_envs = 4,
                                                          .most_envs = 2,
                                                          .batch_size = 2,
                                                          .num_blocks = 3,
                                                          .mode = vector::AutoresetMode::kNextStep})
                      .fd());
    case What::kTasks:
      return copy(ipc::TaskSegment::create(2, 4096).fd());
    case What::kWeights:
      return copy(collect::WeightStore::create(64, 2).fd());
    case What::kCredits:
      return copy(process::CreditCells::create().fd());
    case What::kDoor:
      return copy(vector::PoolDoor::create(2, 1).fd());
    case What::kReplay:
      return copy(collect::Replay::create(replay_spec()).fd());
  }
  return {};
}

void attach(What what, os::Fd fd) {
  switch (what) {
    case What::kBoard:
      return static_cast<void>(shm::Board::read(std::move(fd)));
    case What::kWorkers:
      return static_cast<void>(vector::observe_workers(std::move(fd)));
    case What::kSharedState: {
      const auto state = process::SharedState::attach(std::move(fd));
      static_cast<void>(state->counters());
      return;
    }
    case What::kPorts:
      return static_cast<void>(process::PortOrder::attach(std::move(fd))->ports(20'000, 20'010));
    case What::kRequestQueue: {
      const auto queue =
          serve::RequestQueue::attach(std::move(fd), {.inputs = kRows, .structure = {}});
      for (std::uint32_t b = 0; b < queue->buffers(); ++b) {
        static_cast<void>(queue->claims(b).claimed());
        if (queue->max_rows() > 0) *queue->input(b, 0, queue->max_rows() - 1) = {};
      }
      return;
    }
    case What::kClientSlots: {
      const auto slots = serve::ClientSlots::attach(std::move(fd), kRows);
      for (std::uint32_t s = 0; s < slots->slots(); ++s) {
        static_cast<void>(std::string(slots->text(s)));
        *slots->output(s, 0) = {};
      }
      return;
    }
    case What::kServer: {
      const auto server = serve::ServerSegment::attach(std::move(fd));
      for (const auto& model : server.models()) static_cast<void>(model.run_ns.summary());
      return;
    }
    case What::kControlBlock: {
      const auto block = vector::ControlBlock::attach(shm::Arena::attach(std::move(fd)));
      for (std::uint32_t w = 0; w < block.header().num_workers; ++w) {
        const auto info = block.info(static_cast<int>(w));
        if (!info.empty()) info.back() = {};
      }
      return;
    }
    case What::kAsync: {
      const auto segment =
          vector::AsyncSegment::attach(shm::Arena::attach(std::move(fd)), spaces());
      if (segment.num_envs() > 0) segment.home().reward.back() = 0;
      return;
    }
    case What::kTasks: {
      const auto tasks = ipc::TaskSegment::attach(std::move(fd));
      for (int i = 0; i < tasks.slots(); ++i) static_cast<void>(tasks.results(i).front());
      return;
    }
    case What::kWeights: {
      const auto weights = collect::WeightStore::attach(std::move(fd));
      return;
    }
    case What::kCredits:
      return static_cast<void>(
          process::CreditCells::attach(std::move(fd)).at(process::CreditCells::kCount - 1));
    case What::kDoor:
      return vector::PoolDoor::attach(shm::Arena::attach(std::move(fd))).ring();
    case What::kReplay:
      return static_cast<void>(collect::Replay::attach(std::move(fd), replay_spec()));
  }
}

/// A segment of one kind, which every input finds as the process that made it left it.
class Pristine {
 public:
  explicit Pristine(What what)
      : memfd_(os::Memfd::open(segment(what))),
        mapping_(os::Mapping::map(memfd_, "a segment")),
        content_(mapping_.data(), mapping_.data() + mapping_.size()) {}

  const os::Mapping& restored() const {
    std::memcpy(mapping_.data(), content_.data(), content_.size());
    return mapping_;
  }
  os::Fd fd() const { return os::Fd(::dup(memfd_.fd())); }

  /// Making one takes longer than all that an input does with it.
  static const Pristine& of(What what) {
    static std::array<std::optional<Pristine>, kKinds> all;
    auto& one = all[static_cast<std::size_t>(what)];
    if (!one) one.emplace(what);
    return *one;
  }

 private:
  const os::Memfd memfd_;
  const os::Mapping mapping_;
  const Bytes content_;
};

/// A lock that somebody holds is waited for.
bool is_in_lock(What what, std::size_t at) {
  constexpr std::size_t kLock = shm::kArenaHeaderBytes + 128;
  return what == What::kReplay && at >= kLock && at < kLock + sizeof(sync::RobustLock);
}

/// Which one, then changes of it: where (u32), and what is written there (a part).
void read(Input input) {
  const auto what = static_cast<What>(input.take<std::uint8_t>() % kKinds);
  const Pristine& segment = Pristine::of(what);
  const os::Mapping& mapping = segment.restored();
  while (!input.empty()) {
    std::size_t at = input.take<std::uint32_t>() % mapping.size();
    for (const std::byte byte : input.take_bytes(input.take<std::uint8_t>())) {
      if (at < mapping.size() && !is_in_lock(what, at)) mapping.data()[at] = byte;
      ++at;
    }
  }
  attach(what, segment.fd());
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (std::uint8_t what = 0; what < kKinds; ++what) {
    for (const std::uint32_t at : {0U, 16U, 4096U + 8U, 4096U + 128U, 4096U + 24U}) {
      all.push_back(Output().put(what).put(at).put(std::uint8_t{4}).put(std::uint32_t{64}).take());
    }
    all.push_back({std::byte{what}});
  }
  return all;
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return shoal::fuzz::refused_at_most([&] { shoal::fuzz::read({data, size}); });
}
