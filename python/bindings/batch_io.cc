#include "batch_io.h"

#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "numpy_api.h"
#include "shoal/os/error.h"
#include "shoal/vector/serial_vector_env.h"

namespace nb = nanobind;

namespace shoal::python {
namespace {

bool any(std::span<const std::uint8_t> flags) {
  return !flags.empty() && std::memchr(flags.data(), 1, flags.size()) != nullptr;
}

nb::object vector_of(shm::DType dtype, const void* data, std::size_t count) {
  nb::object array = new_array({dtype, {static_cast<std::int64_t>(count)}});
  std::memcpy(array_data(array), data, count * shm::itemsize(dtype));
  return array;
}

}  // namespace

PyStepper* local_stepper(vector::VectorEnv& envs) {
  auto* serial = dynamic_cast<vector::SerialVectorEnv*>(&envs);
  if (serial == nullptr) return nullptr;
  try {
    return dynamic_cast<PyStepper*>(&serial->stepper(0));
  } catch (const InvalidArgument&) {  // closed: it has none
    return nullptr;
  }
}

BatchIo::BatchIo(std::shared_ptr<vector::VectorEnv> envs, nb::handle observation_space,
                 nb::handle action_space, bool copy)
    : envs_(std::move(envs)),
      is_local_(local_stepper(*envs_) != nullptr),
      observations_(observation_space),
      actions_(action_space),
      copy_(copy) {}

void BatchIo::reset_async(nb::handle seeds, nb::handle mask) {
  std::vector<std::optional<std::uint64_t>> values;
  if (!seeds.is_none()) {
    for (nb::handle seed : seeds) {
      values.emplace_back();
      if (!seed.is_none()) values.back() = nb::cast<std::uint64_t>(seed);
    }
  }
  std::span<const std::uint8_t> selected;
  if (!mask.is_none()) {
    selected = {static_cast<const std::uint8_t*>(array_data(mask)),
                static_cast<std::size_t>(envs_->num_envs())};
  }
  const nb::gil_scoped_release unlocked;
  envs_->reset_async(values, selected);
}

void BatchIo::step_async(nb::handle actions) {
  try {
    actions_.store_batch(actions.ptr(), envs_->actions());
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("step(): actions that do not fit: {}", error.what()));
  }
  const nb::gil_scoped_release unlocked;
  envs_->step_async();
}

nb::object BatchIo::reset_wait(std::optional<double> timeout) {
  last_ = wait(timeout);
  // A row that this reset left alone still has the final observation of the step before.
  return nb::make_tuple(observations(), extra() & ~static_cast<int>(kFinal));
}

nb::object BatchIo::step_wait(std::optional<double> timeout) {
  last_ = wait(timeout);
  return nb::make_tuple(observations(),
                        vector_of(shm::DType::kF64, last_.reward.data(), last_.reward.size()),
                        flags(last_.terminated), flags(last_.truncated), extra());
}

vector::Batch BatchIo::wait(std::optional<double> timeout) {
  std::optional<std::chrono::nanoseconds> limit;
  if (timeout) {
    limit = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(*timeout));
  }
  const nb::gil_scoped_release unlocked;
  return envs_->wait(limit);
}

int BatchIo::extra() const {
  int extra = kNothing;
  if (any(last_.has_final)) extra |= kFinal;
  if (any(last_.fault)) extra |= kFault;
  if (const PyStepper* stepper = local()) return stepper->has_infos() ? extra | kInfos : extra;
  for (int worker = 0; worker < envs_->num_workers(); ++worker) {
    if (!envs_->info(worker).empty()) return extra | kInfos;
  }
  return extra;
}

nb::object BatchIo::infos() const {
  if (const PyStepper* stepper = local()) return stepper->infos();
  nb::list messages;
  for (int worker = 0; worker < envs_->num_workers(); ++worker) {
    const auto info = envs_->info(worker);
    if (!info.empty()) messages.append(nb::bytes(info.data(), info.size()));
  }
  return messages;
}

nb::object BatchIo::final_observation(int row) const {
  return observations_.load(last_.final_obs, row);
}

nb::object BatchIo::observations() {
  if (copy_) return observations_.load_batch(last_.obs);
  if (!live_views_) live_views_ = observations_.view_batch(last_.obs, nb::cast(envs_));
  return live_views_;
}

int BatchIo::traverse(visitproc visit, void* arg) const {
  const nb::handle envs = nb::find(envs_);
  Py_VISIT(envs.ptr());
  Py_VISIT(live_views_.ptr());
  return 0;
}

nb::object BatchIo::flags(std::span<const std::uint8_t> values) {
  return vector_of(shm::DType::kBool, values.data(), values.size());
}

}  // namespace shoal::python
