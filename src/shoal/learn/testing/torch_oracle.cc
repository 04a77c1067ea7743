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

at::Tensor tensor(std::span<const float> values) {
  return tensor(values, {static_cast<std::int64_t>(values.size())});
}

std::vector<float> vector(const at::Tensor& t) {
  const at::Tensor flat = t.detach().to(at::kFloat).contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

struct Distribution {
  at::Tensor logp;
  at::Tensor entropy;
};

Distribution gaussian(const PpoMinibatch& batch, const at::Tensor& mean,
                      const at::Tensor& log_std) {
  const auto* actions = reinterpret_cast<const float*>(batch.actions.data);
  const at::Tensor a = tensor({actions, static_cast<std::size_t>(mean.numel())}, mean.sizes());
  const double log_2_pi = std::log(2 * M_PI);
  const at::Tensor each = -(a - mean).pow(2) / (2 * (2 * log_std).exp()) - log_std - 0.5 * log_2_pi;
  return {each.sum(1), (log_std + 0.5 + 0.5 * log_2_pi).expand_as(mean).sum(1)};
}

Distribution categorical(const PpoMinibatch& batch, const at::Tensor& head,
                         const std::vector<std::int64_t>& categories) {
  const auto components = static_cast<std::int64_t>(categories.size());
  const at::Tensor actions =
      at::from_blob(batch.actions.data, {batch.actions.rows, components}, at::kInt).to(at::kLong);
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

at::Tensor value_loss(const at::Tensor& value, const PpoMinibatch& batch,
                      const PpoCoefficients& coefficients) {
  const at::Tensor returns = tensor(batch.returns);
  const at::Tensor plain = (value - returns).pow(2);
  if (!coefficients.clip_range_value) return plain.mean();
  const double range = *coefficients.clip_range_value;
  const at::Tensor old_value = tensor(batch.old_value);
  const at::Tensor clipped =
      (old_value + (value - old_value).clamp(-range, range) - returns).pow(2);
  return coefficients.pessimistic_value_clip ? at::maximum(plain, clipped).mean() : clipped.mean();
}

}  // namespace

LossByTorch loss_by_torch(const PpoMinibatch& batch, const std::vector<std::int64_t>& categories,
                          const PpoCoefficients& coefficients) {
  const auto rows = static_cast<std::int64_t>(batch.value.size());
  at::Tensor head = tensor(batch.head, {rows, static_cast<std::int64_t>(batch.head.size()) / rows});
  at::Tensor value = tensor(batch.value);
  at::Tensor log_std = tensor(batch.log_std);
  for (auto* t : {&head, &value, &log_std}) t->set_requires_grad(true);
  const Distribution d =
      categories.empty() ? gaussian(batch, head, log_std) : categorical(batch, head, categories);

  const at::Tensor log_ratio = d.logp - tensor(batch.old_logp);
  const at::Tensor ratio = log_ratio.exp();
  const at::Tensor advantage = tensor(batch.advantage);
  const double clip = coefficients.clip_range;
  const at::Tensor policy =
      at::maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip)).mean();
  const at::Tensor values = value_loss(value, batch, coefficients);
  const at::Tensor entropy = d.entropy.mean();
  const at::Tensor total =
      policy + coefficients.value_coef * values - coefficients.entropy_coef * entropy;
  const auto gradients =
      torch::autograd::grad({total}, {head, value, log_std}, {}, std::nullopt, false, true);

  LossByTorch out;
  out.losses = {.policy = policy.item<double>(),
                .value = values.item<double>(),
                .entropy = entropy.item<double>(),
                .total = total.item<double>(),
                .approx_kl = ((ratio - 1) - log_ratio).mean().item<double>(),
                .clip_fraction = ((ratio - 1).abs() > clip).to(at::kDouble).mean().item<double>()};
  out.logp = vector(d.logp);
  out.entropy = vector(d.entropy);
  out.d_head = vector(gradients[0]);
  out.d_value = vector(gradients[1]);
  if (gradients[2].defined()) out.d_log_std = vector(gradients[2]);
  return out;
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
