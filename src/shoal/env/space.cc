#include "shoal/env/space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "shoal/env/numpy_text.h"
#include "shoal/os/error.h"

namespace shoal::env {
namespace {

using Shape = std::vector<std::int64_t>;

/// Python's spelling of a tuple: "()", "(4,)", "(2, 3)".
std::string tuple_text(const Shape& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

/// Python's spelling of a string: single quotes unless it holds some and no double ones.
std::string quoted(const std::string& text) {
  const bool double_quotes =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == '\\' || c == quote) out += '\\';
    out += c;
  }
  return out + quote;
}

std::string bound_text(const Box& box, const std::vector<double>& bound) {
  const bool uniform =
      std::adjacent_find(bound.begin(), bound.end(), std::not_equal_to<>()) == bound.end();
  if (bound.empty()) return "[]";
  if (uniform) return numpy::scalar_text(bound.front(), box.spec.dtype);
  return numpy::array_text(bound, box.spec.shape, box.spec.dtype);
}

std::string text(const Box& box) {
  return fmt::format("Box({}, {}, {}, {})", bound_text(box, box.low), bound_text(box, box.high),
                     tuple_text(box.spec.shape), shm::name(box.spec.dtype));
}

std::string text(const Discrete& space) {
  std::string out = fmt::format("Discrete({}", space.n);
  if (space.start != 0) out += fmt::format(", start={}", space.start);
  if (space.dtype != shm::DType::kI64) out += fmt::format(", dtype={}", shm::name(space.dtype));
  return out + ")";
}

std::string text(const MultiDiscrete& space) {
  std::string out = fmt::format("MultiDiscrete({}", numpy::array_text(space.nvec, space.shape));
  if (std::any_of(space.start.begin(), space.start.end(), [](std::int64_t v) { return v != 0; })) {
    out += fmt::format(", start={}", numpy::array_text(space.start, space.shape));
  }
  return out + ")";
}

std::string text(const MultiBinary& space) {
  return space.shape.size() == 1 ? fmt::format("MultiBinary({})", space.shape[0])
                                 : fmt::format("MultiBinary({})", tuple_text(space.shape));
}

std::string text(const Dict& dict) {
  std::vector<std::string> items;
  for (const auto& [key, space] : dict.spaces)
    items.push_back(fmt::format("{}: {}", quoted(key), space.repr()));
  return fmt::format("Dict({})", fmt::join(items, ", "));
}

std::string text(const Tuple& tuple) {
  std::vector<std::string> items;
  for (const Space& space : tuple.spaces) items.push_back(space.repr());
  return fmt::format("Tuple({})", fmt::join(items, ", "));
}

std::string text(const Opaque& space) { return space.text; }

shm::TensorSpec spec(const Space& leaf) {
  if (const auto* box = leaf.get_if<Box>()) return box->spec;
  if (const auto* discrete = leaf.get_if<Discrete>()) return {discrete->dtype, {}};
  if (const auto* multi = leaf.get_if<MultiDiscrete>()) return {multi->dtype, multi->shape};
  return {shm::DType::kI8, leaf.get_if<MultiBinary>()->shape};
}

void collect(const Space& space, const std::string& path, std::vector<Leaf>& out) {
  const auto below = [&path](const std::string& name) {
    return path.empty() ? name : path + "/" + name;
  };
  if (const auto* dict = space.get_if<Dict>()) {
    for (const auto& [key, child] : dict->spaces) collect(child, below(key), out);
  } else if (const auto* tuple = space.get_if<Tuple>()) {
    for (std::size_t i = 0; i < tuple->spaces.size(); ++i) {
      collect(tuple->spaces[i], below(std::to_string(i)), out);
    }
  } else if (space.get_if<Opaque>() == nullptr) {
    out.push_back({path, space, spec(space)});
  }
}

}  // namespace

std::string Space::repr() const {
  return std::visit([](const auto& kind) { return text(kind); }, kind_);
}

Box float_box(const std::vector<double>& low, const std::vector<double>& high) {
  if (low.size() != high.size()) {
    throw InvalidArgument(
        fmt::format("float_box: {} low bounds and {} high ones", low.size(), high.size()));
  }
  Box box;
  box.spec.dtype = shm::DType::kF32;
  box.spec.shape = {static_cast<std::int64_t>(low.size())};
  for (const double bound : low) box.low.push_back(static_cast<float>(bound));
  for (const double bound : high) box.high.push_back(static_cast<float>(bound));
  return box;
}

std::vector<Leaf> leaves(const Space& space) {
  std::vector<Leaf> out;
  collect(space, "", out);
  return out;
}

const Opaque* first_opaque(const Space& space) {
  const Opaque* found = space.get_if<Opaque>();
  if (const auto* dict = space.get_if<Dict>()) {
    for (const auto& [key, child] : dict->spaces) {
      if (found == nullptr) found = first_opaque(child);
    }
  } else if (const auto* tuple = space.get_if<Tuple>()) {
    for (const Space& child : tuple->spaces) {
      if (found == nullptr) found = first_opaque(child);
    }
  }
  return found;
}

}  // namespace shoal::env
