// For tests: groups of some ranks on this machine, which stands for one host or for several.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shoal/group/group.h"
#include "shoal/os/socket/stream.h"

namespace shoal::group::testing {

/// How many ranks each host has.
using Layout = std::vector<int>;

/// The launches of all ranks, which nobody else has; hosts are kept apart by their numbers.
inline std::vector<Launch> launches(const Layout& hosts) {
  static std::atomic<int> count = 0;
  const auto attempt = fmt::format("test {} of process {}", ++count, ::getpid());
  const int port = os::StreamListener::bind(true, 0)->port();
  int size = 0;
  for (const int ranks : hosts) size += ranks;
  std::vector<Launch> all;
  for (std::size_t host = 0; host < hosts.size(); ++host)
    for (int local = 0; local < hosts[host]; ++local)
      all.push_back({.launcher = "a test",
                     .rank = static_cast<int>(all.size()),
                     .size = size,
                     .local_rank = local,
                     .local_size = hosts[host],
                     .node = std::to_string(host),
                     .attempt = attempt,
                     .address = "127.0.0.1",
                     .ports = {port, port < 65'000 ? port + 1 : port - 1}});
  return all;
}

/// Calls `work` with each rank's group, in a thread each.
inline void with_ranks(const Layout& hosts, const std::function<void(Group&)>& work,
                       bool star = false) {
  std::vector<std::jthread> threads;
  for (const Launch& launch : launches(hosts))
    threads.emplace_back([launch, star, &work] {
      const auto group = Group::join(launch, {.timeout = std::chrono::seconds(60), .star = star});
      work(*group);
      group->barrier();
    });
}

}  // namespace shoal::group::testing
