// For tests: arithmetic in double precision that differentiates itself. What layers and losses derive
// by hand is held to it; of their code it has nothing.
//
// Every operation is written down with its derivatives by its operands (reverse-mode automatic
// differentiation on a tape); gradients() goes the tape back.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace shoal::learn {

class Tape {
 public:
  /// A number on a tape, by its place there.
  struct Number {
    std::int32_t at = 0;
  };

  Number add(double value) { return written(value); }
  double operator[](Number x) const { return nodes_[index(x)].value; }

  /// A number that depends on x: its value, and its derivative by x.
  Number of(Number x, double value, double by_x) {
    const Number made = written(value);
    terms_.push_back({x, by_x});
    nodes_.back().terms = 1;
    return made;
  }
  Number of(Number x, Number y, double value, double by_x, double by_y) {
    const Number made = of(x, value, by_x);
    terms_.push_back({y, by_y});
    nodes_.back().terms = 2;
    return made;
  }
  /// start + sum over k of a[k] * b[k].
  Number dot(std::span<const std::pair<Number, Number>> factors, Number start) {
    double sum = (*this)[start];
    for (const auto& [a, b] : factors) sum += (*this)[a] * (*this)[b];
    const Number made = of(start, sum, 1);
    nodes_.back().first_factor = factors_.size();
    nodes_.back().factors = factors.size();
    factors_.insert(factors_.end(), factors.begin(), factors.end());
    return made;
  }

  Number sum(Number x, Number y) { return of(x, y, (*this)[x] + (*this)[y], 1, 1); }
  Number difference(Number x, Number y) { return of(x, y, (*this)[x] - (*this)[y], 1, -1); }
  Number product(Number x, Number y) {
    return of(x, y, (*this)[x] * (*this)[y], (*this)[y], (*this)[x]);
  }
  Number times(Number x, double factor) { return of(x, (*this)[x] * factor, factor); }
  Number plus(Number x, double more) { return of(x, (*this)[x] + more, 1); }
  Number square(Number x) { return product(x, x); }
  Number exp(Number x) { return of(x, std::exp((*this)[x]), std::exp((*this)[x])); }
  Number log(Number x) { return of(x, std::log((*this)[x]), 1 / (*this)[x]); }
  Number tanh(Number x) {
    const double y = std::tanh((*this)[x]);
    return of(x, y, 1 - y * y);
  }
  Number relu(Number x) { return of(x, std::max((*this)[x], 0.0), (*this)[x] > 0 ? 1 : 0); }
  Number larger(Number x, Number y) { return (*this)[x] >= (*this)[y] ? times(x, 1) : times(y, 1); }
  Number clamp(Number x, double low, double high) {
    const double value = (*this)[x];
    return of(x, std::clamp(value, low, high), value >= low && value <= high ? 1 : 0);
  }

  /// By every number on the tape, of the sum over k of weight[k] * result[k].
  std::vector<double> gradients(std::span<const std::pair<Number, double>> results) const {
    std::vector<double> by(nodes_.size());
    for (const auto& [result, weight] : results) by[index(result)] += weight;
    for (std::size_t n = nodes_.size(); n-- > 0;) {
      const Node& node = nodes_[n];
      if (by[n] == 0) continue;
      for (std::size_t t = node.first_term; t < node.first_term + node.terms; ++t)
        by[index(terms_[t].by)] += by[n] * terms_[t].derivative;
      for (std::size_t f = node.first_factor; f < node.first_factor + node.factors; ++f) {
        const auto& [a, b] = factors_[f];
        by[index(a)] += by[n] * (*this)[b];
        by[index(b)] += by[n] * (*this)[a];
      }
    }
    return by;
  }

  static std::size_t index(Number x) { return static_cast<std::size_t>(x.at); }

 private:
  struct Term {
    Number by;
    double derivative;
  };
  struct Node {
    double value;
    std::size_t first_term;
    std::size_t terms;
    std::size_t first_factor;
    std::size_t factors;
  };

  Number written(double value) {
    nodes_.push_back({value, terms_.size(), 0, 0, 0});
    return {static_cast<std::int32_t>(nodes_.size() - 1)};
  }

  std::vector<Node> nodes_;
  std::vector<Term> terms_;
  std::vector<std::pair<Number, Number>> factors_;
};

}  // namespace shoal::learn
