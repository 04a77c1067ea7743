#include "shoal/vector/testing/toy_stepper.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "shoal/os/limits/affinity.h"
#include "shoal/process/identity/welcome.h"
#include "shoal/process/supervise/stack_dump.h"
#include "shoal/vector/worker_program/native_worker.h"
#include "shoal/vector/worker_program/pool_worker.h"

namespace shoal::vector::testing {
namespace {

// One round of splitmix64.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

[[noreturn]] void kill_self() {
  std::raise(SIGKILL);
  std::abort();
}

[[noreturn]] void hang() {
  for (;;) ::pause();
}

}  // namespace

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ToyStepper::ToyStepper(int count, int num_actions, bool divisible)
    : divisible_(divisible), envs_(static_cast<std::size_t>(count)) {
  env::Dict observation;
  observation.spaces.emplace_back("state", env::Box{{shm::DType::kF64, {3}}, {-1e9}, {1e9}});
  observation.spaces.emplace_back("tick", env::Discrete{.n = 1 << 20});
  hello_.observation_space = std::move(observation);
  hello_.action_space = env::Discrete{.n = num_actions};
  hello_.extra = bytes_of(fmt::format("{} toys", count));
}

void ToyStepper::attach(const Rows& rows, int lo, EnvMarker marker) {
  rows_ = rows;
  lo_ = lo;
  marker_ = marker;
  autoreset_ = Autoreset(rows.autoreset_mode, count());
  for (int i = 0; i < count(); ++i) {
    envs_[static_cast<std::size_t>(i)].random = static_cast<std::uint64_t>(lo + i);
  }
}

void ToyStepper::write_obs(int i) {
  const Toy& toy = envs_[static_cast<std::size_t>(i)];
  const int row = lo_ + i;
  marker_.writing(row);
  auto* state = reinterpret_cast<double*>(rows_.obs[0].row_data(row));
  state[0] = static_cast<double>(toy.random >> 11);
  state[1] = static_cast<double>(toy.episode);
  state[2] = static_cast<double>(toy.length);
  *reinterpret_cast<std::int64_t*>(rows_.obs[1].row_data(row)) = toy.tick;
  marker_.at(row);
}

void ToyStepper::begin_episode(int i) {
  Toy& toy = envs_[static_cast<std::size_t>(i)];
  toy.random = mix(toy.random);
  ++toy.episode;
  toy.tick = 0;
  toy.length = 2 + static_cast<std::int64_t>(toy.random % 5);
  autoreset_.was_reset(i);
  write_obs(i);
}

void ToyStepper::reset_range(int lo, int hi) {
  for (int i = lo; i < hi; ++i) {
    const auto row = static_cast<std::size_t>(lo_ + i);
    if (rows_.reset_mask[row] == 0) continue;
    Toy& toy = envs_[static_cast<std::size_t>(i)];
    if (rows_.has_seed[row] != 0) toy = {.random = mix(rows_.seed[row])};
    begin_episode(i);
    rows_.reward[row] = 0;
    rows_.terminated[row] = rows_.truncated[row] = rows_.reset[row] = rows_.has_final[row] = 0;
  }
}

void ToyStepper::step_range(int lo, int hi) {
  for (int i = lo; i < hi; ++i) {
    const auto row = static_cast<std::size_t>(lo_ + i);
    rows_.reset[row] = rows_.has_final[row] = 0;
    marker_.at(lo_ + i);
    if (autoreset_.due(i)) {
      begin_episode(i);
      rows_.reward[row] = 0;
      rows_.terminated[row] = rows_.truncated[row] = 0;
      rows_.reset[row] = 1;
    } else {
      step_toy(i);
    }
  }
}

void ToyStepper::step_toy(int i) {
  Toy& toy = envs_[static_cast<std::size_t>(i)];
  const int row = lo_ + i;
  const auto at = static_cast<std::size_t>(row);
  const std::int64_t action = rows_.actions[0].as<std::int64_t>()[at];
  misbehave(row, action);
  toy.random = mix(toy.random ^ static_cast<std::uint64_t>(action));
  ++toy.tick;
  const bool over = toy.tick >= toy.length;
  rows_.reward[at] = static_cast<double>(toy.random % 1000) / 7.0;
  rows_.terminated[at] = over && toy.random % 2 == 0;
  rows_.truncated[at] = over && toy.random % 2 == 1;
  write_obs(i);
  if (!autoreset_.ended(i, rows_.terminated[at] != 0, rows_.truncated[at] != 0)) return;
  for (std::size_t leaf = 0; leaf < rows_.obs.size(); ++leaf) {
    const std::byte* obs = rows_.obs[leaf].row_data(row);
    std::copy_n(obs, rows_.obs[leaf].row_bytes(), rows_.final_obs[leaf].row_data(row));
  }
  rows_.has_final[at] = rows_.reset[at] = 1;
  begin_episode(i);
}

void ToyStepper::rebuild(int i) {
  envs_[static_cast<std::size_t>(i)] = {.random = static_cast<std::uint64_t>(lo_ + i)};
  autoreset_.was_reset(i);
}

std::vector<std::byte> ToyStepper::hand_over() {
  std::vector<std::uint64_t> randoms;
  for (const Toy& toy : envs_) randoms.push_back(toy.random);
  const auto bytes = std::as_bytes(std::span(randoms));
  return {bytes.begin(), bytes.end()};
}

void ToyStepper::take_over(std::span<const std::byte> handed) {
  for (std::size_t i = 0; i < envs_.size(); ++i) {
    std::memcpy(&envs_[i].random, handed.data() + i * sizeof(std::uint64_t), sizeof(std::uint64_t));
  }
  autoreset_.set_all_due();
}

void ToyStepper::misbehave(int row, std::int64_t action) {
  switch (action) {
    case ToyAction::kThrow:
      throw std::runtime_error(fmt::format("toy {} refuses", row));
    case ToyAction::kExit:
      std::fprintf(stderr, "these are the last words of toy %d\n", row);
      std::fflush(stderr);
      ::_exit(3);
    case ToyAction::kKill:
      kill_self();
    case ToyAction::kKillWriting:
      marker_.writing(row);
      *rows_.obs[0].row_data(row) = std::byte{0x5a};
      kill_self();
    case ToyAction::kHang:
      hang();
    case ToyAction::kLargeInfo:
      info_.assign(300'000, static_cast<std::byte>(row));
      break;
    case ToyAction::kSmallInfo: {
      const std::vector<std::byte> more = bytes_of(fmt::format("toy {};", row));
      info_.insert(info_.end(), more.begin(), more.end());
      break;
    }
    default:
      break;
  }
}

std::vector<std::byte> ToyStepper::request(std::span<const std::byte> message) {
  const std::string text = text_of(message);
  if (text.starts_with("echo ")) return bytes_of(text.substr(5));
  if (text == "stop") {
    std::raise(SIGSTOP);
    return bytes_of("continued");
  }
  if (text == "cpus") return bytes_of(fmt::format("{}", fmt::join(os::cpu_set(), ",")));
  if (text == "pid") return bytes_of(fmt::format("{}", ::getpid()));
  if (text == "kill") kill_self();
  if (text == "hang") hang();
  if (text == "close badly" || text == "never close") {
    how_to_close_ = text;
    return {};
  }
  throw std::invalid_argument(fmt::format("a toy does not know \"{}\"", text));
}

std::vector<process::ErrorReport> ToyStepper::close() {
  if (how_to_close_ == "never close") hang();
  std::vector<process::ErrorReport> reports;
  for (int i = 0; how_to_close_ == "close badly" && i < count(); ++i) {
    process::ErrorReport& report = reports.emplace_back();
    report.type = "ToyError";
    report.message = fmt::format("toy {} wants to play on", lo_ + i);
    report.env_index = lo_ + i;
  }
  return reports;
}

std::vector<process::WorkerSpec> toy_specs(const std::vector<int>& counts) {
  std::vector<process::WorkerSpec> specs;
  for (const int count : counts) {
    process::WorkerSpec spec;
    spec.name = fmt::format("worker {}", specs.size());
    spec.entry = "toy";
    spec.num_envs = count;
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::unique_ptr<Stepper> make_toy(int count, std::string_view payload) {
  if (payload == "throw") throw std::runtime_error("no toys today");
  if (payload == "exit") ::_exit(7);
  if (payload == "hang") hang();
  if (payload == "late") std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return std::make_unique<ToyStepper>(count, payload == "other spaces" ? 5 : 1000,
                                      payload.starts_with("runs"));
}

int toy_entry(process::WorkerContext& context) {
  const std::string payload = text_of(context.payload);
  process::install_stack_dump(true);
  const auto identity = process::receive_welcome(context);
  if (!identity) return 0;
  const auto open = [&](std::span<const std::byte>, int, int count) {
    return PoolWorkerHooks::Opened{make_toy(count, payload), {}, {}};
  };
  run_pool_worker(context.channel, *identity,
                  {.open = open, .describe_opening = {}, .before_park = {}, .after_park = {}});
  return 0;
}

std::vector<process::WorkerSpec> toy_pool_specs(int num_workers) {
  std::vector<process::WorkerSpec> specs =
      toy_specs(std::vector<int>(static_cast<std::size_t>(num_workers)));
  for (process::WorkerSpec& spec : specs) spec.entry = "toy-pool";
  return specs;
}

int toy_pool_entry(process::WorkerContext& context) {
  const auto identity = process::receive_welcome(context);
  if (!identity) return 0;
  const auto open = [](std::span<const std::byte> payload, int, int count) {
    const std::string text = text_of(payload);
    PoolWorkerHooks::Opened opened{make_toy(count, text), {}, {}};
    constexpr std::string_view kKill = "kill at ";
    if (const std::size_t kill = text.find(kKill); kill != std::string::npos) {
      const std::size_t begin = kill + kKill.size();
      const std::size_t space = text.rfind(' ');
      opened.pass = [point = text.substr(begin, space - begin),
                     left = std::stoi(text.substr(space))](const char* passed) mutable {
        if (point == passed && --left == 0) kill_self();
      };
    }
    return opened;
  };
  run_pool_worker(context.channel, *identity,
                  {.open = open, .describe_opening = {}, .before_park = {}, .after_park = {}});
  return 0;
}

process::EntryTable test_entries() {
  process::EntryTable entries;
  entries.add("toy", toy_entry);
  entries.add("toy-pool", toy_pool_entry);
  entries.add(std::string(kNativePoolEntry), native_pool_entry);
  return entries;
}

}  // namespace shoal::vector::testing
