#include "shoal/vector/workers/worker_cpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/limits/affinity.h"

namespace shoal::vector {

WorkerCpus::WorkerCpus(std::vector<std::vector<int>> chosen, bool pin_workers, std::size_t workers)
    : cpus_(std::move(chosen)), chosen_(!cpus_.empty()) {
  const std::vector<int> own = os::cpu_set();
  for (const auto& cpus : cpus_) {
    for (const int cpu : cpus) {
      if (!std::binary_search(own.begin(), own.end(), cpu)) {
        throw InvalidArgument(fmt::format(
            "affinity: this process may not use CPU {}; it may use {}", cpu, fmt::join(own, ", ")));
      }
    }
  }
  if (chosen_ || !pin_workers || workers < 2) return;
  if (own.size() != workers || static_cast<std::size_t>(os::allowed_cpus()) != workers) return;
  for (const int cpu : own) cpus_.push_back({cpu});
  count_ = cpus_.size();
}

void WorkerCpus::spread(int count, int caller) noexcept {
  const auto here = std::ranges::find(cpus_, caller, [](const auto& cpus) { return cpus.front(); });
  count_ = static_cast<std::size_t>(std::max(1, count));
  first_ = 0;
  if (count_ == cpus_.size() || here == cpus_.end()) return;
  first_ = static_cast<std::size_t>(here - cpus_.begin());
  if (count > 0) first_ = (first_ + 1) % cpus_.size();
}

void WorkerCpus::place(int index, pid_t pid) const noexcept {
  if (cpus_.empty() || pid == ::getpid()) return;
  try {
    const auto turn = static_cast<std::size_t>(index) % (chosen_ ? cpus_.size() : count_);
    os::set_cpu_set(cpus_[(first_ + turn) % cpus_.size()], pid);
  } catch (const SystemError&) {
  }
}

}  // namespace shoal::vector
