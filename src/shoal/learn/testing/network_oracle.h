// For tests: a network's outputs and gradients by the definition of its layers, in double precision. Where the
// network multiplies bfloat16, factors are rounded on the way forward, with a slope of 1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/learn/network/actor_critic.h"
#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/testing/tape.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

class NetworkOracle {
 public:
  /// Borrows both.
  NetworkOracle(const Network& network, const Parameters& parameters)
      : network_(network), parameters_(parameters) {}

  struct Outputs {
    std::vector<float> head, value;
  };

  /// As ActorCritic::forward_train().
  Outputs forward(std::span<const shm::TensorView> obs, const Sequences& sequences) {
    return run(obs, sequences, {}, {}, {});
  }
  Outputs forward(std::span<const shm::TensorView> obs, std::span<const std::int32_t> rows) {
    return forward(obs, Sequences(rows));
  }

  /// As ActorCritic::backward() after it. What is no parameter's is NaN.
  std::vector<float> gradient(std::span<const shm::TensorView> obs,
                              std::span<const std::int32_t> rows, std::span<const float> d_head,
                              std::span<const float> d_value) {
    return gradient(obs, Sequences(rows), d_head, d_value);
  }
  std::vector<float> gradient(std::span<const shm::TensorView> obs, const Sequences& sequences,
                              std::span<const float> d_head, std::span<const float> d_value) {
    std::vector<double> sums(parameters_.flat().size());
    run(obs, sequences, d_head, d_value, sums);
    std::vector<float> gradient(sums.size(), NAN);
    for (const auto& p : parameters_.list()) {
      for (std::size_t k = p.offset; k < p.offset + p.numel(); ++k)
        gradient[k] = static_cast<float>(sums[k]);
    }
    return gradient;
  }

 private:
  using Number = Tape::Number;
  using Vector = std::vector<Number>;

  /// What an LSTM remembers: the outputs of its cells, and their states.
  struct Memory {
    Vector output, cell;
  };

  Outputs run(std::span<const shm::TensorView> obs, const Sequences& sequences,
              std::span<const float> d_head, std::span<const float> d_value,
              std::span<double> gradient);
  static std::vector<std::vector<std::size_t>> steps_of(const Sequences& sequences);
  std::vector<Memory> memories(Tape& tape, const float* remembered) const;
  static Number sigmoid(Tape& tape, Number x);
  void lstm(Tape& tape, const LstmLayer& layer, const Vector& x, Memory& memory) const;
  Number parameter(std::size_t index, std::int64_t element) const;
  /// The layer's weights as it multiplies them; x: `scale` times what it is given.
  Vector weights(Tape& tape, const Layer& layer, float scale) const;
  Number rounded(Tape& tape, Number x, float scale = 1.0F) const;
  Vector linear(Tape& tape, const Layer& layer, const Vector& x, bool of_image = false) const;
  Vector mlp(Tape& tape, const Mlp& layers, Vector x) const;
  Vector convolution(Tape& tape, const Layer& layer, float scale, double mean, const Vector& x,
                     std::int64_t& height, std::int64_t& width) const;
  Vector features(Tape& tape, std::span<const shm::TensorView> obs, std::int32_t row) const;

  const Network& network_;
  const Parameters& parameters_;
};

inline NetworkOracle::Number NetworkOracle::parameter(std::size_t index,
                                                      std::int64_t element) const {
  // The tape begins with the parameters, gaps included.
  return {static_cast<std::int32_t>(parameters_[index].offset) +
          static_cast<std::int32_t>(element)};
}

inline NetworkOracle::Number NetworkOracle::rounded(Tape& tape, Number x, float scale) const {
  const float y = scale * static_cast<float>(tape[x]);
  return tape.of(x, static_cast<double>(from_bfloat16(to_bfloat16(y))), static_cast<double>(scale));
}

inline NetworkOracle::Vector NetworkOracle::weights(Tape& tape, const Layer& layer,
                                                    float scale) const {
  Vector all;
  for (std::size_t k = 0; k < parameters_[layer.weight].numel(); ++k) {
    all.push_back(parameter(layer.weight, static_cast<std::int64_t>(k)));
    if (network_.features.precision == Precision::kBfloat16)
      all.back() = rounded(tape, all.back(), scale);
  }
  return all;
}

inline NetworkOracle::Vector NetworkOracle::linear(Tape& tape, const Layer& layer, const Vector& x,
                                                   bool of_image) const {
  Vector y;
  std::vector<std::pair<Number, Number>> factors(x.size());
  const Vector of_layer = of_image ? weights(tape, layer, 1.0F) : Vector();
  for (std::int64_t o = 0; o < layer.out; ++o) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::int64_t at = o * layer.in + static_cast<std::int64_t>(i);
      factors[i] = {of_image ? of_layer[static_cast<std::size_t>(at)] : parameter(layer.weight, at),
                    x[i]};
    }
    y.push_back(tape.dot(factors, parameter(layer.bias, o)));
  }
  return y;
}

inline NetworkOracle::Vector NetworkOracle::mlp(Tape& tape, const Mlp& layers, Vector x) const {
  for (const Layer& layer : layers) {
    x = linear(tape, layer, x);
    if (!layer.activated) continue;
    for (Number& y : x) y = network_.activation == Activation::kTanh ? tape.tanh(y) : tape.relu(y);
  }
  return x;
}

inline NetworkOracle::Vector NetworkOracle::convolution(Tape& tape, const Layer& layer, float scale,
                                                        double mean, const Vector& x,
                                                        std::int64_t& height,
                                                        std::int64_t& width) const {
  const std::int64_t k = layer.kernel;
  const std::int64_t out_height = (height - k) / layer.stride + 1;
  const std::int64_t out_width = (width - k) / layer.stride + 1;
  Vector y;
  const Vector of_layer = weights(tape, layer, scale);
  std::vector<std::pair<Number, Number>> factors;
  const Number taken = tape.add(-mean);
  for (std::int64_t o = 0; o < layer.out; ++o) {
    Number bias = parameter(layer.bias, o);
    if (mean != 0) {  // from what is not rounded
      factors.clear();
      for (std::int64_t i = 0; i < layer.in * k * k; ++i)
        factors.push_back({parameter(layer.weight, o * layer.in * k * k + i), taken});
      bias = tape.dot(factors, bias);
    }
    for (std::int64_t row = 0; row < out_height; ++row) {
      for (std::int64_t column = 0; column < out_width; ++column) {
        factors.clear();
        for (std::int64_t c = 0; c < layer.in; ++c) {
          for (std::int64_t i = 0; i < k; ++i) {
            for (std::int64_t j = 0; j < k; ++j) {
              const std::int64_t from =
                  (c * height + row * layer.stride + i) * width + column * layer.stride + j;
              const std::int64_t at = ((o * layer.in + c) * k + i) * k + j;
              factors.push_back(
                  {of_layer[static_cast<std::size_t>(at)], x[static_cast<std::size_t>(from)]});
            }
          }
        }
        y.push_back(tape.relu(tape.dot(factors, bias)));
      }
    }
  }
  height = out_height;
  width = out_width;
  return y;
}

inline NetworkOracle::Vector NetworkOracle::features(Tape& tape,
                                                     std::span<const shm::TensorView> obs,
                                                     std::int32_t row) const {
  Vector all;
  std::size_t leaf = 0;
  if (network_.features.dense > 0) {
    const auto* x = reinterpret_cast<const float*>(obs[leaf++].row_data(row));
    for (std::int64_t i = 0; i < network_.features.dense; ++i)
      all.push_back(tape.add(static_cast<double>(x[i])));
  }
  for (const ImageTower& tower : network_.features.images) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(obs[leaf++].row_data(row));
    auto [channels, height, width] = tower.shape;
    const bool rounds = network_.features.precision == Precision::kBfloat16;
    Vector x;
    for (std::int64_t i = 0; i < channels * height * width; ++i)
      x.push_back(tape.add(rounds ? bytes[i] : bytes[i] / 255.0 - tower.pixel_mean));
    float scale = 1.0F / 255.0F;  // of rounded weights, since bytes are not rounded
    double mean = rounds ? tower.pixel_mean : 0;
    for (const Layer& layer : tower.convolutions) {
      x = convolution(tape, layer, scale, mean, x, height, width);
      scale = 1.0F;
      mean = 0;
      if (!rounds) continue;
      for (Number& y : x) y = rounded(tape, y);
    }
    for (Number y : linear(tape, tower.linear, x, true)) all.push_back(tape.relu(y));
  }
  return all;
}

inline NetworkOracle::Number NetworkOracle::sigmoid(Tape& tape, Number x) {
  const double y = 1 / (1 + std::exp(-tape[x]));
  return tape.of(x, y, y * (1 - y));
}

inline void NetworkOracle::lstm(Tape& tape, const LstmLayer& layer, const Vector& x,
                                Memory& memory) const {
  const auto gate = [&](std::int64_t row) {
    std::vector<std::pair<Number, Number>> factors;
    for (std::int64_t i = 0; i < layer.in; ++i)
      factors.push_back(
          {parameter(layer.weight_ih, row * layer.in + i), x[static_cast<std::size_t>(i)]});
    for (std::int64_t i = 0; i < layer.size; ++i)
      factors.push_back({parameter(layer.weight_hh, row * layer.size + i),
                         memory.output[static_cast<std::size_t>(i)]});
    return tape.dot(factors,
                    tape.sum(parameter(layer.bias_ih, row), parameter(layer.bias_hh, row)));
  };
  Memory next;
  for (std::int64_t k = 0; k < layer.size; ++k) {
    const Number i = sigmoid(tape, gate(k));
    const Number f = sigmoid(tape, gate(layer.size + k));
    const Number g = tape.tanh(gate(2 * layer.size + k));
    const Number o = sigmoid(tape, gate(3 * layer.size + k));
    const Number cell =
        tape.sum(tape.product(f, memory.cell[static_cast<std::size_t>(k)]), tape.product(i, g));
    next.cell.push_back(cell);
    next.output.push_back(tape.product(o, tape.tanh(cell)));
  }
  memory = std::move(next);
}

inline std::vector<std::vector<std::size_t>> NetworkOracle::steps_of(const Sequences& sequences) {
  std::vector<std::vector<std::size_t>> steps;  // of each sequence, places in `rows`
  if (sequences.counts.empty()) {
    for (std::size_t r = 0; r < sequences.rows.size(); ++r) steps.push_back({r});
    return steps;
  }
  steps.resize(static_cast<std::size_t>(sequences.counts[0]));
  std::size_t at = 0;
  for (const std::int32_t count : sequences.counts) {
    for (std::int32_t s = 0; s < count; ++s) steps[static_cast<std::size_t>(s)].push_back(at++);
  }
  return steps;
}

inline std::vector<NetworkOracle::Memory> NetworkOracle::memories(Tape& tape,
                                                                  const float* remembered) const {
  std::vector<Memory> all;
  for (const LstmLayer& layer : network_.lstms) {
    Memory& memory = all.emplace_back();
    for (Vector* part : {&memory.output, &memory.cell}) {
      for (std::int64_t k = 0; k < layer.size; ++k)
        part->push_back(tape.add(static_cast<double>(*remembered++)));
    }
  }
  return all;
}

inline NetworkOracle::Outputs NetworkOracle::run(std::span<const shm::TensorView> obs,
                                                 const Sequences& sequences,
                                                 std::span<const float> d_head,
                                                 std::span<const float> d_value,
                                                 std::span<double> gradient) {
  const auto width = static_cast<std::size_t>(network_.head);
  Outputs out{std::vector<float>(sequences.rows.size() * width),
              std::vector<float>(sequences.rows.size())};
  const auto steps = steps_of(sequences);
  for (std::size_t s = 0; s < steps.size(); ++s) {  // a tape each: they are long
    Tape tape;
    for (const float p : parameters_.flat()) tape.add(static_cast<double>(p));
    auto remembered =
        memories(tape, sequences.memory.data() + s * sequences.memory.size() / steps.size());
    std::vector<std::pair<Number, double>> results;
    for (const std::size_t r : steps[s]) {
      const Vector x = mlp(tape, network_.trunk, features(tape, obs, sequences.rows[r]));
      for (std::size_t l = 0; l < remembered.size(); ++l)
        lstm(tape, network_.lstms[l], x, remembered[l]);
      const Vector head = mlp(tape, network_.actor, remembered.empty() ? x : remembered[0].output);
      const Number value =
          mlp(tape, network_.critic, remembered.empty() ? x : remembered.back().output)[0];
      for (std::size_t k = 0; k < width; ++k)
        out.head[r * width + k] = static_cast<float>(tape[head[k]]);
      out.value[r] = static_cast<float>(tape[value]);
      if (gradient.empty()) continue;
      results.push_back({value, static_cast<double>(d_value[r])});
      for (std::size_t k = 0; k < width; ++k)
        results.push_back({head[k], static_cast<double>(d_head[r * width + k])});
    }
    if (gradient.empty()) continue;
    const std::vector<double> by = tape.gradients(results);
    for (std::size_t k = 0; k < gradient.size(); ++k) gradient[k] += by[k];
  }
  return out;
}

}  // namespace shoal::learn
