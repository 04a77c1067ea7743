// What the sources of Server share. Nothing else includes it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shoal/serve/server.h"

namespace shoal::serve {

/// A buffer that left while rows of it were still being written.
struct Quarantined {
  std::uint32_t buffer = 0;
  std::uint32_t claimed = 0;
};

/// The slots of a client at a queue, and all those that it has at this server.
struct SlotsOfClient {
  ClientSlots* slots = nullptr;
  const std::vector<ClientSlots*>* of_client = nullptr;
};

/// A queue, as its server knows it.
struct QueueState {
  std::unique_ptr<RequestQueue> queue;
  RowSpec outputs;
  std::vector<std::byte> structure;
  std::vector<SlotsOfClient> slots;
  std::uint32_t open = 0;  // 1 + the open buffer; 0: none. Clients may write over the queue's word
  std::vector<std::uint32_t> free;  // buffers
  std::uint32_t aside = 0;          // batches
  std::vector<Quarantined> quarantine;
  std::vector<std::vector<std::byte>> scratch;  // the rows of a batch that some row missed, by leaf
  std::uint64_t max_delay_ns = 0;
  std::uint64_t stands_still_ns =
      0;  // since when the open buffer is full without a ready row; 0: not
};

struct Server::Peer {
  std::uint32_t id = 0;
  pid_t pid = 0;
  os::PidFd process;
  os::SeqPacket socket;
};

}  // namespace shoal::serve
