#include "shoal/learn/network/parameters.h"

#include <algorithm>
#include <new>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {
constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kLine = kLineBytes / 4;  // numbers
constexpr std::size_t round_up(std::size_t n) { return (n + kLine - 1) / kLine * kLine; }
}  // namespace

template <class Number>
Aligned<Number>::Aligned(std::size_t size) : size_(size) {
  const std::size_t count = std::max(round_up(size), kLine);
  void* bytes = ::operator new(count * sizeof(Number), std::align_val_t{kLineBytes});
  data_.reset(static_cast<Number*>(bytes));
  std::fill_n(data_.get(), count, Number{});
}

template <class Number>
Number* Aligned<Number>::room(std::int64_t size) {
  if (static_cast<std::int64_t>(size_) < size) *this = Aligned(static_cast<std::size_t>(size));
  return data();
}

template <class Number>
void Aligned<Number>::Free::operator()(Number* p) const noexcept {
  ::operator delete(p, std::align_val_t{kLineBytes});
}

template class Aligned<float>;
template class Aligned<Bfloat16Pair>;

std::size_t Parameter::numel() const noexcept {
  std::size_t n = 1;
  for (const auto d : shape) n *= static_cast<std::size_t>(d);
  return n;
}

std::size_t Parameters::add(std::string name, std::vector<std::int64_t> shape) {
  SHOAL_CHECK(values_.size() == 0, "parameters are added before build()");
  list_.push_back({std::move(name), std::move(shape), size_});
  size_ += round_up(list_.back().numel());
  return list_.size() - 1;
}

void Parameters::build() { values_ = AlignedFloats(size_); }

std::ptrdiff_t Parameters::find(std::string_view name) const noexcept {
  const auto it = std::ranges::find(list_, name, &Parameter::name);
  return it == list_.end() ? -1 : it - list_.begin();
}

std::span<float> Parameters::values(std::size_t index) noexcept {
  return flat().subspan(list_[index].offset, list_[index].numel());
}

std::span<const float> Parameters::values(std::size_t index) const noexcept {
  return flat().subspan(list_[index].offset, list_[index].numel());
}

}  // namespace shoal::learn
