#include "shoal/process/self/no_fork.h"

#include <mutex>
#include <utility>

namespace shoal::process {
namespace {

// As global as what it is about, the forks of this process.
struct Reasons {
  std::mutex mutex;
  std::list<std::string> list;
};

Reasons& reasons() {
  static Reasons* const one = new Reasons;  // outlives static destructors
  return *one;
}

}  // namespace

NoFork::NoFork(std::string reason) {
  const std::lock_guard lock(reasons().mutex);
  place_ = reasons().list.insert(reasons().list.end(), std::move(reason));
}

NoFork::~NoFork() {
  const std::lock_guard lock(reasons().mutex);
  reasons().list.erase(place_);
}

std::vector<std::string> reasons_against_fork() {
  const std::lock_guard lock(reasons().mutex);
  return {reasons().list.begin(), reasons().list.end()};
}

}  // namespace shoal::process
