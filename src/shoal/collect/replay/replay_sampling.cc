// Drawing rows, and copying the windows that begin at them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "shoal/collect/replay/replay.h"
#include "shoal/collect/replay/replay_change.h"
#include "shoal/os/error.h"

namespace shoal::collect {
namespace {

constexpr std::uint32_t kMostAttempts = 10'000;  // at one sample

/// `bits` scaled to [0, n).
std::uint64_t below(std::uint64_t bits, std::uint64_t n) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

/// The k-th of n parts of the whole begins here.
std::uint64_t part(std::uint64_t whole, std::uint64_t k, std::uint64_t n) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(whole) * k / n);
}

shm::TensorView view_of(std::vector<std::byte>& bytes, std::int64_t rows,
                        const shm::TensorSpec& spec) {
  bytes.resize(static_cast<std::size_t>(rows) * spec.bytes());
  return {bytes.data(), rows, spec};
}

}  // namespace

void Replay::make_room(const ReplayRequest& request, ReplaySamples& out) const {
  const auto n = static_cast<std::size_t>(request.samples);
  const std::size_t leaves = spec_.obs.size();
  out.bytes.resize(2 * leaves + 1);
  out.obs.clear();
  out.next_obs.clear();
  for (std::size_t leaf = 0; leaf < leaves; ++leaf) {
    out.obs.push_back(view_of(out.bytes[2 * leaf], request.samples, spec_.obs[leaf]));
    out.next_obs.push_back(view_of(out.bytes[2 * leaf + 1], request.samples, spec_.obs[leaf]));
  }
  out.action = view_of(out.bytes[2 * leaves], request.samples, spec_.action);
  out.picks.resize(n);
  out.rewards.assign(n * static_cast<std::size_t>(request.n_step), 0.0F);
  out.steps.resize(n);
  out.terminated.resize(n);
  out.truncated.resize(n);
  out.weights.resize(n);
}

bool Replay::sample(const ReplayRequest& request, ReplaySamples& out) {
  if (request.samples < 1 || request.n_step < 1)
    throw InvalidArgument("sample a replay: samples and n_step have to be 1 or more");
  if (!request.random)
    throw InvalidArgument("sample a replay: the request has no `random`, which chooses the rows");
  if (request.prioritized && !spec_.prioritized)
    throw InvalidArgument("sample by priority from a replay that has none: make it prioritised");
  make_room(request, out);
  std::uint64_t all = 0;
  for (std::size_t c = 0; c < counts_.size(); ++c) {
    const sync::RingColumn rows = column(c);
    const std::uint64_t head = rows.head();
    counts_[c] = all += head - std::min(head, rows.oldest());
  }
  if (all == 0) return false;
  const std::uint64_t least = request.prioritized ? tree().least() : 0;
  for (std::uint32_t k = 0; k < static_cast<std::uint32_t>(request.samples); ++k) {
    std::uint64_t weight = 0;
    std::uint32_t attempt = 0;
    while (!draw(request, k, attempt, out.picks[k], weight) ||
           !copy_window(out.picks[k], request.n_step, k, out)) {
      if (++attempt == kMostAttempts) return false;
    }
    out.weights[k] = 1.0F;
    if (least == 0) continue;
    const double ratio = static_cast<double>(least) / static_cast<double>(weight);
    out.weights[k] = static_cast<float>(std::pow(std::min(ratio, 1.0), request.beta));
  }
  return true;
}

bool Replay::draw(const ReplayRequest& request, std::uint32_t sample, std::uint32_t attempt,
                  ReplayPick& pick, std::uint64_t& weight) const {
  const std::uint64_t bits = request.random(sample, attempt);
  if (request.prioritized) return draw_by_priority(request, sample, bits, pick, weight);
  const std::uint64_t index = below(bits, counts_.back());
  const auto found = std::ranges::upper_bound(counts_, index);
  const auto c = static_cast<std::size_t>(found - counts_.begin());
  const sync::RingColumn rows = column(c);
  // Those that were counted, or as many newer ones.
  const std::uint64_t within = index - (c == 0 ? 0 : counts_[c - 1]);
  pick = {static_cast<int>(c), rows.oldest() + within};
  return pick.row < rows.head();
}

bool Replay::draw_by_priority(const ReplayRequest& request, std::uint32_t sample,
                              std::uint64_t bits, ReplayPick& pick, std::uint64_t& weight) const {
  const sync::SumTree weights = tree();
  const std::uint64_t total = weights.total();
  const auto samples = static_cast<std::uint64_t>(request.samples);
  const std::uint64_t from = part(total, sample, samples);
  const std::uint64_t place =
      weights.find(from + below(bits, part(total, sample + std::uint64_t{1}, samples) - from));
  if (place >= static_cast<std::uint64_t>(spec_.columns) * shape_.rows) return false;
  const auto leaf = weights.leaf(place);
  const std::uint64_t c = place / shape_.rows;
  const std::uint64_t slot = place % shape_.rows;
  const std::uint64_t head = column(c).head();
  if (leaf.value == 0 || head == 0 || head - 1 < slot) return false;
  pick = {static_cast<int>(c), head - 1 - (head - 1 - slot) % shape_.rows};
  weight = leaf.value;
  return leaf.tag == lap_of(pick.row) % sync::SumTree::kTags;
}

bool Replay::copy_window(const ReplayPick& pick, int n_step, std::size_t sample,
                         ReplaySamples& out) {
  const sync::RingColumn rows = column(static_cast<std::uint64_t>(pick.column));
  const std::uint64_t head = rows.head();
  float* rewards = out.rewards.data() + sample * static_cast<std::size_t>(n_step);
  std::fill_n(rewards, n_step, 0.0F);
  std::int32_t steps = 0;
  Back back{};
  for (bool more = true; more && steps < n_step; ++steps) {
    const std::uint64_t row = pick.row + static_cast<std::uint64_t>(steps);
    if (row >= head) break;
    rows.copy_back(row, back_.data());
    const Back next = read_back();
    if (!next.valid) break;
    if (steps == 0)
      std::memcpy(out.action.row_data(static_cast<std::int64_t>(sample)), back_.data(),
                  spec_.action.bytes());
    back = next;
    rewards[steps] = back.reward;
    more = !back.terminated && !back.truncated;
  }
  if (steps == 0) return false;
  out.steps[sample] = steps;
  out.terminated[sample] = back.terminated ? 1 : 0;
  out.truncated[sample] = back.truncated ? 1 : 0;
  const auto spread = [&](std::uint64_t row, std::vector<shm::TensorView>& to) {
    rows.copy_front(row, front_.data());
    std::size_t at = 0;
    for (shm::TensorView& leaf : to) {
      std::memcpy(leaf.row_data(static_cast<std::int64_t>(sample)), front_.data() + at,
                  leaf.row_bytes());
      at += leaf.row_bytes();
    }
  };
  spread(pick.row, out.obs);
  spread(pick.row + static_cast<std::uint64_t>(steps), out.next_obs);
  return rows.is_whole(pick.row);
}

}  // namespace shoal::collect
