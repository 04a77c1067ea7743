#include "shoal/learn/optimizer/shared_optimizer.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

// Floats: enough that a call is nothing beside them, few enough that two seldom meet in them.
constexpr std::size_t kBlock = 64;

}  // namespace

void SharedParameters::read(std::span<float> into_parameters, Optimizer& into) const {
  into.set_steps(static_cast<std::int64_t>(steps->load(std::memory_order_relaxed)));  // a count
  parameters.load(0, into_parameters);
  std::size_t k = 0;
  for (const auto& average : into.averages()) averages[k++].load(0, average.values);
}

void SharedParameters::write(std::span<const float> from_parameters, Optimizer& from) {
  parameters.store(0, from_parameters);
  std::size_t k = 0;
  for (const auto& average : from.averages()) averages[k++].store(0, average.values);
  steps->store(static_cast<std::uint64_t>(from.steps()), std::memory_order_relaxed);  // a count
}

SharedOptimizer::SharedOptimizer(std::unique_ptr<Optimizer> formula, const SharedParameters& shared)
    : formula_(std::move(formula)), count_(formula_->averages().size()), shared_(shared) {}

void SharedOptimizer::step(std::span<float> parameters, std::span<const float> gradient,
                           double gradient_scale, double learning_rate, ThreadTeam*) {
  SHOAL_CHECK(parameters.size() == shared_.parameters.size(),
              "a step of shared parameters of another size");
  // Relaxed: a number for the formula, which orders nothing.
  const auto number = 1 + shared_.steps->fetch_add(1, std::memory_order_relaxed);
  formula_->prepare(static_cast<std::int64_t>(number), gradient_scale, learning_rate);
  alignas(64) std::array<std::array<float, kBlock>, kMostAverages> block;
  std::array<float*, kMostAverages> places{};
  for (std::size_t k = 0; k < kMostAverages; ++k) places[k] = block[k].data();
  for (std::size_t first = 0; first < parameters.size(); first += kBlock) {
    const std::size_t size = std::min(kBlock, parameters.size() - first);
    const auto own = parameters.subspan(first, size);
    shared_.parameters.load(first, own);
    for (std::size_t k = 0; k < count_; ++k)
      shared_.averages[k].load(first, std::span(block[k]).first(size));
    formula_->apply(own.data(), gradient.data() + first, std::span(places).first(count_), size);
    shared_.parameters.store(first, own);
    for (std::size_t k = 0; k < count_; ++k)
      shared_.averages[k].store(first, std::span<const float>(block[k]).first(size));
  }
}

}  // namespace shoal::learn
