#include "shoal/process/zygote/zygotes.h"

#include <algorithm>
#include <utility>

namespace shoal::process {

Zygotes::Limits Zygotes::limits() const {
  const std::lock_guard lock(mutex_);
  return limits_;
}

void Zygotes::set_limits(Limits limits) {
  const std::lock_guard lock(mutex_);
  limits_ = limits;
  for (auto& [id, member] : members_) member.review(false);
  end_the_longest_idle();
}

std::vector<Zygotes::Entry> Zygotes::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  for (const auto& [id, member] : members_) entries.push_back(member.entry);
  return entries;
}

std::uint64_t Zygotes::add(Entry entry, Review review) {
  const std::lock_guard lock(mutex_);
  members_[next_id_] = {std::move(entry), std::move(review)};
  return next_id_++;
}

void Zygotes::set_preload(std::uint64_t id, std::vector<std::string> preload) {
  const std::lock_guard lock(mutex_);
  if (const auto found = members_.find(id); found != members_.end()) {
    found->second.entry.preload = std::move(preload);
  }
}

void Zygotes::update(std::uint64_t id, const Use& use) {
  const std::lock_guard lock(mutex_);
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  found->second.entry.use = use;
  if (!use.idle_since) found->second.asked_to_end = false;
  end_the_longest_idle();
}

void Zygotes::remove(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  members_.erase(id);
}

void Zygotes::end_the_longest_idle() {
  std::vector<Member*> idle;
  for (auto& [id, member] : members_) {
    const Use& use = member.entry.use;
    if (use.idle_since && use.has_had_workers && !member.asked_to_end) idle.push_back(&member);
  }
  std::ranges::stable_sort(idle, {},
                           [](const Member* member) { return *member->entry.use.idle_since; });
  for (std::size_t i = 0; i + static_cast<std::size_t>(limits_.idle) < idle.size(); ++i) {
    idle[i]->asked_to_end = true;
    idle[i]->review(true);
  }
}

}  // namespace shoal::process
