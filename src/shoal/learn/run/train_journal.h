// What a training run says of itself while it goes on: where it stands, and what it measured.
//
// Threads: the run writes, any number of others read.
#pragma once

#include <cstddef>
#include <deque>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "shoal/learn/run/scalars.h"
#include "shoal/learn/run/trainer.h"

namespace shoal::learn {

class TrainJournal {
 public:
  static constexpr std::size_t kMaxRecords = 100'000;  // the oldest go first when nobody polls

  /// Changes the status: `change` gets a TrainStatus&.
  template <class Change>
  void update(Change&& change) {
    const std::lock_guard lock(mutex_);
    change(status_);
  }

  TrainStatus status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  void add(ScalarRecord record) {
    const std::lock_guard lock(mutex_);
    if (records_.size() == kMaxRecords) records_.pop_front();
    records_.push_back(std::move(record));
  }

  std::vector<ScalarRecord> poll() {
    const std::lock_guard lock(mutex_);
    std::vector<ScalarRecord> taken(std::make_move_iterator(records_.begin()),
                                    std::make_move_iterator(records_.end()));
    records_.clear();
    return taken;
  }

 private:
  mutable std::mutex mutex_;
  TrainStatus status_;
  std::deque<ScalarRecord> records_;
};

}  // namespace shoal::learn
