#include "shoal/vector/step/rows.h"

#include <cstring>

#include "shoal/os/memory/mapping.h"
#include "shoal/shm/layout.h"

namespace shoal::vector {
namespace {

// Hands out the arrays one after the other. With a null base it only counts, so that bytes() and
// map() agree.
class RowLayout {
 public:
  explicit RowLayout(std::byte* base) : base_(base) {}

  std::byte* take(std::size_t bytes) {
    const std::size_t offset = layout_.add_bytes(bytes);
    return base_ == nullptr ? nullptr : base_ + offset;
  }

  template <class T>
  std::span<T> take_span(int n) {
    auto* at = reinterpret_cast<T*>(take(static_cast<std::size_t>(n) * sizeof(T)));
    return at == nullptr ? std::span<T>{} : std::span<T>{at, static_cast<std::size_t>(n)};
  }

  std::vector<shm::TensorView> take_leaves(const std::vector<env::Leaf>& leaves, int n) {
    std::vector<shm::TensorView> views;
    views.reserve(leaves.size());
    for (const env::Leaf& leaf : leaves) {
      shm::TensorView view{nullptr, n, leaf.spec};
      view.data = take(view.bytes());
      views.push_back(std::move(view));
    }
    return views;
  }

  std::size_t bytes() const { return layout_.bytes(os::page_size()); }

 private:
  std::byte* base_;
  shm::LayoutBuilder layout_;
};

Rows lay_out(RowLayout& layout, const env::Space& observation, const env::Space& action, int n,
             AutoresetMode mode, int obs_sets) {
  const std::vector<env::Leaf> obs_leaves = env::leaves(observation);
  Rows rows;
  rows.num_envs = n;
  rows.autoreset_mode = mode;
  // What the caller writes first, then the scalars that it reads, then the observations: a step
  // touches two runs.
  rows.actions = layout.take_leaves(env::leaves(action), n);
  rows.seed = layout.take_span<std::uint64_t>(n);
  rows.has_seed = layout.take_span<std::uint8_t>(n);
  rows.reset_mask = layout.take_span<std::uint8_t>(n);
  rows.order = layout.take_span<std::uint8_t>(n);
  rows.reward = layout.take_span<double>(n);
  rows.terminated = layout.take_span<std::uint8_t>(n);
  rows.truncated = layout.take_span<std::uint8_t>(n);
  rows.reset = layout.take_span<std::uint8_t>(n);
  rows.has_final = layout.take_span<std::uint8_t>(n);
  rows.fault = layout.take_span<std::uint8_t>(n);
  rows.episode_return = layout.take_span<double>(n);
  rows.episode_length = layout.take_span<std::int64_t>(n);
  rows.episode_seconds = layout.take_span<double>(n);
  rows.obs = layout.take_leaves(obs_leaves, n);
  rows.obs_sets = obs_sets;
  for (int set = 1; set < obs_sets; ++set) {
    const std::vector<shm::TensorView> leaves = layout.take_leaves(obs_leaves, n);
    // Every array begins on a line, so all sets are equally far apart.
    if (set == 1 && !leaves.empty() && leaves[0].data != nullptr) {
      rows.obs_stride = static_cast<std::size_t>(leaves[0].data - rows.obs[0].data);
    }
  }
  if (mode == AutoresetMode::kSameStep) rows.final_obs = layout.take_leaves(obs_leaves, n);
  return rows;
}

}  // namespace

std::size_t Rows::bytes(const env::Space& observation, const env::Space& action, int num_envs,
                        AutoresetMode mode, int obs_sets) {
  RowLayout layout(nullptr);
  lay_out(layout, observation, action, num_envs, mode, obs_sets);
  return layout.bytes();
}

Rows Rows::map(std::byte* base, const env::Space& observation, const env::Space& action,
               int num_envs, AutoresetMode mode, int obs_sets) {
  RowLayout layout(base);
  return lay_out(layout, observation, action, num_envs, mode, obs_sets);
}

void Rows::select_obs(int set) noexcept {
  const std::ptrdiff_t distance = (set - obs_set) * static_cast<std::ptrdiff_t>(obs_stride);
  for (shm::TensorView& leaf : obs) leaf.data += distance;
  last_obs_set = obs_set;
  obs_set = set;
}

void Rows::carry_over(int row) const noexcept {
  if (last_obs_set == obs_set) return;
  const std::ptrdiff_t back = (last_obs_set - obs_set) * static_cast<std::ptrdiff_t>(obs_stride);
  for (const shm::TensorView& leaf : obs) {
    std::memcpy(leaf.row_data(row), leaf.row_data(row) + back, leaf.row_bytes());
  }
}

std::size_t next_ended(const Rows& rows, std::size_t begin, std::size_t end) noexcept {
  const std::uint8_t* const terminated = rows.terminated.data();
  const std::uint8_t* const truncated = rows.truncated.data();
  std::size_t i = begin;
  for (; i + 8 <= end; i += 8) {
    std::uint64_t a, b;
    std::memcpy(&a, terminated + i, 8);
    std::memcpy(&b, truncated + i, 8);
    if ((a | b) != 0) break;
  }
  while (i < end && (terminated[i] | truncated[i]) == 0) ++i;
  return i;
}

}  // namespace shoal::vector
