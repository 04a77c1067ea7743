#include "shoal/collect/replay/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "shoal/collect/replay/replay_change.h"
#include "shoal/collect/replay/replay_checks.h"
#include "shoal/os/error.h"
#include "shoal/os/fault_point.h"
#include "shoal/shm/header.h"

namespace shoal::collect {
namespace {

using sync::RingColumnShape;
using sync::SumTree;

constexpr char kMagic[] = {'S', 'H', 'O', 'A', 'L', 'R', 'P', 'L'};
constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kLine = 128;
constexpr std::size_t kLockOffset = 128;
constexpr std::size_t kGateOffset = 256;
constexpr std::size_t kMembersOffset = 640;
constexpr std::size_t kTreeOffset = 2304;

constexpr std::uint8_t kTerminated = 1;
constexpr std::uint8_t kTruncated = 2;
constexpr std::uint8_t kValid = 4;

RingColumnShape shape_of(const ReplaySpec& spec) {
  std::size_t front = 0;
  for (const auto& leaf : spec.obs) front += leaf.bytes();
  return {.rows = static_cast<std::uint64_t>(spec.rows),
          .front = front,
          .back = spec.action.bytes() + sizeof(float) + 1};
}

std::size_t leaves_of(const ReplaySpec& spec) {
  return SumTree::leaves_for(static_cast<std::size_t>(spec.columns) *
                             static_cast<std::size_t>(spec.rows));
}

std::size_t tree_bytes(const ReplaySpec& spec) {
  return spec.prioritized ? SumTree::words_needed(leaves_of(spec)) * kWord : 0;
}

std::size_t columns_offset(const ReplaySpec& spec) {
  return (kTreeOffset + tree_bytes(spec) + kLine - 1) / kLine * kLine;
}

ReplayHeader header_of(const ReplaySpec& spec) {
  const RingColumnShape shape = shape_of(spec);
  ReplayHeader header{.magic = {},
                      .version = kReplayVersion,
                      .prioritized = spec.prioritized ? 1U : 0U,
                      .columns = static_cast<std::uint64_t>(spec.columns),
                      .rows = shape.rows,
                      .front_bytes = shape.front,
                      .back_bytes = shape.back,
                      .arrays = hash_of_arrays(spec),
                      .unused = 0};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  return header;
}

}  // namespace

std::size_t Replay::bytes_of(const ReplaySpec& spec) {
  return columns_offset(spec) +
         static_cast<std::size_t>(spec.columns) * shape_of(spec).words_needed() * kWord;
}

Replay::Replay(shm::Arena arena, ReplaySpec spec)
    : spec_(std::move(spec)),
      shape_(shape_of(spec_)),
      arena_(std::move(arena)),
      columns_offset_(columns_offset(spec_)),
      lock_(arena_.at<sync::RobustLock>(kLockOffset)),
      gate_(arena_.at<ReplayGate>(kGateOffset)),
      members_(arena_.at<Member>(kMembersOffset, kMostMembers)),
      front_(shape_.front),
      back_(shape_.back),
      counts_(static_cast<std::size_t>(spec_.columns)) {
  static_assert(kGateOffset + sizeof(ReplayGate) <= kMembersOffset);
  static_assert(kMembersOffset + kMostMembers * sizeof(Member) <= kTreeOffset);
}

Replay Replay::create(const ReplaySpec& spec) {
  Replay replay(shm::Arena::create("shoal replay", bytes_of(checked(spec))), spec);
  *replay.arena_.at<ReplayHeader>(0) = header_of(spec);
  replay.lock_->init();
  replay.join();
  return replay;
}

Replay Replay::attach(os::Fd fd, const ReplaySpec& spec) {
  shm::Arena arena = shm::Arena::attach(std::move(fd));
  const auto header = shm::header_of<ReplayHeader>(arena, kMagic, kReplayVersion, "a replay");
  const ReplayHeader wanted = header_of(checked(spec));
  ReplayHeader otherwise = header;
  otherwise.arrays = wanted.arrays;
  if (std::memcmp(&otherwise, &wanted, sizeof wanted) == 0 && header.arrays != wanted.arrays)
    throw InvalidArgument(
        "attach a replay: its observations or actions have other element types or shapes; attach "
        "it with the spec that it was created with");
  if (std::memcmp(&header, &wanted, sizeof wanted) != 0 || arena.size() < bytes_of(spec))
    throw InvalidArgument(fmt::format(
        "attach a replay: it has {} columns of {} rows of {} + {} bytes, prioritised {}, not {} of "
        "{} of {} + {}, prioritised {}",
        header.columns, header.rows, header.front_bytes, header.back_bytes, header.prioritized,
        wanted.columns, wanted.rows, wanted.front_bytes, wanted.back_bytes, wanted.prioritized));
  Replay replay(std::move(arena), spec);
  replay.join();
  return replay;
}

Replay::Replay(Replay&& other) noexcept
    : spec_(std::move(other.spec_)),
      shape_(other.shape_),
      arena_(std::move(other.arena_)),
      columns_offset_(other.columns_offset_),
      me_(std::exchange(other.me_, kNoMember)),
      maker_(other.maker_),
      lock_(other.lock_),
      gate_(other.gate_),
      members_(other.members_),
      front_(std::move(other.front_)),
      back_(std::move(other.back_)),
      counts_(std::move(other.counts_)) {}

Replay::~Replay() { leave(); }

// Where things are

sync::RingColumn Replay::column(std::uint64_t index) const {
  const std::size_t words = shape_.words_needed();
  return {arena_.at<sync::SystemAtomics::Word64>(columns_offset_ + index * words * kWord, words),
          shape_};
}

SumTree Replay::tree() const {
  const std::size_t leaves = leaves_of(spec_);
  return {arena_.at<sync::SystemAtomics::Word64>(kTreeOffset, SumTree::words_needed(leaves)),
          leaves};
}

std::size_t Replay::place_of(std::uint64_t column, std::uint64_t row) const noexcept {
  return static_cast<std::size_t>(column * shape_.rows + row % shape_.rows);
}

std::uint64_t Replay::lap_of(std::uint64_t row) const noexcept { return row / shape_.rows; }

std::int64_t Replay::size() const {
  std::int64_t sum = 0;
  for (std::uint64_t c = 0; c < static_cast<std::uint64_t>(spec_.columns); ++c) {
    const sync::RingColumn rows = column(c);
    const std::uint64_t head = rows.head();
    sum += static_cast<std::int64_t>(head - std::min(head, rows.oldest()));
  }
  return sum;
}

// Writing

void Replay::gather(std::span<const shm::TensorView> obs, std::int64_t from) {
  std::size_t at = 0;
  for (std::size_t leaf = 0; leaf < spec_.obs.size(); ++leaf) {
    const std::size_t bytes = spec_.obs[leaf].bytes();
    std::memcpy(front_.data() + at, obs[leaf].row_data(from), bytes);
    at += bytes;
  }
}

void Replay::write_back(const ReplayStep& step) {
  const std::size_t action = spec_.action.bytes();
  if (step.action != nullptr)
    std::memcpy(back_.data(), step.action, action);
  else
    std::memset(back_.data(), 0, action);
  std::memcpy(back_.data() + action, &step.reward, sizeof step.reward);
  const unsigned flags = (step.terminated ? kTerminated : 0U) | (step.truncated ? kTruncated : 0U) |
                         (step.valid ? kValid : 0U);
  back_.back() = static_cast<std::byte>(flags);
}

Replay::Back Replay::read_back() const {
  Back back{};
  std::memcpy(&back.reward, back_.data() + spec_.action.bytes(), sizeof back.reward);
  const auto flags = static_cast<unsigned>(back_.back());
  back.terminated = (flags & kTerminated) != 0;
  back.truncated = (flags & kTruncated) != 0;
  back.valid = (flags & kValid) != 0;
  return back;
}

void Replay::begin(int column, std::span<const shm::TensorView> obs, std::int64_t from) {
  check_column(spec_, column);
  check_row(spec_, obs, from);
  const auto index = static_cast<std::uint64_t>(column);
  sync::RingColumn rows = this->column(index);
  gather(obs, from);
  if (!rows.begun()) return rows.start(front_.data());
  write_back({.valid = false});
  finish_row(index, false);
}

void Replay::step(int column, const ReplayStep& step, std::span<const shm::TensorView> next_obs,
                  std::int64_t from) {
  check_column(spec_, column);
  check_row(spec_, next_obs, from);
  if (!this->column(static_cast<std::uint64_t>(column)).begun())
    throw InvalidState(fmt::format(
        "append to a replay: column {} has no first observation; call begin() before step()",
        column));
  gather(next_obs, from);
  write_back(step);
  finish_row(static_cast<std::uint64_t>(column), step.valid);
}

void Replay::finish_row(std::uint64_t index, bool valid) {
  sync::RingColumn rows = column(index);
  if (!spec_.prioritized) {
    rows.finish(back_.data(), front_.data());
    SHOAL_FAULT_POINT("replay.step.written");
    return;
  }
  SumTree weights = tree();
  const std::uint64_t row = rows.head();
  const Change change(*this);
  SHOAL_FAULT_POINT("replay.step.entered");
  // Before the row that has had the next one's place is written over, nobody draws it any more.
  weights.assign(place_of(index, row + 1), lap_of(row + 1), 0);
  SHOAL_FAULT_POINT("replay.step.removed");
  rows.finish(back_.data(), front_.data());
  SHOAL_FAULT_POINT("replay.step.written");
  const std::uint64_t least = std::min(kReplayOne, weights.limit());
  weights.assign(place_of(index, row), lap_of(row),
                 valid ? std::max(weights.greatest(), least) : 0);
  SHOAL_FAULT_POINT("replay.step.weighted");
}

// Priorities

void Replay::set_priorities(std::span<const ReplayPick> picks, std::span<const double> priorities) {
  SumTree weights = this->priorities();
  if (priorities.size() != picks.size())
    throw InvalidArgument(fmt::format("set priorities of a replay: {} for {} picks",
                                      priorities.size(), picks.size()));
  for (const ReplayPick& pick : picks) check_column(spec_, pick.column);
  const Change change(*this);
  for (std::size_t k = 0; k < picks.size(); ++k) {
    // NaN gives the least weight.
    const double units = std::fmin(std::fmax(priorities[k] * static_cast<double>(kReplayOne), 1.0),
                                   static_cast<double>(weights.limit()));
    const auto weight = static_cast<std::uint64_t>(units);
    const auto& [column, row] = picks[k];
    const std::size_t place = place_of(static_cast<std::uint64_t>(column), row);
    if (weights.leaf(place).value == 0) continue;  // it is being written over
    SHOAL_FAULT_POINT("replay.priorities.found");
    if (weights.update(place, lap_of(row), weight)) weights.raise(weight);
    SHOAL_FAULT_POINT("replay.priorities.set");
  }
}

SumTree Replay::priorities() const {
  if (!spec_.prioritized) throw InvalidState("a replay has no priorities: make it prioritised");
  return tree();
}

double Replay::limit() const {
  return static_cast<double>(priorities().limit()) / static_cast<double>(kReplayOne);
}

double Replay::priority(const ReplayPick& pick) const {
  check_column(spec_, pick.column);
  const auto leaf = priorities().leaf(place_of(static_cast<std::uint64_t>(pick.column), pick.row));
  if (leaf.tag != lap_of(pick.row) % SumTree::kTags) return 0;
  return static_cast<double>(leaf.value) / static_cast<double>(kReplayOne);
}

}  // namespace shoal::collect
