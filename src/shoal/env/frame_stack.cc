#include "shoal/env/frame_stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::env {
namespace {

/// n times in a row, where there is one number for each element.
template <class T>
std::vector<T> repeated(const std::vector<T>& values, std::int64_t elements, int n) {
  if (values.size() == 1 && elements != 1) return values;
  std::vector<T> all;
  for (int i = 0; i < n; ++i) all.insert(all.end(), values.begin(), values.end());
  return all;
}

std::vector<std::int64_t> with_axis(int n, std::vector<std::int64_t> shape) {
  shape.insert(shape.begin(), n);
  return shape;
}

Space stack(const Box& box, int n) {
  return Box{{box.spec.dtype, with_axis(n, box.spec.shape)},
             repeated(box.low, box.spec.numel(), n),
             repeated(box.high, box.spec.numel(), n)};
}

Space stack(const Discrete& space, int n) {
  const auto count = static_cast<std::size_t>(n);
  return MultiDiscrete{
      std::vector(count, space.n), std::vector(count, space.start), {n}, space.dtype};
}

Space stack(const MultiDiscrete& space, int n) {
  std::vector<double> low, high;
  for (std::size_t i = 0; i < space.nvec.size(); ++i) {
    low.push_back(static_cast<double>(space.start[i]));
    high.push_back(static_cast<double>(space.start[i] + space.nvec[i] - 1));
  }
  const auto elements = static_cast<std::int64_t>(low.size());
  return Box{
      {space.dtype, with_axis(n, space.shape)},
      elements == 1 ? std::vector(static_cast<std::size_t>(n), low[0]) : repeated(low, elements, n),
      elements == 1 ? std::vector(static_cast<std::size_t>(n), high[0])
                    : repeated(high, elements, n)};
}

Space stack(const MultiBinary& space, int n) {
  return Box{{shm::DType::kI8, with_axis(n, space.shape)}, {0}, {1}};
}

Space stack(const Opaque& space, int) {
  throw InvalidArgument(
      fmt::format("frame_stack needs observations that are arrays of fixed size, {} has none",
                  Space(space).repr()));
}

Space stack(const Dict& space, int n) {
  Dict all;
  for (const auto& [name, child] : space.spaces) all.spaces.emplace_back(name, stacked(child, n));
  return all;
}

Space stack(const Tuple& space, int n) {
  Tuple all;
  for (const Space& child : space.spaces) all.spaces.push_back(stacked(child, n));
  return all;
}

class FrameStack final : public BatchEnv {
 public:
  FrameStack(std::unique_ptr<BatchEnv> batch, int n)
      : batch_(std::move(batch)),
        n_(static_cast<std::size_t>(n)),
        observation_space_(stacked(batch_->observation_space(), n)) {
    for (const Leaf& leaf : leaves(batch_->observation_space())) {
      const std::size_t bytes = leaf.spec.bytes() * static_cast<std::size_t>(batch_->count());
      newest_.emplace_back(bytes);
      views_.push_back({newest_.back().data(), batch_->count(), leaf.spec});
      stacks_.emplace_back(bytes * n_);
    }
  }

  const Space& observation_space() const noexcept override { return observation_space_; }
  const Space& action_space() const noexcept override { return batch_->action_space(); }
  int count() const noexcept override { return batch_->count(); }

  void reset(int i, std::optional<std::uint64_t> seed) override { reset_with(i, seed, {}); }
  void reset_with(int i, std::optional<std::uint64_t> seed, const ResetOptions& options) override {
    batch_->reset_with(i, seed, options);
    for (std::size_t leaf = 0; leaf < views_.size(); ++leaf) {
      for (std::size_t frame = 0; frame < n_; ++frame) put(leaf, i, frame);
      show(leaf, i);
    }
  }
  void check_reset_options(const ResetOptions& options) const override {
    batch_->check_reset_options(options);
  }

  void step_range(int lo, int hi) override {
    batch_->step_range(lo, hi);
    for (std::size_t leaf = 0; leaf < views_.size(); ++leaf) {
      const std::size_t bytes = views_[leaf].row_bytes();
      for (int i = lo; i < hi; ++i) {
        std::byte* const stack = stack_of(leaf, i);
        std::memmove(stack, stack + bytes, (n_ - 1) * bytes);
        put(leaf, i, n_ - 1);
        show(leaf, i);
      }
    }
  }

  bool can_renew() const noexcept override { return batch_->can_renew(); }
  void renew(int i) override { batch_->renew(i); }
  int elapsed(int i) const noexcept override { return batch_->elapsed(i); }

  std::vector<double> state(int i) const override { return batch_->state(i); }
  void set_state(int i, std::span<const double> state) override { batch_->set_state(i, state); }
  /// The frames, then what the environment saves.
  std::vector<std::byte> save(int i) const override {
    std::vector<std::byte> all;
    for (std::size_t leaf = 0; leaf < views_.size(); ++leaf) {
      const std::byte* const stack = stack_of(leaf, i);
      all.insert(all.end(), stack, stack + n_ * views_[leaf].row_bytes());
    }
    const auto own = batch_->save(i);
    all.insert(all.end(), own.begin(), own.end());
    return all;
  }
  void load(int i, std::span<const std::byte> state) override {
    std::size_t frames = 0;
    for (const shm::TensorView& view : views_) frames += n_ * view.row_bytes();
    if (state.size() < frames)
      throw InvalidArgument(
          "load: these bytes are not the state of an environment with frame_stack");
    batch_->load(i, state.subspan(frames));
    for (std::size_t leaf = 0; leaf < views_.size(); ++leaf) {
      const std::size_t bytes = n_ * views_[leaf].row_bytes();
      std::memcpy(stack_of(leaf, i), state.data(), bytes);
      state = state.subspan(bytes);
    }
  }

 protected:
  void attached() override {
    BatchRows inner = rows();
    inner.obs = views_;
    batch_->attach(std::move(inner));
  }

 private:
  std::byte* stack_of(std::size_t leaf, int i) noexcept {
    return stacks_[leaf].data() + static_cast<std::size_t>(i) * n_ * views_[leaf].row_bytes();
  }
  const std::byte* stack_of(std::size_t leaf, int i) const noexcept {
    return const_cast<FrameStack*>(this)->stack_of(leaf, i);
  }
  /// The newest observation of environment i becomes frame `frame` of its stack.
  void put(std::size_t leaf, int i, std::size_t frame) noexcept {
    const std::size_t bytes = views_[leaf].row_bytes();
    std::memcpy(stack_of(leaf, i) + frame * bytes, views_[leaf].row_data(i), bytes);
  }
  /// Into the row, which its reader may write to.
  void show(std::size_t leaf, int i) const noexcept {
    const std::size_t bytes = n_ * views_[leaf].row_bytes();
    std::memcpy(rows().obs[leaf].row_data(i), stack_of(leaf, i), bytes);
  }

  std::unique_ptr<BatchEnv> batch_;
  std::size_t n_;
  Space observation_space_;
  std::vector<std::vector<std::byte>> newest_;  // observations of all environments, by leaf
  std::vector<shm::TensorView> views_;          // of them
  std::vector<std::vector<std::byte>> stacks_;  // n frames of each environment, by leaf
};

}  // namespace

Space stacked(const Space& space, int n) {
  return std::visit([n](const auto& kind) { return stack(kind, n); }, space.kind());
}

std::unique_ptr<BatchEnv> stack_frames(std::unique_ptr<BatchEnv> batch, int n) {
  return std::make_unique<FrameStack>(std::move(batch), n);
}

}  // namespace shoal::env
