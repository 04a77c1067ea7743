// Snapshots of Python environments, and what their engine does around them.
#include <nanobind/stl/pair.h>

#include <cstring>
#include <utility>

#include "bytes.h"
#include "shoal/env/frame_stack.h"
#include "shoal/os/error.h"
#include "shoal/vector/step/env_state.h"
#include "vector/py_stepper.h"

namespace nb = nanobind;

namespace shoal::python {

void PyStepper::take_episode_options() {
  const nb::object given = face_.attr("episode_options");
  const auto take = [&given]<class T>(const char* name, T& into) {
    const nb::object value = given.attr("get")(name);
    if (!value.is_none()) into = nb::cast<T>(value);
  };
  take("statistics", options_.statistics);
  take("max_episode_steps", options_.max_episode_steps);
  take("frame_stack", options_.frame_stack);
  std::pair<double, double> clip;
  take("reward_clip", clip);
  if (!given.attr("get")("reward_clip").is_none()) options_.reward_clip = clip;
  const int frames = options_.frame_stack;
  if (frames == 0) return;
  if (observations_.objects() != 0) {
    throw InvalidArgument("frame_stack needs observations that are arrays of fixed size");
  }
  frames_ = vector::FrameBuffer(hello_.observation_space, frames, count());
  hello_.observation_space = env::stacked(hello_.observation_space, frames);
}

void PyStepper::store_frame(int row, PyObject* observation, const char* method) {
  const int i = row - lo_;
  frames_.shift(i);
  observations_.store(observation, frames_.views(), frames_.newest(i));
  if (std::strcmp(method, "reset") == 0) frames_.fill(i);
  frames_.copy_to(rows_.obs, i, row);
}

// The environment's own part: its steps in this episode, its last seed, what the face made of it.
std::vector<std::byte> PyStepper::save(int row) {
  const nb::gil_scoped_acquire gil;
  const int i = row - lo_;
  const Env& env = envs_[static_cast<std::size_t>(i)];
  enter(row, "snapshot");
  const auto pickled = nb::cast<nb::bytes>(face_.attr("save")(i));
  process::ByteWriter own;
  own.number(static_cast<std::int32_t>(env.steps));
  own.number(static_cast<std::uint8_t>(env.last_seed.has_value()));
  own.number(env.last_seed.value_or(0));
  own.bytes(view(pickled));
  leave();
  const vector::EnvState state{rows_, lo_, autoreset_, episodes_};
  if (!frames_.active()) return state.save(i, own.take());
  const auto frames = frames_.save(i);
  return state.save(i, own.take(), &frames);
}

void PyStepper::load(int row, std::span<const std::byte> bytes) {
  const nb::gil_scoped_acquire gil;
  const int i = row - lo_;
  Env& env = envs_[static_cast<std::size_t>(i)];
  const vector::EnvState state{rows_, lo_, autoreset_, episodes_};
  std::vector<std::vector<std::byte>> obs;
  const auto load_own = [&](std::span<const std::byte> own) {
    process::ByteReader in(own);
    Env next{.env = {}, .step = {}, .reset = {}, .last_seed = {}};
    next.steps = in.number<std::int32_t>();
    const bool seeded = in.number<std::uint8_t>() != 0;
    const auto seed = in.number<std::uint64_t>();
    if (seeded) next.last_seed = seed;
    const std::vector<std::byte> pickled = in.bytes();
    enter(row, "load");
    next.env = face_.attr("load")(i, to_bytes(pickled));
    bind_methods(next);
    env = std::move(next);
    leave();
  };
  state.load(i, bytes, load_own, &obs);
  if (frames_.active()) frames_.load(i, obs);
  // With several sets of observations the current one may be lent: it is its holder's then, and row
  // `row` of the next result is the first to show where the environment is.
  if (rows_.obs_sets > 1) return;
  for (std::size_t leaf = 0; leaf < obs.size(); ++leaf) {
    std::memcpy(rows_.obs[leaf].row_data(row), obs[leaf].data(), obs[leaf].size());
  }
}

}  // namespace shoal::python
