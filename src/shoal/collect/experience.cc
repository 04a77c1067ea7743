#include "shoal/collect/experience.h"

#include <fmt/format.h>

#include <utility>

#include "shoal/os/error.h"
#include "shoal/shm/layout.h"

namespace shoal::collect {

Experience Experience::allocate(const ExperienceSpec& spec, int steps) {
  return over(spec, steps, {});
}

Experience Experience::attach(const ExperienceSpec& spec, int steps, ipc::Block block) {
  return over(spec, steps, std::move(block));
}

Experience Experience::over(const ExperienceSpec& spec, int steps, ipc::Block block) {
  if (steps < 1) throw InvalidArgument(fmt::format("experience of {} steps", steps));
  Experience experience;
  experience.steps_ = steps;
  experience.envs_ = spec.envs;
  shm::LayoutBuilder layout;
  std::vector<std::pair<shm::TensorView*, std::size_t>> places;
  const auto add = [&](shm::TensorView& view, const shm::TensorSpec& row) {
    view.rows = steps;
    view.row.dtype = row.dtype;
    view.row.shape = {spec.envs};
    view.row.shape.insert(view.row.shape.end(), row.shape.begin(), row.shape.end());
    places.emplace_back(&view, layout.add_bytes(view.bytes()));
  };
  experience.obs_.resize(spec.obs.size());
  experience.next_obs_.resize(spec.next_obs ? spec.obs.size() : 0);
  for (std::size_t leaf = 0; leaf < spec.obs.size(); ++leaf) {
    add(experience.obs_[leaf], spec.obs[leaf]);
    if (spec.next_obs) add(experience.next_obs_[leaf], spec.obs[leaf]);
  }
  add(experience.action_, spec.action);
  for (auto* view : {&experience.terminated_, &experience.truncated_, &experience.valid_,
                     &experience.is_first_}) {
    add(*view, {shm::DType::kBool, {}});
  }
  add(experience.reward_, {shm::DType::kF32, {}});
  if (spec.log_prob) add(experience.log_prob_, {shm::DType::kF32, {}});
  if (spec.value) add(experience.value_, {shm::DType::kF32, {}});
  for (auto* view : {&experience.episode_id_, &experience.env_id_, &experience.policy_version_}) {
    add(*view, {shm::DType::kI64, {}});
  }
  if (!block) block = ipc::Block::allocate(layout.bytes());
  if (block.size() < layout.bytes()) {
    throw InvalidArgument(fmt::format(
        "attach experience of {} steps of {} environments: it takes {} bytes, the block has {}",
        steps, spec.envs, layout.bytes(), block.size()));
  }
  experience.block_ = std::move(block);
  for (const auto& [view, offset] : places) view->data = experience.block_.data() + offset;
  return experience;
}

shm::TensorView Experience::at(const shm::TensorView& view, int t, int first, int count) const {
  shm::TensorView step{view.row_data(t), count, {view.row.dtype, {}}};
  step.row.shape.assign(view.row.shape.begin() + 1, view.row.shape.end());
  step.data += static_cast<std::size_t>(first) * step.row_bytes();
  return step;
}

std::vector<const shm::TensorView*> Experience::views() const {
  std::vector<const shm::TensorView*> all;
  for (const auto* leaves : {&obs_, &next_obs_})
    for (const shm::TensorView& leaf : *leaves) all.push_back(&leaf);
  for (const auto* view : {&action_, &reward_, &terminated_, &truncated_, &valid_, &is_first_,
                           &log_prob_, &value_, &episode_id_, &env_id_, &policy_version_}) {
    if (view->data != nullptr) all.push_back(view);
  }
  return all;
}

}  // namespace shoal::collect
