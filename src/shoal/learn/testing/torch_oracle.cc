#include "shoal/learn/testing/torch_oracle.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

namespace shoal::learn {
namespace {

at::Tensor tensor(std::span<const float> values, at::IntArrayRef shape) {
  return at::from_blob(const_cast<float*>(values.data()), shape, at::kFloat).to(at::kDouble);
}

std::int64_t size(std::span<const float> values) {
  return static_cast<std::int64_t>(values.size());
}

at::Tensor tensor(std::span<const float> values) { return tensor(values, {size(values)}); }

std::vector<float> vector(const at::Tensor& t) {
  const at::Tensor flat = t.detach().to(at::kFloat).contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

struct Distribution {
  at::Tensor logp;
  at::Tensor entropy;
};

Distribution gaussian(const shm::TensorView& taken, const at::Tensor& mean,
                      const at::Tensor& log_std) {
  const auto* actions = reinterpret_cast<const float*>(taken.data);
  const at::Tensor a = tensor({actions, static_cast<std::size_t>(mean.numel())}, mean.sizes());
  const double log_2_pi = std::log(2 * M_PI);
  const at::Tensor each = -(a - mean).pow(2) / (2 * (2 * log_std).exp()) - log_std - 0.5 * log_2_pi;
  return {each.sum(1), (log_std + 0.5 + 0.5 * log_2_pi).expand_as(mean).sum(1)};
}

Distribution categorical(const shm::TensorView& taken, const at::Tensor& head,
                         const std::vector<std::int64_t>& categories) {
  const auto components = static_cast<std::int64_t>(categories.size());
  const at::Tensor actions =
      at::from_blob(taken.data, {taken.rows, components}, at::kInt).to(at::kLong);
  Distribution sum;
  std::int64_t from = 0;
  for (std::int64_t c = 0; c < components; ++c) {
    const at::Tensor log_probs =
        at::log_softmax(head.narrow(1, from, categories[static_cast<std::size_t>(c)]), 1);
    const at::Tensor logp = log_probs.gather(1, actions.narrow(1, c, 1)).squeeze(1);
    const at::Tensor entropy = -(log_probs.exp() * log_probs).sum(1);
    sum.logp = c == 0 ? logp : sum.logp + logp;
    sum.entropy = c == 0 ? entropy : sum.entropy + entropy;
    from += categories[static_cast<std::size_t>(c)];
  }
  return sum;
}

// What a network says of rows, as leaves of a graph, and what follows for their actions.
struct Outputs {
  Outputs(const LossRows& rows, const std::vector<std::int64_t>& categories)
      : head(tensor(rows.head, {rows.actions.rows, size(rows.head) / rows.actions.rows})),
        value(tensor(rows.value)),
        log_std(tensor(rows.log_std)) {
    for (auto* t : {&head, &value, &log_std}) t->set_requires_grad(true);
    distribution = categories.empty() ? gaussian(rows.actions, head, log_std)
                                      : categorical(rows.actions, head, categories);
  }

  at::Tensor head, value, log_std;
  Distribution distribution;
};

LossByTorch differentiate(const Outputs& of, const at::Tensor& policy, const at::Tensor& value,
                          const LossCoefficients& coefficients) {
  const at::Tensor entropy = of.distribution.entropy.mean();
  const at::Tensor total =
      policy + coefficients.value_coef * value - coefficients.entropy_coef * entropy;
  const auto gradients = torch::autograd::grad({total}, {of.head, of.value, of.log_std}, {},
                                               std::nullopt, false, true);
  LossByTorch out{.losses = {.policy = policy.item<double>(),
                             .value = value.item<double>(),
                             .entropy = entropy.item<double>(),
                             .total = total.item<double>()},
                  .d_head = vector(gradients[0]),
                  .d_value = vector(gradients[1]),
                  .d_log_std = {}};
  if (gradients[2].defined()) out.d_log_std = vector(gradients[2]);
  return out;
}

at::Tensor value_loss(const at::Tensor& value, const LossRows& rows, const PpoClipping& clipping) {
  const at::Tensor returns = tensor(rows.returns);
  const at::Tensor plain = (value - returns).pow(2);
  if (!clipping.clip_range_value) return plain.mean();
  const double range = *clipping.clip_range_value;
  const at::Tensor old_value = tensor(rows.old_value);
  const at::Tensor clipped =
      (old_value + (value - old_value).clamp(-range, range) - returns).pow(2);
  return clipping.pessimistic_value_clip ? at::maximum(plain, clipped).mean() : clipped.mean();
}

}  // namespace

LossByTorch a2c_loss_by_torch(const LossRows& rows, const std::vector<std::int64_t>& categories,
                              const LossCoefficients& coefficients) {
  const Outputs of(rows, categories);
  const at::Tensor policy = -(tensor(rows.advantage) * of.distribution.logp).mean();
  return differentiate(of, policy, at::mse_loss(of.value, tensor(rows.returns)), coefficients);
}

PpoLossByTorch ppo_loss_by_torch(const LossRows& rows, const std::vector<std::int64_t>& categories,
                                 const PpoClipping& clipping,
                                 const LossCoefficients& coefficients) {
  const Outputs of(rows, categories);
  const at::Tensor log_ratio = of.distribution.logp - tensor(rows.old_logp);
  const at::Tensor ratio = log_ratio.exp();
  const at::Tensor advantage = tensor(rows.advantage);
  const double clip = clipping.clip_range;
  const at::Tensor policy =
      at::maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip)).mean();
  return {differentiate(of, policy, value_loss(of.value, rows, clipping), coefficients),
          ((ratio - 1) - log_ratio).mean().item<double>(),
          ((ratio - 1).abs() > clip).to(at::kDouble).mean().item<double>()};
}

void adam_by_torch(std::span<float> parameters, std::span<float> gradient, std::span<float> exp_avg,
                   std::span<float> exp_avg_sq, std::int64_t step, double learning_rate,
                   double beta1, double beta2, double eps) {
  auto borrow = [](std::span<float> values) {
    return at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kFloat);
  };
  std::vector<at::Tensor> p{borrow(parameters)}, g{borrow(gradient)}, m{borrow(exp_avg)},
      v{borrow(exp_avg_sq)};
  const std::vector<at::Tensor> steps{at::full({}, static_cast<double>(step), at::kFloat)};
  at::_fused_adam_(p, g, m, v, {}, steps, learning_rate, beta1, beta2, /*weight_decay=*/0.0, eps,
                   /*amsgrad=*/false,
                   /*maximize=*/false);
}

std::vector<float> normalized_by_torch(std::span<const float> advantage) {
  const at::Tensor a = tensor(advantage);
  return vector((a - a.mean()) / (a.std() + 1e-8));
}

double clip_factor_by_torch(std::span<const float> gradient, double max_norm) {
  return std::min(1.0, max_norm / (tensor(gradient).norm().item<double>() + 1e-6));
}

}  // namespace shoal::learn
