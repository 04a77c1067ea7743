// The network on LibTorch: any of its parts, with the gradient by autograd.
//
// Tensors are views of the flat parameter buffer; the optimiser writes it behind their back,
// between two graphs.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <vector>

#include "shoal/learn/network/actor_critic.h"

namespace shoal::learn {
namespace {

constexpr std::int64_t kImageRows =
    256;  // at once, when only values are wanted: bounds the memory of activations

class AutogradActorCritic final : public ActorCritic {
 public:
  AutogradActorCritic(const Network& network, const Parameters& parameters) : network_(network) {
    // A small network's operations are too short to share among threads; the setting is the whole
    // process's.
    if (network.images.empty()) at::set_num_threads(1);
    for (const auto& p : parameters.list()) {
      auto* data = const_cast<float*>(parameters.flat().data()) +
                   p.offset;  // at::from_blob has no const form
      tensors_.push_back(at::from_blob(data, p.shape, at::kFloat).set_requires_grad(true));
      offsets_.push_back(p.offset);
    }
  }

  void forward(std::span<const shm::TensorView> obs, std::span<float> head,
               std::span<float> value) override;
  void forward_train(std::span<const shm::TensorView> obs, std::span<const std::int32_t> rows,
                     std::span<float> head, std::span<float> value) override;
  void backward(std::span<const float> d_head, std::span<const float> d_value,
                std::span<float> gradient) override;
  void parameters_changed() override {}

 private:
  struct Outputs {
    at::Tensor head;   // [rows, head]
    at::Tensor value;  // [rows]
  };

  at::Tensor activate(const at::Tensor& x, Activation activation) const {
    return activation == Activation::kTanh ? at::tanh(x) : at::relu(x);
  }
  at::Tensor linear(const Layer& layer, const at::Tensor& x) const {
    return at::linear(x, tensors_[layer.weight], tensors_[layer.bias]);
  }
  at::Tensor mlp(const Mlp& layers, at::Tensor x) const;
  at::Tensor tower(const ImageTower& tower, const at::Tensor& image) const;
  Outputs run(const std::vector<at::Tensor>& obs) const;

  const Network& network_;
  std::vector<at::Tensor> tensors_;
  std::vector<std::size_t> offsets_;
  Outputs outputs_;
};

std::vector<at::Tensor> as_tensors(std::span<const shm::TensorView> obs) {
  std::vector<at::Tensor> tensors;
  for (const auto& view : obs) {
    std::vector<std::int64_t> shape{view.rows};
    shape.insert(shape.end(), view.row.shape.begin(), view.row.shape.end());
    tensors.push_back(at::from_blob(view.data, shape,
                                    view.row.dtype == shm::DType::kU8 ? at::kByte : at::kFloat));
  }
  return tensors;
}

void copy_out(const at::Tensor& tensor, std::span<float> out) {
  const at::Tensor flat = tensor.detach().contiguous();
  std::copy_n(flat.const_data_ptr<float>(), out.size(), out.begin());
}

at::Tensor AutogradActorCritic::mlp(const Mlp& layers, at::Tensor x) const {
  for (const auto& layer : layers) {
    x = linear(layer, x);
    if (layer.activated) x = activate(x, network_.activation);
  }
  return x;
}

at::Tensor AutogradActorCritic::tower(const ImageTower& tower, const at::Tensor& image) const {
  at::Tensor x = image.to(at::kFloat).mul(1.0 / 255.0);
  for (const auto& c : tower.convolutions) {
    x = at::relu(at::conv2d(x, tensors_[c.weight], tensors_[c.bias], c.stride));
  }
  return at::relu(linear(tower.linear, x.flatten(1)));
}

AutogradActorCritic::Outputs AutogradActorCritic::run(const std::vector<at::Tensor>& obs) const {
  std::vector<at::Tensor> parts;
  std::size_t leaf = 0;
  if (network_.dense > 0) parts.push_back(obs[leaf++]);
  for (const auto& image : network_.images) parts.push_back(tower(image, obs[leaf++]));
  const at::Tensor features = parts.size() == 1 ? parts[0] : at::cat(parts, 1);
  const at::Tensor x = mlp(network_.trunk, features);
  return {mlp(network_.actor, x), mlp(network_.critic, x).squeeze(1)};
}

void AutogradActorCritic::forward(std::span<const shm::TensorView> obs, std::span<float> head,
                                  std::span<float> value) {
  const c10::InferenceMode guard;
  outputs_ = {};
  const std::vector<at::Tensor> all = as_tensors(obs);
  const auto rows = static_cast<std::int64_t>(value.size());
  const std::int64_t at_once = network_.images.empty() ? rows : kImageRows;
  const auto width = static_cast<std::size_t>(network_.head);
  for (std::int64_t from = 0; from < rows; from += at_once) {
    const std::int64_t count = std::min(at_once, rows - from);
    std::vector<at::Tensor> part;
    for (const auto& leaf : all) part.push_back(leaf.narrow(0, from, count));
    const Outputs out = run(part);
    const auto first = static_cast<std::size_t>(from);
    const auto n = static_cast<std::size_t>(count);
    if (!head.empty()) copy_out(out.head, head.subspan(first * width, n * width));
    copy_out(out.value, value.subspan(first, n));
  }
}

void AutogradActorCritic::forward_train(std::span<const shm::TensorView> obs,
                                        std::span<const std::int32_t> rows, std::span<float> head,
                                        std::span<float> value) {
  const at::Tensor index = at::from_blob(const_cast<std::int32_t*>(rows.data()),
                                         {static_cast<std::int64_t>(rows.size())}, at::kInt);
  std::vector<at::Tensor> chosen;
  for (const auto& leaf : as_tensors(obs)) chosen.push_back(leaf.index_select(0, index));
  outputs_ = run(chosen);
  copy_out(outputs_.head, head);
  copy_out(outputs_.value, value);
}

void AutogradActorCritic::backward(std::span<const float> d_head, std::span<const float> d_value,
                                   std::span<float> gradient) {
  auto borrowed = [](std::span<const float> values, const at::Tensor& like) {
    return at::from_blob(const_cast<float*>(values.data()), like.sizes(), at::kFloat);
  };
  const auto gradients =
      torch::autograd::grad({outputs_.head, outputs_.value}, tensors_,
                            {borrowed(d_head, outputs_.head), borrowed(d_value, outputs_.value)},
                            /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto to = gradient.subspan(offsets_[i], static_cast<std::size_t>(tensors_[i].numel()));
    if (gradients[i].defined()) {
      copy_out(gradients[i], to);
    } else {
      std::ranges::fill(to, 0.0F);
    }
  }
  outputs_ = {};
}

}  // namespace

}  // namespace shoal::learn

// What autograd_library.cc looks up. The caller deletes it.
extern "C" shoal::learn::ActorCritic* shoal_make_autograd_actor_critic(
    const shoal::learn::Network& network, const shoal::learn::Parameters& parameters) {
  return new shoal::learn::AutogradActorCritic(network, parameters);
}
