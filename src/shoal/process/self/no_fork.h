// Reasons of Shoal's own against fork.
#pragma once

#include <list>
#include <string>
#include <vector>

namespace shoal::process {

/// While it lives, fork_hazards() gives `reason`, a sentence; a resource.
///
/// Threads: any.
/// Processes, death: this process alone.
/// Fork: a child has the reasons of its parent.
class NoFork {
 public:
  explicit NoFork(std::string reason);
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;

 private:
  std::list<std::string>::iterator place_;
};

/// Of all that live now.
std::vector<std::string> reasons_against_fork();

}  // namespace shoal::process
