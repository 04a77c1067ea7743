#include "shoal/learn/a3c/a3c_arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/shm/header.h"

namespace shoal::learn {
namespace {

using Word64 = sync::SystemAtomics::Word64;

struct RewardMoments {
  double mean;
  double var;
  double count;
};

constexpr char kMagic[] = {'S', 'H', 'O', 'A', 'L', 'A', '3', 'C'};
constexpr std::size_t kLine = 128;
constexpr std::size_t kBoardOffset = kLine;
constexpr std::size_t kLinesOffset = 2 * kLine;
constexpr std::size_t kSlots = 3;  // of each value that a reader may copy while it is replaced
static_assert(sizeof(A3cHeader) <= kLine && sizeof(A3cBoard) <= kLine);
static_assert(std::is_trivially_copyable_v<ActorTotals> &&
              std::is_trivially_copyable_v<RewardMoments>);

constexpr std::size_t rounded(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Within an actor's line.
constexpr std::size_t kSignOffset = sizeof(sync::SpscIndices);
constexpr std::size_t kUnderWayOffset = kSignOffset + sizeof(Word64);
constexpr std::size_t kTotalsOffset = kSignOffset + kLine;
constexpr std::size_t kTotalsWords =
    sync::VersionedSlots::words_needed(sizeof(ActorTotals), kSlots);
constexpr std::size_t kRewardsOffset = rounded(kTotalsOffset + kTotalsWords * sizeof(Word64));
constexpr std::size_t kRewardsWords =
    sync::VersionedSlots::words_needed(sizeof(RewardMoments), kSlots);
constexpr std::size_t kEntriesOffset = rounded(kRewardsOffset + kRewardsWords * sizeof(Word64));
constexpr std::size_t kLineBytes =
    rounded(kEntriesOffset + ActorLine::kEpisodes * sizeof(ActorLine::Entry));

std::size_t floats_offset(const A3cArena::Shape& shape) {
  return kLinesOffset + static_cast<std::size_t>(shape.actors) * kLineBytes;
}

std::size_t arena_bytes(const A3cArena::Shape& shape) {
  return floats_offset(shape) + (1 + shape.averages) * shape.floats * sizeof(float);
}

}  // namespace

// The board

bool A3cBoard::begin(std::int64_t rollout, std::int64_t total) noexcept {
  std::uint64_t now = begun.load(std::memory_order_relaxed);
  while (static_cast<std::int64_t>(now) < total) {
    const std::uint64_t next = now + static_cast<std::uint64_t>(rollout);
    if (begun.compare_exchange_weak(now, next, std::memory_order_relaxed)) return true;
  }
  return false;
}

A3cBoard::Made A3cBoard::finish(std::int64_t rollout) noexcept {
  const auto own = static_cast<std::uint64_t>(rollout);
  const std::uint64_t made = 1 + updates.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t stepped = own + steps.fetch_add(own, std::memory_order_release);
  return {.steps = static_cast<std::int64_t>(stepped), .updates = made};
}

void A3cBoard::give_back(std::int64_t rollout) noexcept {
  begun.fetch_sub(static_cast<std::uint64_t>(rollout), std::memory_order_relaxed);
  orders.change_and_wake_all();
}

ActorTotals& ActorTotals::operator+=(const ActorTotals& more) noexcept {
  updates += more.updates;
  explained += more.explained;
  policy_loss += more.policy_loss;
  value_loss += more.value_loss;
  entropy += more.entropy;
  loss += more.loss;
  grad_norm += more.grad_norm;
  explained_variance += more.explained_variance;
  lag += more.lag;
  collect_seconds += more.collect_seconds;
  update_seconds += more.update_seconds;
  if (more.updates > 0) learning_rate = more.learning_rate;
  return *this;
}

ActorTotals& ActorTotals::operator-=(const ActorTotals& less) noexcept {
  updates -= less.updates;
  explained -= less.explained;
  policy_loss -= less.policy_loss;
  value_loss -= less.value_loss;
  entropy -= less.entropy;
  loss -= less.loss;
  grad_norm -= less.grad_norm;
  explained_variance -= less.explained_variance;
  lag -= less.lag;
  collect_seconds -= less.collect_seconds;
  update_seconds -= less.update_seconds;
  return *this;
}

// One actor's line

std::size_t ActorLine::bytes() noexcept { return kLineBytes; }

ActorLine::ActorLine(const shm::Arena& arena, std::size_t offset)
    : indices_(arena.at<sync::SpscIndices>(offset)),
      signs_(arena.at<Word64>(offset + kSignOffset)),
      under_way_(arena.at<Word64>(offset + kUnderWayOffset)),
      totals_(arena.at<Word64>(offset + kTotalsOffset, kTotalsWords), sizeof(ActorTotals), kSlots),
      rewards_(arena.at<Word64>(offset + kRewardsOffset, kRewardsWords), sizeof(RewardMoments),
               kSlots),
      entries_(arena.at<Entry>(offset + kEntriesOffset, kEpisodes)) {}

ActorTotals ActorLine::totals() const {
  ActorTotals totals;
  static_cast<void>(totals_.read(reinterpret_cast<std::byte*>(&totals)));
  return totals;
}

void ActorLine::set_totals(const ActorTotals& totals) {
  totals_.write(reinterpret_cast<const std::byte*>(&totals));
}

void ActorLine::get_rewards(collect::RunningMoments& into) const {
  RewardMoments rewards;
  if (rewards_.read(reinterpret_cast<std::byte*>(&rewards)) == 0) return;
  into.restore({&rewards.mean, 1}, {&rewards.var, 1}, rewards.count);
}

void ActorLine::set_rewards(const collect::RunningMoments& rewards) {
  const RewardMoments values{rewards.mean()[0], rewards.var()[0], rewards.count()};
  rewards_.write(reinterpret_cast<const std::byte*>(&values));
}

std::size_t ActorLine::put(std::span<const collect::Episode> episodes) noexcept {
  const auto count = static_cast<std::uint32_t>(
      std::min<std::size_t>(episodes.size(), indices_->writable(kEpisodes)));
  for (std::uint32_t i = 0; i < count; ++i) {
    entries_[(indices_->write_index() + i) % kEpisodes] = {episodes[i].episode_return,
                                                           episodes[i].length, episodes[i].env};
  }
  indices_->publish(count);
  return count;
}

void ActorLine::take(std::vector<collect::Episode>& into) {
  const auto count = std::min<std::uint32_t>(indices_->readable(), kEpisodes);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Entry& entry = entries_[(indices_->read_index() + i) % kEpisodes];
    into.push_back({static_cast<int>(entry.env), entry.episode_return, entry.length});
  }
  indices_->consume(count);
}

// The arena

A3cArena::A3cArena(shm::Arena arena, const Shape& shape)
    : arena_(std::move(arena)), shape_(shape), board_(arena_.at<A3cBoard>(kBoardOffset)) {}

A3cArena A3cArena::create(const Shape& shape) {
  shm::Arena arena = shm::Arena::create("shoal a3c", arena_bytes(shape));
  A3cHeader header{.magic = {},
                   .version = kA3cArenaVersion,
                   .actors = static_cast<std::uint32_t>(shape.actors),
                   .floats = shape.floats,
                   .averages = static_cast<std::uint32_t>(shape.averages),
                   .unused = 0};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  *arena.at<A3cHeader>(0) = header;
  return A3cArena(std::move(arena), shape);
}

A3cArena A3cArena::attach(os::Fd fd, std::size_t floats, std::size_t averages) {
  shm::Arena arena = shm::Arena::attach(std::move(fd));
  const auto header = shm::header_of<A3cHeader>(arena, kMagic, kA3cArenaVersion, "A3C's arena");
  const Shape shape{static_cast<int>(header.actors), header.floats, header.averages};
  if (header.floats != floats || header.averages != averages || header.actors < 1 ||
      header.actors > arena.size() || arena_bytes(shape) > arena.size())
    throw Error(
        fmt::format("attach A3C's arena: it has {} parameters with {} averages, for {} actors, in "
                    "{} bytes; this actor's network has {} with {}",
                    header.floats, header.averages, header.actors, arena.size(), floats, averages));
  return A3cArena(std::move(arena), shape);
}

ActorLine A3cArena::line(int actor) const {
  SHOAL_CHECK(actor >= 0 && actor < shape_.actors, "an actor that A3C's arena has no line for");
  return {arena_, kLinesOffset + static_cast<std::size_t>(actor) * kLineBytes};
}

SharedParameters A3cArena::parameters() const {
  const std::size_t words = shape_.floats / sync::RelaxedFloats::kInWord;
  const auto part = [&](std::size_t which) {
    const std::size_t offset = floats_offset(shape_) + which * words * sizeof(Word64);
    return sync::RelaxedFloats({arena_.at<Word64>(offset, words), words});
  };
  SharedParameters shared{.parameters = part(0), .averages = {}, .steps = &board_->optimizer_steps};
  for (std::size_t k = 0; k < shape_.averages; ++k) shared.averages[k] = part(1 + k);
  return shared;
}

}  // namespace shoal::learn
