// Hogwild (Recht et al., 2011; Mnih et al., 2016): an optimiser whose parameters and averages lie in
// memory that other processes step at the same time, without a lock.
//
// A step goes through the parameters in blocks: it loads a block and its averages, applies the
// formula, and stores them. So a block that two step within the same few nanoseconds has the step of
// one of them only, and an average likewise. What that loses is measured in
// docs/decisions/a3c.md; that it is rare, because gradients take much longer than steps, is what
// Hogwild rests on.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shoal/learn/optimizer/optimizer.h"
#include "shoal/sync/relaxed_floats.h"

namespace shoal::learn {

/// Where parameters and averages are; borrowed. All have as many floats.
struct SharedParameters {
  sync::RelaxedFloats parameters;
  std::array<sync::RelaxedFloats, Optimizer::kMostAverages> averages;
  sync::SystemAtomics::Word64* steps = nullptr;  // of all optimisers together

  /// Copies the parameters, and the averages and the number of steps to those of `into`, an optimiser
  /// of the same kind. Each float is whole; of steps under way some may be in the copy.
  void read(std::span<float> into_parameters, Optimizer& into) const;
  /// The other way round.
  void write(std::span<const float> from_parameters, Optimizer& from);
};

/// Threads: one at a time for each object; any number of objects over the same memory.
/// Death: in a step: some of the parameters have made it, the others have not.
class SharedOptimizer final : public Optimizer {
 public:
  /// `formula` is one that make_optimizer() gives, of any size.
  SharedOptimizer(std::unique_ptr<Optimizer> formula, const SharedParameters& shared);

  /// Steps the shared parameters along the gradient, and copies them to `parameters`, which are only
  /// written. While nobody else steps, this is the formula's own step, bit for bit. The caller computes
  /// it alone: other processes have the other CPUs.
  void step(std::span<float> parameters, std::span<const float> gradient, double gradient_scale,
            double learning_rate, ThreadTeam* team) override;
  using Optimizer::step;

  /// None: SharedParameters::read() has them.
  std::vector<Average> averages() noexcept override { return {}; }
  void prepare(std::int64_t number, double gradient_scale, double learning_rate) noexcept override {
    formula_->prepare(number, gradient_scale, learning_rate);
  }
  void apply(float* parameters, const float* gradient, std::span<float* const> averages,
             std::size_t size) const noexcept override {
    formula_->apply(parameters, gradient, averages, size);
  }

 private:
  const std::unique_ptr<Optimizer> formula_;
  const std::size_t count_;  // of averages
  SharedParameters shared_;
};

}  // namespace shoal::learn
